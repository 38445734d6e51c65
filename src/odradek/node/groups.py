"""The group coordinators of this node: one for each partition of __consumer_offsets that it leads (core/groups)."""

from collections.abc import Callable
from typing import Any

from odradek.api.context import Context
from odradek.core.config.broker import BrokerConfig
from odradek.core.config.group import group_config as settings_of
from odradek.core.controller.configs import GROUP_RESOURCE
from odradek.core.groups.config import ConsumerOverrides, GroupConfig
from odradek.core.groups.coordinator import GroupCoordinator
from odradek.core.groups.events import ConfigChanged, GroupEvent, TopicsChanged, TopicsDeleted
from odradek.core.metadata.delta import Delta
from odradek.core.metadata.image import MetadataImage
from odradek.core.transactions.transaction import TopicIndex
from odradek.node.coordinators import Coordinators, Shard, ask
from odradek.node.partition import Partition
from odradek.node.timers import Timers
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message

CONSUMER_OFFSETS = "__consumer_offsets"


class Groups(Coordinators[Shard[GroupCoordinator]]):
    topic = CONSUMER_OFFSETS

    def __init__(self, image: MetadataImage, config: BrokerConfig, timers: Timers, now_ms: Callable[[], int]) -> None:
        super().__init__(image, timers, now_ms)
        self.config = group_config(config, image)

    def _new_shard(self, partition: Partition) -> Shard[GroupCoordinator]:
        unique_id = partition.host.machine.unique_id
        coordinator = GroupCoordinator(self.config, lambda: str(unique_id()), partition.high_watermark, self.image)
        codec = Codec(self.config.offsets_topic_compression_codec)
        return Shard(partition, coordinator, codec, self.timers, self.now_ms)

    def place_of(self, group_id: str) -> tuple[Partition, TopicIndex] | ErrorCode:
        """The partition that the offsets of a group are in, if it is coordinated here."""
        shard = self.find(group_id)
        return shard if isinstance(shard, ErrorCode) else (shard.partition, (self.topic, shard.partition.index))

    async def ask_verified(self, group_id: str, request: Message, ctx: Context, verification: object) -> Message | ErrorCode:
        """A request that writes within a transaction."""
        shard = self.find(group_id)
        return shard if isinstance(shard, ErrorCode) else await ask(shard, request, ctx, verification)

    def marked(self, index: int, offset: int, producer_id: int, is_commit: bool) -> None:
        """The end of a transaction was appended to a partition of the groups."""
        if (shard := self.shards.get(index)) is not None:
            shard.marked(offset, producer_id, is_commit)

    async def follow(self, led: dict[int, Partition], delta: Delta) -> None:
        """Follows the metadata, and tells the coordinators what became of topics."""
        await self.follow_partitions(led)
        for event in topic_events(delta, self.image):
            for shard in self.shards.values():
                shard.step(event)

    def configure(self, config: BrokerConfig) -> None:
        """The node's settings have changed, or those that groups have of their own."""
        changed = group_config(config, self.image)
        if changed != self.config:
            self.config = changed
            for shard in self.shards.values():
                shard.step(ConfigChanged(changed))


def group_config(config: BrokerConfig, image: MetadataImage) -> GroupConfig:
    names = [name for name in GroupConfig.__struct_fields__ if name != "overrides"]
    values: dict[str, Any] = {name: config.resolved(name.replace("_", ".")) for name in names}
    overrides = {}
    for (kind, group_id), given in image.configs.items():
        if kind == GROUP_RESOURCE:
            own = settings_of(config, given)
            overrides[group_id] = ConsumerOverrides(
                own.consumer_session_timeout_ms, own.consumer_heartbeat_interval_ms, own.consumer_assignment_interval_ms
            )
    return GroupConfig(**values, overrides=overrides)


def topic_events(delta: Delta, image: MetadataImage) -> list[GroupEvent]:
    """What a change of the metadata means to groups."""
    deleted = {topic.name: topic.id for topic in delta.topics_deleted.values()}
    ids = [*delta.topics_created, *(topic_id for topic_id, _ in delta.partitions)]
    changed = {image.topics_by_id[topic_id].name for topic_id in ids if topic_id in image.topics_by_id} | deleted.keys()
    events: list[GroupEvent] = [TopicsDeleted(deleted)] if deleted else []
    if changed:
        events.append(TopicsChanged(frozenset(changed), bool(delta.topics_created)))
    return events
