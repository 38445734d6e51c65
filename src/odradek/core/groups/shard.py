"""What one partition of __consumer_offsets holds: its groups and their offsets, with the settings and the source of new ids.

Invariants
 1. A group that has offsets exists: a commit makes a simple group where there is none.
 2. A record of one type of group never touches a group of another type.
 3. A live classic group is ahead of its record: replaying what it wrote itself changes nothing in it.
"""

from collections.abc import Callable

from odradek.core.groups.classic.group import ClassicGroup, State, stored_group
from odradek.core.groups.config import GroupConfig
from odradek.core.groups.group import Group
from odradek.core.groups.offsets import OffsetStore
from odradek.wire.message import Message
from odradek.wire.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue


class Shard:
    """Groups and offsets of one partition."""

    __slots__ = ("config", "groups", "is_live", "new_id", "offsets")

    def __init__(self, config: GroupConfig, new_id: Callable[[], str], high_watermark: int) -> None:
        self.config = config
        self.new_id = new_id  # a random UUID as text
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore(high_watermark)
        self.is_live = False  # loaded, and the one who writes

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def replay(self, offset: int, key: Message, value: Message | None, producer_id: int) -> None:
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            if value is not None and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(key.group, value.commit_timestamp)
            self.offsets.replay(offset, producer_id, key, value)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_classic_group(key.group, value)

    def _replay_classic_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self.groups.get(group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            return
        if value is None:
            if group is not None:
                group.move_to(State.DEAD, group.state_timestamp_ms)
                del self.groups[group_id]
        elif group is None or not self.is_live:
            self.groups[group_id] = stored_group(group_id, value)
