"""The settings of a topic: what it overrides, on top of what its broker says.

Invariants
 1. A TopicConfig has a field for every topic key, and its fields go into a LogConfig under the same names.
 2. What `check_topic` lets pass can be applied: `topic_config` takes it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from odradek.core.config.broker import BrokerConfig
from odradek.core.config.key import InvalidConfig, Key
from odradek.core.config.table import topic_keys
from odradek.core.config.validity import Value

INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"  # lets tests of Apache Kafka have segments below a megabyte
UNLIMITED: Final = -1
AS_A_WHOLE: Final = -2  # of local.retention.*: the same as retention.*


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    cleanup_policy: frozenset[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    producer_id_expiration_ms: int  # of the broker: no topic overrides it
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """InvalidConfig when a value cannot be parsed; names that are not known do nothing."""
    fields: dict[str, Any] = {}
    for name, key in topic_keys().items():
        if name != INTERNAL_SEGMENT_BYTES:
            fields[name.replace(".", "_")] = key.parse(overrides[name]) if name in overrides else broker_value(broker, key)
    if INTERNAL_SEGMENT_BYTES in overrides:
        fields["segment_bytes"] = topic_keys()[INTERNAL_SEGMENT_BYTES].parse(overrides[INTERNAL_SEGMENT_BYTES])
    fields["cleanup_policy"] = frozenset(fields["cleanup_policy"])
    return TopicConfig(producer_id_expiration_ms=broker.integer("producer.id.expiration.ms"), **fields)


def broker_value(broker: BrokerConfig, key: Key) -> Value:
    """What the broker says where the topic says nothing."""
    if key.name == "retention.ms":
        return broker.retention_ms
    value = broker.resolved(key.synonyms[0]) if key.synonyms else key.default_value
    assert value is not None, key.name
    return value


def check_topic(broker: BrokerConfig, overrides: Mapping[str, str], before: Mapping[str, str]) -> TopicConfig:
    """The settings that a topic would have; InvalidConfig when it may not have them. `before` are its overrides until now."""
    for name in overrides:
        if name not in topic_keys():
            raise InvalidConfig(f"{name}: no topic config has this name; `kafka-configs --describe --all` shows those there are")
    config = topic_config(broker, overrides)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        least, most = config.min_compaction_lag_ms, config.max_compaction_lag_ms
        raise InvalidConfig(f"min.compaction.lag.ms: {least} is above max.compaction.lag.ms, {most}")
    if config.remote_storage_enable:
        check_remote(broker, config)
    elif before.get("remote.storage.enable", "").lower() == "true" and not config.remote_log_delete_on_disable:
        raise InvalidConfig(
            "remote.storage.enable: it turns off only with remote.log.delete.on.disable=true, which deletes what is there; "
            "to keep it and copy nothing more, leave it on and set remote.log.copy.disable=true"
        )
    return config


def check_remote(broker: BrokerConfig, config: TopicConfig) -> None:
    if not broker.flag("remote.log.storage.system.enable"):
        raise InvalidConfig(
            "remote.storage.enable: the broker has no remote storage; remote.log.storage.system.enable turns it on"
        )
    if "compact" in config.cleanup_policy:
        raise InvalidConfig("cleanup.policy: a topic with remote storage cannot be compacted; it takes delete, or nothing")
    check_local("bytes", config.local_retention_bytes, config.retention_bytes, config.remote_log_copy_disable)
    check_local("ms", config.local_retention_ms, config.retention_ms, config.remote_log_copy_disable)


def check_local(unit: str, local: int, whole: int, copies_nothing: bool) -> None:
    if local == AS_A_WHOLE:
        return
    if copies_nothing and local != whole:
        raise InvalidConfig(f"local.retention.{unit}: with remote.log.copy.disable it must be retention.{unit}, {whole}, or -2")
    if whole > UNLIMITED and not UNLIMITED < local <= whole:
        raise InvalidConfig(f"local.retention.{unit}: {local} is more than retention.{unit}, {whole}; lower it, or set it to -2")
