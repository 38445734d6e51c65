"""Topics that are created because somebody needs them: those that clients name, and those of the coordinators."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.core.config.broker import BrokerConfig
from odradek.core.config.describe import describe_topic
from odradek.core.metadata.topic_names import name_fault
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from odradek.node.node import Node

Topic = CreateTopicsRequest.CreatableTopic
DEFAULT = -1
ON_DEMAND_MS = 5_000  # that a client waits for the controller, for what it did not ask for in so many words

logger = logging.getLogger("odradek.creation")


async def create_on_demand(node: "Node", topics: Sequence[str]) -> None:
    """Creates topics. Why one cannot be is told here: clients give a topic up for other errors than that it is not there."""
    wanted = [wanted_topic(node.config, topic) for topic in topics if not name_fault(topic)]
    if not wanted:
        return
    try:
        request = CreateTopicsRequest(topics=wanted, timeout_ms=ON_DEMAND_MS)
        response = await node.link.ask(request, CreateTopicsResponse, request.timeout_ms)
    except Refused as refused:
        logger.info("%s cannot be created: %s", ", ".join(topic.name for topic in wanted), refused)
        return
    await node.followed()
    for topic in response.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.info("%s cannot be created: %s: %s", topic.name, ErrorCode(topic.error_code).name, topic.error_message)


def wanted_topic(config: BrokerConfig, name: str) -> Topic:
    """A topic with the defaults of the cluster; the coordinators' own have settings of theirs."""
    match name:
        case "__consumer_offsets":
            return internal(
                name,
                config.integer("offsets.topic.num.partitions"),
                config.integer("offsets.topic.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.integer("offsets.topic.segment.bytes")),
                },
            )
        case "__transaction_state":
            return internal(
                name,
                config.integer("transaction.state.log.num.partitions"),
                config.integer("transaction.state.log.replication.factor"),
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "unclean.leader.election.enable": "false",
                    "min.insync.replicas": str(config.integer("transaction.state.log.min.isr")),
                    "segment.bytes": str(config.integer("transaction.state.log.segment.bytes")),
                },
            )
        case _:
            return Topic(name=name, num_partitions=DEFAULT, replication_factor=DEFAULT)


def internal(name: str, partitions: int, replicas: int, configs: dict[str, str]) -> Topic:
    entries = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    return Topic(name=name, num_partitions=partitions, replication_factor=replicas, configs=entries)


def described(config: BrokerConfig, overrides: dict[str, str]) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
    """The configuration of a new topic, as the answer tells it."""
    return [
        CreateTopicsResponse.CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in describe_topic(config, overrides)
    ]
