"""What a person should know of a configuration that is valid: keys that do nothing, and what to write instead.

Invariants
 1. A line for each key, which begins with the key.
"""

from typing import TYPE_CHECKING, Final

from odradek.core.config.layers import LISTENER_PREFIX, known_key
from odradek.core.config.table import broker_keys

if TYPE_CHECKING:
    from odradek.core.config.broker import BrokerConfig

DISTANCE_MIN: Final = 0.8  # how alike a name must be to be meant
GONE: Final = {
    "advertised.host.name": "use advertised.listeners",
    "advertised.port": "use advertised.listeners",
    "auto.include.jmx.reporter": "it does nothing since Apache Kafka 4.0",
    "broker.id.generation.enable": "give node.id",
    "control.plane.listener.name": "it went with ZooKeeper",
    "delegation.token.master.key": "use delegation.token.secret.key",
    "group.coordinator.new.enable": "it does nothing since Apache Kafka 4.0, where the new coordinator is the only one",
    "host.name": "use listeners",
    "inter.broker.protocol.version": "the cluster's feature metadata.version says it",
    "leader.imbalance.per.broker.percentage": "it does nothing since Apache Kafka 4.0",
    "log.message.downconversion.enable": "no client of today needs it",
    "log.message.format.version": "there is one format",
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
    "port": "use listeners",
    "reserved.broker.max.id": "give node.id",
}
ZOOKEEPER: Final = ("zookeeper.", "password.encoder.")
PLUGIN_PREFIXES: Final = ("remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix")
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
BUILT_IN: Final = {"replica.selector.class": RACK_AWARE}  # classes that mean here what they mean there
JAVA: Final = {
    "alter.config.policy.class.name": "policies are not supported, all alterations that are valid are allowed",
    "authorizer.class.name": "authorization is not served yet, everybody may do everything",
    "client.quota.callback.class": "quotas are those that are set in the cluster",
    "config.providers": "write the values themselves into the file",
    "create.topic.policy.class.name": "policies are not supported, all topics that are valid are allowed",
    "kafka.metrics.reporters": "metrics are offered in another way",
    "metric.reporters": "metrics are offered in another way",
    "principal.builder.class": "principals are built as Apache Kafka does without it",
    "remote.log.metadata.manager.class.name": "remote storage is not served yet",
    "remote.log.storage.manager.class.name": "remote storage is not served yet",
    "replica.selector.class": f"consumers read from the leader, or with {RACK_AWARE} from the nearest replica",
    "sasl.client.callback.handler.class": "the mechanisms are built in",
    "sasl.login.callback.handler.class": "the mechanisms are built in",
    "sasl.login.class": "the mechanisms are built in",
    "sasl.server.callback.handler.class": "the mechanisms are built in",
    "security.providers": "what Python offers is used",
    "ssl.engine.factory.class": "what Python offers is used",
}


def advice(config: "BrokerConfig") -> list[str]:
    lines = []
    for name, text in config.static.items():
        if name in JAVA and text.strip() not in ("", broker_keys()[name].default, BUILT_IN.get(name)):
            lines.append(f"{name}: it names a Java class, which does nothing here; {JAVA[name]}")
        elif known_key(name) is None and not is_for_a_plugin(config, name):
            lines.append(unknown(name))
    heartbeat, session = config.integer("broker.heartbeat.interval.ms"), config.integer("broker.session.timeout.ms")
    if heartbeat * 2 > session:
        lines.append(
            f"broker.heartbeat.interval.ms: {heartbeat} is more than half of broker.session.timeout.ms, {session}; lower it"
        )
    return lines


def unknown(name: str) -> str:
    if name in GONE:
        return f"{name}: it is gone from Apache Kafka and does nothing; {GONE[name]}"
    if name.startswith(ZOOKEEPER):
        return f"{name}: it is gone from Apache Kafka with ZooKeeper and does nothing; take it out"
    if name.startswith(LISTENER_PREFIX):
        return f"{name}: no key of a listener has this name; it does nothing"
    from difflib import get_close_matches  # only for a mistake

    near = get_close_matches(name, list(broker_keys()), n=1, cutoff=DISTANCE_MIN)
    meant = f"did you mean {near[0]}?" if near else "take it out"
    return f"{name}: no key has this name, it does nothing; {meant}"


def is_for_a_plugin(config: "BrokerConfig", name: str) -> bool:
    return any(name.startswith(config.text(prefix)) for prefix in PLUGIN_PREFIXES)
