"""Configurations to begin a test with."""

from odradek.core.config.broker import BrokerConfig

ONE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:19092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:19092",
    "log.dirs": "data",
}
BROKER = ONE_NODE | {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}
CONTROLLER = ONE_NODE | {"process.roles": "controller", "listeners": "CONTROLLER://127.0.0.1:19092"}


def node(**values: str) -> BrokerConfig:
    """One node with some keys changed: `node(log_retention_hours="1")`."""
    return BrokerConfig(ONE_NODE | {name.replace("_", "."): value for name, value in values.items()})
