"""Whether the values of a node's configuration go together: what Apache Kafka checks before it starts, and says when it does not.

Invariants
 1. What passes here, Apache Kafka starts with; what it refuses is refused here, with the key to change in the sentence.
 2. What only odradek cannot do (yet) is refused here too, in `check_supported`, and nowhere else.
"""

import re
from typing import TYPE_CHECKING, Final

from odradek.core.config.bounds import BOUNDED, KINDS, bounds
from odradek.core.config.key import InvalidConfig
from odradek.core.config.listeners import PLAINTEXT, PROTOCOLS

if TYPE_CHECKING:
    from odradek.core.config.broker import BrokerConfig

MEGABYTE: Final = 1024 * 1024
EVERY_ADDRESS: Final = "0.0.0.0"
HOST: Final = re.compile(r"[0-9a-zA-Z\-%._:]*")
ASSIGNORS: Final = {"group.consumer.assignors": ("uniform", "range"), "group.share.assignors": ("simple",)}
CODECS: Final = range(5)


def check(config: "BrokerConfig") -> None:
    """InvalidConfig with the first thing that is wrong."""
    check_identity(config)
    check_log(config)
    check_replication(config)
    check_listeners(config)
    check_quorum(config)
    check_connections(config)
    check_groups(config)
    check_supported(config)


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise InvalidConfig(sentence)


def check_identity(config: "BrokerConfig") -> None:
    config.names("process.roles")
    if config.given("node.id") is None:
        raise InvalidConfig("node.id: it must be given; choose a number of 0 or more that no other node of the cluster has")
    same = config.integer("broker.id") == config.node_id
    require(same, f"broker.id: {config.integer('broker.id')} is not node.id, which is {config.node_id}; leave broker.id out")


def check_log(config: "BrokerConfig") -> None:
    require(config.integer("log.roll.ms") >= 1, "log.roll.ms: it must be at least 1")
    require(config.integer("log.roll.jitter.ms") >= 0, "log.roll.jitter.ms: it must be at least 0")
    require(config.retention_ms == -1 or config.retention_ms >= 1, "log.retention.ms: it must be at least 1, or -1 to keep all")
    threads = config.integer("log.cleaner.threads")
    require(threads > 0, "log.cleaner.threads: it must be at least 1")
    buffer = config.integer("log.cleaner.dedupe.buffer.size") // threads > MEGABYTE
    require(buffer, "log.cleaner.dedupe.buffer.size: it must be more than 1048576 for each of log.cleaner.threads")
    folders = config.names("cordoned.log.dirs")
    if "*" in folders:
        require(folders == ("*",), "cordoned.log.dirs: `*` stands for all folders; write nothing beside it")
    elif unknown := [folder for folder in folders if folder not in config.log_dirs]:
        raise InvalidConfig(f"cordoned.log.dirs: {', '.join(unknown)} is not one of log.dirs; write it as it is there")


def check_replication(config: "BrokerConfig") -> None:
    wait_ms = config.integer("replica.fetch.wait.max.ms")
    for longer in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        holds = wait_ms <= config.integer(longer)
        require(holds, f"replica.fetch.wait.max.ms: {wait_ms} is more than {longer}; lower it, or raise the other")


def check_listeners(config: "BrokerConfig") -> None:
    if config.text_or_none("inter.broker.listener.name") is not None:
        one = config.given("security.inter.broker.protocol") is None
        require(one, "inter.broker.listener.name: security.inter.broker.protocol is given too; leave one of them out")
        known = config.inter_broker_listener_name in config.protocols
        require(
            known, f"inter.broker.listener.name: {config.inter_broker_listener_name} is not in listener.security.protocol.map"
        )
    for listener in (*config.advertised_broker_listeners, *config.advertised_controller_listeners):
        require(
            listener.host != EVERY_ADDRESS,
            f"advertised.listeners: nobody can reach {EVERY_ADDRESS}; write the name or address of this machine, "
            f"as in advertised.listeners={listener.name}://<host>:{listener.port}",
        )
    known_names = {listener.name for listener in config.listeners} | {
        name.upper() for name in config.names("controller.listener.names")
    }
    for name in config.names("early.start.listeners"):
        require(
            name.upper() in known_names, f"early.start.listeners: {name} is in neither listeners nor controller.listener.names"
        )
    if config.is_broker:
        check_broker_listeners(config)


def check_broker_listeners(config: "BrokerConfig") -> None:
    advertised = [listener.name for listener in config.advertised_broker_listeners]
    listening = [listener.name for listener in config.listeners]
    require(
        bool(advertised),
        "listeners: there is none for clients, all of them are in controller.listener.names; add one such as PLAINTEXT://:9092",
    )
    name = config.inter_broker_listener_name
    require(
        name in advertised,
        f"inter.broker.listener.name: {name} is not advertised; name one of {', '.join(advertised)}",
    )
    for name in advertised:
        require(name in listening, f"advertised.listeners: {name} is not one of the listeners, which are {', '.join(listening)}")


def check_quorum(config: "BrokerConfig") -> None:
    node, voters = config.node_id, config.voters
    found = bool(voters or config.bootstrap_servers)
    require(found, "controller.quorum.bootstrap.servers: it must be given, with host:port of a controller or more")
    if not voters:
        pass
    elif config.is_controller:
        listed = ", ".join(map(str, voters))
        require(
            node in voters, f"controller.quorum.voters: node.id {node} is a controller but not among the voters {listed}; add it"
        )
    else:
        require(
            node not in voters, f"controller.quorum.voters: node.id {node} is among the voters but no controller; take it out"
        )
    for host, _ in voters.values():
        require(host != EVERY_ADDRESS or not config.is_controller, f"controller.quorum.voters: nobody can reach {EVERY_ADDRESS}")
    if config.is_controller:
        check_controller_listeners(config)
    else:
        check_names_of_controllers(config)


def check_controller_listeners(config: "BrokerConfig") -> None:
    listening = [listener.name for listener in config.listeners]
    for name in config.names("controller.listener.names"):
        require(
            name in listening, f"controller.listener.names: {name} is not in listeners; a controller has to listen on all of them"
        )
    if not config.is_broker:
        others = [listener.name for listener in config.broker_listeners]
        require(
            not others, f"listeners: {', '.join(others)} is not in controller.listener.names, and this node is only a controller"
        )
        chosen = config.text_or_none("inter.broker.listener.name")
        between = chosen is not None and chosen.upper() in config.names("controller.listener.names")
        require(
            not between, f"inter.broker.listener.name: {chosen} is in controller.listener.names; leave it out on a controller"
        )


def check_names_of_controllers(config: "BrokerConfig") -> None:
    """A node that is only a broker does not listen for controllers, but has to know how to speak to them."""
    for listener in config.controller_listeners:
        raise InvalidConfig(
            f"controller.listener.names: {listener.name} is in listeners, but this node is no controller; take it out there"
        )
    for name in config.names("controller.listener.names"):
        require(
            name.upper() in config.protocols,
            f"controller.listener.names: {name} has no protocol; add {name}:PLAINTEXT to listener.security.protocol.map",
        )
    joins = config.flag("controller.quorum.auto.join.enable")
    require(not joins, "controller.quorum.auto.join.enable: only a controller can join the quorum; leave it out")


def check_connections(config: "BrokerConfig") -> None:
    queued, request = config.integer("queued.max.request.bytes"), config.integer("socket.request.max.bytes")
    require(
        queued <= 0 or queued >= request, f"queued.max.request.bytes: it must be at least socket.request.max.bytes, {request}"
    )
    overrides = config.text("max.connections.per.ip.overrides")
    for entry in filter(None, (part.strip() for part in overrides.split(","))):
        host, _, count = entry.rpartition(":")
        valid = HOST.fullmatch(host.strip()) and host.strip() and count.strip().isdecimal()
        require(bool(valid), f"max.connections.per.ip.overrides: {entry!r} is not valid; write it as host:count")
    some = config.integer("max.connections.per.ip") > 0 or bool(overrides.strip())
    require(some, "max.connections.per.ip: 0 lets nobody in; give max.connections.per.ip.overrides, or a number above 0")
    idle, delay = config.integer("connections.max.idle.ms"), config.integer("connection.failed.authentication.delay.ms")
    require(
        idle < 0 or delay < idle, f"connection.failed.authentication.delay.ms: it must be below connections.max.idle.ms, {idle}"
    )


def check_groups(config: "BrokerConfig") -> None:
    for name in BOUNDED:
        low, high = bounds(name)
        value = config.integer(f"group.{name}")
        least, most = config.integer(low) if low else 0, config.integer(high)
        require(value >= least, f"group.{name}: {value} is below {low}, {least}")
        require(value <= most, f"group.{name}: {value} is above {high}, {most}")
    for kind in KINDS:
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        holds = config.integer(heartbeat) < config.integer(session)
        require(holds, f"{heartbeat}: it must be below {session}, {config.integer(session)}")
    sessions, members = config.integer("group.share.max.share.sessions"), config.integer("group.share.max.size")
    require(sessions >= members, f"group.share.max.share.sessions: {sessions} is below group.share.max.size, {members}")
    protocols = config.names("group.coordinator.rebalance.protocols")
    require("classic" in protocols, "group.coordinator.rebalance.protocols: classic cannot be left out")
    for name, known in ASSIGNORS.items():
        for assignor in config.names(name):
            require(assignor in known, f"{name}: {assignor} is not known; there are {', '.join(known)}")
    for name in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        require(config.integer(name) in CODECS, f"{name}: it takes 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)")


def check_supported(config: "BrokerConfig") -> None:
    used = [(one.name, one.protocol) for one in (*config.listeners, *config.advertised_listeners)]
    used += [(name, config.protocols.get(name.upper(), PLAINTEXT)) for name in config.names("controller.listener.names")]
    for name, protocol in used:
        require(
            protocol == PLAINTEXT,
            f"listeners: {name} uses {protocol}, which odradek does not serve yet; use PLAINTEXT, on a network that you trust",
        )
    assert set(config.protocols.values()) <= set(PROTOCOLS)
