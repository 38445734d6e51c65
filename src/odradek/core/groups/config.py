"""The settings that a group coordinator obeys, with Kafka's defaults; `core/config` fills them from the node's properties."""

from typing import Final

from msgspec import Struct

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = (
    5 * 60 * 1000
)  # a new member cannot beat before its join is answered: it has this long instead
INT32_MAX: Final = 2**31 - 1


class GroupConfig(Struct, frozen=True):
    """Each field is the property of the same name, with dots."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = INT32_MAX
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
