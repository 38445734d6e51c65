"""What happens to consumer groups without a request: timers fire, they are loaded, topics come and go."""

from odradek.core.coordinator.events import Nothing, TimerKey, Turn
from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.consumer.leaving import remove_members
from odradek.core.groups.consumer.member import MemberState
from odradek.core.groups.consumer.regexes import resolve_regexes
from odradek.core.groups.consumer.timers import restart_session, watch_revocation
from odradek.core.groups.events import TopicsChanged
from odradek.core.groups.shard import Shard
from odradek.wire.errors import ErrorCode


def fire(shard: Shard, key: TimerKey, turn: Turn) -> None:
    """A timer of a consumer group fired; the group or the member may be gone, or not be meant any more."""
    kind, group_id, *rest = key
    group = shard.consumer(group_id)
    if group is None:
        return None
    if kind == "consumer-regex":
        return resolve_regexes(shard, group, turn)
    member = group.members.get(rest[0])
    if member is None:
        return None
    if kind == "consumer-rebalance" and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return None
    if kind in ("consumer-join", "consumer-sync") and not member.is_classic:
        return None
    sequel = Nothing() if kind == "consumer-session" else FiresAgain(key, member.rebalance_timeout_ms)
    return remove_members(shard, group, [member], sequel, turn)


class FiresAgain(Nothing):
    """What a timer is to do, and could not be written, is tried again when it fires again. Of sessions others take care."""

    __slots__ = ("after_ms", "key")

    def __init__(self, key: TimerKey, after_ms: int) -> None:
        self.key = key
        self.after_ms = after_ms

    def failed(self, _: ErrorCode, turn: Turn) -> None:
        turn.set_timer(self.key, self.after_ms, is_first=True)


def start(shard: Shard, group: ConsumerGroup, turn: Turn) -> None:
    """The members of a loaded group have their whole session to say that they live, and to give up what they must."""
    for member in group.members.values():
        restart_session(shard, group.group_id, member, turn)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            watch_revocation(group.group_id, member, turn)


def topics_changed(shard: Shard, event: TopicsChanged) -> None:
    """The next heartbeat of a group that is subscribed to one of them looks at it again."""
    for name in event.names:
        shard.topic_hashes.pop(name, None)
    if event.has_new:
        shard.topics_version = shard.image.offset
    for group in shard.groups.values():
        if isinstance(group, ConsumerGroup) and not group.subscribed_topics.isdisjoint(event.names):
            group.refreshed_epoch = None
