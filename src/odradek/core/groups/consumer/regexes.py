"""Subscriptions by regular expression (RE2): the coordinator finds the topics, and stores what it found.

All expressions of a group are resolved together, so that one rebalance follows: when a new one comes, when topics were made, and
every now and then. It happens behind the heartbeat that asked for it.

Invariants
 1. An expression that somebody is subscribed to is resolved; one that nobody is subscribed to any more is forgotten.
 2. Resolving waits REFRESH_INTERVAL_MS_MIN since the last time. A clock that was set back makes nobody wait.
"""

from enum import Enum
from typing import Any, Final

import re2

from odradek.core.coordinator.events import Nothing, TimerKey, Turn
from odradek.core.groups.consumer.draft import Draft
from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.consumer.member import ConsumerMember
from odradek.core.groups.consumer.records import epoch_record, regex_record, regex_tombstone
from odradek.core.groups.shard import Shard
from odradek.wire.errors import ErrorCode, Refused

REFRESH_INTERVAL_MS_MIN: Final = 10_000


class RegexChange(Enum):
    NONE = "none"
    UPDATED = "updated"  # and to be resolved, which will raise the epoch
    RESOLVED = "resolved"  # it is known what it stands for


def regex_timer(group_id: str) -> TimerKey:
    return ("consumer-regex", group_id)


def compiled(regex: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it does not parse"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{regex}` is no regular expression of RE2: {text}."
        ) from None


def update_regexes(shard: Shard, draft: Draft, old: ConsumerMember, new: ConsumerMember, turn: Turn) -> RegexChange:
    """After the member was put into the draft: what its expression means for the group."""
    group = draft.group
    change = RegexChange.NONE
    is_unknown = False
    if old.regex != new.regex:
        change = RegexChange.UPDATED
        if old.regex and old.regex not in group.regex_counts:
            draft.add(regex_tombstone(group.group_id, old.regex))
            group = draft.group
        if new.regex and group.regex_counts[new.regex] == 1:
            compiled(new.regex)
            is_unknown = True
        elif new.regex in group.regexes or not new.regex:
            change = RegexChange.RESOLVED
    if group.regex_counts and is_refresh_due(shard, group, is_unknown, turn.now.wall_ms):
        turn.set_timer(regex_timer(group.group_id), 0)
    return change


def is_refresh_due(shard: Shard, group: ConsumerGroup, is_unknown: bool, wall_ms: int) -> bool:
    last = max(group.regexes.values(), key=lambda found: found.timestamp_ms, default=None)
    if last is None:
        return True
    age_ms = wall_ms - last.timestamp_ms
    if 0 <= age_ms <= REFRESH_INTERVAL_MS_MIN:
        return False
    return (
        is_unknown
        or group.regex_counts.keys() != group.regexes.keys()
        or last.version < shard.topics_version
        or not 0 <= age_ms <= shard.config.group_consumer_regex_refresh_interval_ms
    )


def resolve_regexes(shard: Shard, group: ConsumerGroup, turn: Turn) -> None:
    """Finds the topics of all expressions of the group, and raises its epoch when they are others."""
    if not group.regex_counts:
        return
    draft = Draft(group)
    names = list(shard.image.topics)
    is_changed = False
    for regex in group.regex_counts:
        matches = compiled(regex).fullmatch
        topics = frozenset(name for name in names if matches(name))
        old = group.regexes.get(regex)
        is_changed = is_changed or topics != (frozenset() if old is None else old.topics)
        draft.add(regex_record(group.group_id, regex, topics, shard.image.offset, turn.now.wall_ms))
    found_hash = shard.metadata_hash(draft.group.subscribed_topics)
    if is_changed or found_hash != group.metadata_hash:
        epoch = group.epoch + 1
        draft.add(epoch_record(group.group_id, epoch, found_hash))
        group.refreshed_epoch = epoch
    turn.write(draft.records, Nothing())


def forgotten_regexes(draft: Draft) -> None:
    """Members have gone: what nobody is subscribed to any more goes too."""
    group = draft.group
    for regex in group.regexes.keys() - group.regex_counts.keys():
        draft.add(regex_tombstone(group.group_id, regex))
