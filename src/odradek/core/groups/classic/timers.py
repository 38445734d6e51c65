"""The timers of classic groups: a member's session, the join phase, the sync phase; and how they start after loading."""

from odradek.core.coordinator.events import Nothing, TimerKey, Turn
from odradek.core.groups.classic.group import ClassicGroup, State
from odradek.core.groups.classic.rebalance import (
    end_join_phase,
    end_sync_phase,
    expire_session,
    prepare_rebalance,
    restart_session,
)
from odradek.core.groups.shard import Shard
from odradek.wire.log_records import CoordinatorRecord


def fire(shard: Shard, key: TimerKey, turn: Turn) -> None:
    """A timer of a classic group fired; the group may be gone, or have been of another type meanwhile."""
    kind, group_id, *rest = key
    group = shard.classic(group_id)
    if group is None:
        return
    records: list[CoordinatorRecord]
    if kind == "classic-session":
        records = expire_session(shard, group, rest[0], turn)
    elif kind == "classic-join":
        records = end_join_phase(shard, group, turn) if group.state is State.PREPARING_REBALANCE else []
    else:
        assert kind == "classic-sync"
        records = end_sync_phase(shard, group, turn)
    if records:
        turn.write(records, Nothing())


def start(shard: Shard, group: ClassicGroup, turn: Turn) -> None:
    """The members of a loaded group have their whole session to say that they live."""
    for member in group.members.values():
        restart_session(group, member, turn)
    if len(group.members) > shard.config.group_max_size:
        # the limit was lowered: they may commit before the last of them are sent away
        records = prepare_rebalance(shard, group, turn)
        assert not records
