"""The settings of one partition's log: those of its topic, under Kafka's names and with Kafka's defaults."""

import msgspec

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = INT64_MAX
    max_message_bytes: int = 1_048_588
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    preallocate: bool = False
    producer_id_expiration_ms: int = DAY_MS
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 2**30
    segment_index_bytes: int = 10 * 2**20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How long a segment is written at most: what may not wait longer for compaction has to be in a closed one."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms
