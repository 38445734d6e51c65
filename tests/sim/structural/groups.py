"""The coordinators of groups: each is what its partition of __consumer_offsets says.

A fresh coordinator replays the log of a live one up to the same offset, and has to have the same groups and offsets. A classic
group lives ahead of its records while it rebalances: it is compared when it is stable.

Invariants that are checked
 1. The same groups of the same types, with the same members, epochs, assignments; the same offsets, newest and committed, and
    the same open transactions.
 2. No partition has two owners in a consumer group; a classic group counts what it has, and has a leader while it has members.
"""

from typing import TYPE_CHECKING, Any

from odradek.core.groups.classic.group import ClassicGroup, State
from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.coordinator import GroupCoordinator
from odradek.node.coordinators import Shard
from odradek.node.groups import CONSUMER_OFFSETS
from odradek.wire.control import ControlType, read_end_marker
from odradek.wire.errors import UnknownRecord
from odradek.wire.log_records import decode_coordinator_record
from odradek.wire.records import records
from tests.core.groups.durable import durable_classic
from tests.log.medium import Medium
from tests.sim.structural.findings import hold
from tests.sim.structural.logs import Cursor, batches_below

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster

CACHED = ("refreshed_epoch", "subscribed_topics", "regex_counts")


def check_groups(cluster: "SimCluster") -> int:
    """Gives how many groups were compared."""
    count = 0
    for number, node in cluster.nodes.items():
        groups = getattr(node, "groups", None)
        for index, shard in groups.shards.items() if groups is not None else ():
            if shard.is_loaded and not shard.is_closed and not shard.is_stepping and shard.partition.log.damage is None:
                name = f"the coordinator of {CONSUMER_OFFSETS}-{index} on node {number}"
                count += check_coordinator(name, shard, cluster.members[number].disks.medium)
    return count


def replayed(live: GroupCoordinator, shard: Shard[GroupCoordinator], medium: Medium) -> GroupCoordinator | None:
    """A coordinator that has read the log; None where rot has made it unreadable."""
    fresh = GroupCoordinator(live.shard.config, lambda: "", live.high_watermark, live.shard.image)
    cursor = Cursor()
    for batch in batches_below(medium, shard.partition.log, live.log_end, cursor):
        header = batch.header
        if header.last_offset < shard.partition.log.start_offset:
            continue
        producer_id = header.producer_id if header.is_transactional else -1
        for record in records(batch.data, 0, header):
            if header.is_control:
                is_commit = read_end_marker(record)[0] is ControlType.COMMIT
                fresh.replay_end_of_transaction(record.offset, header.producer_id, is_commit)
            elif record.key is not None:
                try:
                    entry = decode_coordinator_record(CONSUMER_OFFSETS, record.key, record.value)
                except UnknownRecord:
                    continue
                fresh.replay(record.offset, entry.key, entry.value, producer_id)
    return None if cursor.next_offset < 0 else fresh


def check_coordinator(name: str, shard: Shard[GroupCoordinator], medium: Medium) -> int:
    live = shard.coordinator
    fresh = replayed(live, shard, medium)
    if fresh is None:
        return 0
    ours, theirs = live.shard.groups, fresh.shard.groups
    hold(ours.keys() == theirs.keys(), f"{name} has the groups {sorted(ours)}, and its log {sorted(theirs)}")
    offsets, again = live.shard.offsets, fresh.shard.offsets
    hold(offsets.by_group == again.by_group, f"{name} has other offsets than its log")
    hold(offsets.transactions == again.transactions, f"{name} has other offsets in open transactions than its log")
    for group_id, group in ours.items():
        hold(group.type is theirs[group_id].type, f"{name}: {group_id} is a {group.type} group, and in the log another")
        committed = dict(offsets.committed_of(group_id)), dict(again.committed_of(group_id))
        hold(committed[0] == committed[1], f"{name}: {group_id} has other committed offsets than its log")
        check_group(f"{name}: {group_id}", group, theirs[group_id])
    return len(ours)


def check_group(name: str, group: Any, again: Any) -> None:
    if isinstance(group, ConsumerGroup):
        hold(durable_consumer(group) == durable_consumer(again), f"{name} is not what its log says")
        owners = [
            (topic_id, index)
            for member in group.members.values()
            for owned in (member.assigned, member.revoking)
            for topic_id, found in owned.items()
            for index in found
        ]
        hold(len(owners) == len(set(owners)), f"{name} has a partition with two owners: {owners}")
        hold(sorted(owners) == sorted(group.owners), f"{name} knows other owners than its members")
    elif isinstance(group, ClassicGroup):
        if group.state is State.STABLE:
            hold(durable_classic(group) == durable_classic(again), f"{name} is not what its log says")
        waiting = sum(member.waiting_join is not None for member in group.members.values())
        hold(group.waiting_joins == waiting, f"{name} waits for {group.waiting_joins} joins, and has {waiting}")
        hold((group.leader_id in group.members) == bool(group.members), f"{name} has the leader {group.leader_id}")


def durable_consumer(group: ConsumerGroup) -> dict[str, Any]:
    return {name: value for name, value in vars(group).items() if name not in CACHED}
