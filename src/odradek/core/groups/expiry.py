"""Which offsets have had their time, and which groups are left with nothing.

Invariants
 1. An offset that an open transaction is about to change does not expire.
 2. A group is deleted only without members, offsets and open transactions.
"""

from odradek.core.groups.group import Group
from odradek.core.groups.offsets import CommittedOffset
from odradek.core.groups.records import NO_EXPIRY, offset_tombstone
from odradek.core.groups.shard import Shard
from odradek.wire.log_records import CoordinatorRecord


def expired(shard: Shard, wall_ms: int) -> list[CoordinatorRecord]:
    """The tombstones of all offsets and groups that have expired."""
    records: list[CoordinatorRecord] = []
    for group in shard.groups.values():
        if expire_offsets(shard, group, wall_ms, records) and group.is_empty:
            records += group.tombstones()
    return records


def expire_offsets(shard: Shard, group: Group, wall_ms: int, records: list[CoordinatorRecord]) -> bool:
    """Adds the tombstones of a group's offsets; whether nothing of it is left."""
    is_all = True
    for place, offset in shard.offsets.newest_of(group.group_id):
        is_kept = group.is_subscribed_to(place.topic) or shard.offsets.is_open(place)
        if not is_kept and is_expired(group, offset, wall_ms, shard.config.offsets_retention_ms):
            records.append(offset_tombstone(place))
        else:
            is_all = False
    return is_all and group.group_id not in shard.offsets.open_places


def is_expired(group: Group, offset: CommittedOffset, wall_ms: int, retention_ms: int) -> bool:
    start_ms = group.retention_start_ms(offset)
    if start_ms is None:
        return False
    if offset.expire_timestamp_ms != NO_EXPIRY:
        return wall_ms >= offset.expire_timestamp_ms  # old clients said how long
    return wall_ms - start_ms >= retention_ms
