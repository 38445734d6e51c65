"""What one partition of __consumer_offsets holds, groups and offsets; with the settings, the metadata and the source of new ids.

Invariants
 1. A group that has offsets exists: a commit makes a simple group where there is none.
 2. A record of one type of group never touches a group of another type; a simple group, which has no records, gives way.
 3. A live classic group is ahead of its record: replaying what it wrote itself changes nothing in it.
 4. A consumer group is what its records say.
"""

from collections.abc import Callable, Iterable

from odradek.core.groups.classic.group import ClassicGroup, State, stored_group
from odradek.core.groups.config import GroupConfig
from odradek.core.groups.consumer.group import CONSUMER_KEYS, ConsumerGroup
from odradek.core.groups.group import Group
from odradek.core.groups.metadata_hash import group_hash, topic_hash
from odradek.core.groups.offsets import OffsetStore
from odradek.core.metadata.image import MetadataImage
from odradek.wire.message import Message
from odradek.wire.messages import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)


class Shard:
    """Groups and offsets of one partition."""

    __slots__ = ("config", "groups", "image", "is_live", "new_id", "offsets", "topic_hashes", "topics_version")

    def __init__(self, config: GroupConfig, new_id: Callable[[], str], high_watermark: int, image: MetadataImage) -> None:
        self.config = config
        self.new_id = new_id  # a random UUID as text
        self.image = image  # committed metadata, which the host keeps; only read here
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore(high_watermark)
        self.is_live = False  # loaded, and the one who writes
        self.topic_hashes: dict[str, int] = {}  # those that were asked for since the topic changed
        self.topics_version = image.offset  # of the metadata, when a topic was last made

    def classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def metadata_hash(self, topics: Iterable[str]) -> int:
        """Of those topics that exist."""
        return group_hash((name, self._topic_hash(name)) for name in topics if name in self.image.topics)

    def _topic_hash(self, name: str) -> int:
        found = self.topic_hashes.get(name)
        if found is None:
            found = self.topic_hashes[name] = topic_hash(self.image.topics[name], self.image.brokers)
        return found

    def replay(self, offset: int, key: Message, value: Message | None, producer_id: int) -> None:
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            if value is not None and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(key.group, value.commit_timestamp)
            self.offsets.replay(offset, producer_id, key, value)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_classic_group(key.group, value)
        elif isinstance(key, CONSUMER_KEYS):
            self._replay_consumer_group(key.group_id, key, value)

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

    def _replay_consumer_group(self, group_id: str, key: Message, value: Message | None) -> None:
        group = self.groups.get(group_id)
        if value is not None and (group is None or (isinstance(group, ClassicGroup) and group.is_simple)):
            group = self.groups[group_id] = ConsumerGroup(group_id)
        if not isinstance(group, ConsumerGroup):
            return
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            del self.groups[group_id]
        else:
            group.replay(key, value)
