"""The timers of consumer groups.

consumer-session    a member was not heard of
consumer-rebalance  a member has not given up what it was asked to
consumer-join       a classic member has not joined again after it was told to
consumer-sync       a classic member has not fetched its assignment
consumer-regex      the regular expressions are to be resolved
"""

from odradek.core.coordinator.events import TimerKey, Turn
from odradek.core.groups.consumer.member import ConsumerMember, MemberState
from odradek.core.groups.shard import Shard


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return ("consumer-session", group_id, member_id)


def rebalance_timer(group_id: str, member_id: str) -> TimerKey:
    return ("consumer-rebalance", group_id, member_id)


def join_timer(group_id: str, member_id: str) -> TimerKey:
    return ("consumer-join", group_id, member_id)


def sync_timer(group_id: str, member_id: str) -> TimerKey:
    return ("consumer-sync", group_id, member_id)


def restart_session(shard: Shard, group_id: str, member: ConsumerMember, turn: Turn) -> None:
    timeout_ms = shard.config.consumer_settings(group_id).session_timeout_ms
    if member.classic is not None:
        timeout_ms = member.classic.session_timeout_ms
    turn.set_timer(session_timer(group_id, member.member_id), timeout_ms)


def watch_revocation(group_id: str, member: ConsumerMember, turn: Turn) -> None:
    """A native member has its rebalance timeout to give up what it must; a classic one has to join and to sync in that time."""
    if member.is_classic:
        return
    key = rebalance_timer(group_id, member.member_id)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        turn.set_timer(key, member.rebalance_timeout_ms)
    else:
        turn.cancel_timer(key)


def cancel_timers(group_id: str, member_id: str, turn: Turn) -> None:
    for timer in (session_timer, rebalance_timer, join_timer, sync_timer):
        turn.cancel_timer(timer(group_id, member_id))
