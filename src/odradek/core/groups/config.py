"""The settings that a group coordinator obeys, with Kafka's defaults; `core/config` fills them from the node's properties."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = (
    5 * 60 * 1000
)  # a new member cannot beat before its join is answered: it has this long instead
INT32_MAX: Final = 2**31 - 1


class ConsumerOverrides(Struct, frozen=True):
    """The settings that a consumer group may have of its own."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class GroupConfig(Struct, frozen=True):
    """Each field is the property of the same name, with dots; `overrides` is what groups have of their own."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = INT32_MAX
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offsets_topic_compression_codec: int = 0
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_max_size: int = INT32_MAX
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    overrides: Mapping[str, ConsumerOverrides] = {}  # by group id, for groups that have settings of their own

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    @property
    def is_upgrade_enabled(self) -> bool:
        """A classic group becomes a consumer group when a member of the new protocol joins it."""
        return self.group_consumer_migration_policy.lower() in ("bidirectional", "upgrade")

    @property
    def is_downgrade_enabled(self) -> bool:
        """A consumer group becomes a classic one when only classic members are left."""
        return self.group_consumer_migration_policy.lower() in ("bidirectional", "downgrade")

    @property
    def is_migration_disabled(self) -> bool:
        return self.group_consumer_migration_policy.lower() == "disabled"

    def consumer_settings(self, group_id: str) -> ConsumerOverrides:
        found = self.overrides.get(group_id)
        if found is not None:
            return found
        return ConsumerOverrides(
            self.group_consumer_session_timeout_ms,
            self.group_consumer_heartbeat_interval_ms,
            self.group_consumer_assignment_interval_ms,
        )
