"""Random histories of a replicated partition lose nothing; and the same histories catch every rule that is switched off."""

import pytest

from odradek.core.metadata.topics import Partition
from odradek.core.partition.broker_session import BrokerSession
from odradek.core.partition.leader import Leader
from odradek.core.partition.replica import Replica
from tests.core.partition.replication_model import Cluster, Lost, Node

RUNS = 300
STEPS = 300


def run(cluster: Cluster) -> None:
    for _ in range(STEPS):
        cluster.step()
        if cluster.is_over:
            return


@pytest.mark.parametrize("min_insync", [1, 2])
def test_what_was_acknowledged_is_never_lost_and_all_replicas_come_together_again(min_insync: int) -> None:
    acknowledged = healed = 0
    for seed in range(RUNS):
        cluster = Cluster(seed, min_insync)
        run(cluster)
        acknowledged += len(cluster.acknowledged)
        if cluster.is_over:
            continue
        cluster.heal()
        if cluster.is_over or cluster.partition.leader < 0:
            continue
        healed += 1
        leader = cluster.nodes[cluster.partition.leader].leader
        assert leader is not None
        assert leader.high_watermark == leader.log_end, seed
        assert sorted(cluster.partition.isr) == [1, 2, 3], seed
    assert acknowledged > RUNS * 5
    assert healed > RUNS // 4


class CommittedIsrOnly(Leader):
    """Its high watermark does not wait for whom an AlterPartition under way may have added."""

    __slots__ = ()

    def advance(self, now_ms: int) -> bool:
        maximal, self.maximal_isr = self.maximal_isr, self.isr
        try:
            return super().advance(now_ms)
        finally:
            self.maximal_isr = maximal


class JoinBelowTheEpochStart(Leader):
    """Lets a follower join that has the high watermark alone."""

    __slots__ = ()

    def _may_join(self, replica: Replica) -> bool:
        return replica.log_end >= self.high_watermark and self._is_eligible(replica)


class AnyEpoch(Leader):
    """Takes fetches of any leader epoch."""

    __slots__ = ()

    def check_epoch(self, leader_epoch: int) -> None:
        del leader_epoch


class BelowMinIsr(Leader):
    """Moves the high watermark however few are in sync."""

    __slots__ = ()

    def advance(self, now_ms: int) -> bool:
        least, self.min_insync = self.min_insync, 1
        try:
            return super().advance(now_ms)
        finally:
            self.min_insync = least


class RememberedPositions(Leader):
    """Keeps what followers had in an epoch before, if it leads again and never heard of a leader in between."""

    __slots__ = ()

    def lead(self, state: Partition, log_end: int, min_insync_replicas: int, now_ms: int) -> bool:
        ends = {broker: (replica.log_end, replica.broker_epoch) for broker, replica in self.replicas.items()}
        moved = super().lead(state, log_end, min_insync_replicas, now_ms)
        for broker, (end, epoch) in ends.items():
            if broker in self.replicas:
                self.replicas[broker].log_end, self.replicas[broker].broker_epoch = end, epoch
        return self.advance(now_ms) or moved


class ForgottenChange(Leader):
    """Takes metadata of the same partition epoch for news: the change under way is forgotten."""

    __slots__ = ()

    def lead(self, state: Partition, log_end: int, min_insync_replicas: int, now_ms: int) -> bool:
        if state.partition_epoch == self.partition_epoch:
            self._commit_isr(state.isr, state.partition_epoch)
        return super().lead(state, log_end, min_insync_replicas, now_ms)


# Each with a history that catches it: the seed, and min.insync.replicas. When the model changes, look for other seeds.
RULES_OFF = [
    (CommittedIsrOnly, 19, 1),
    (JoinBelowTheEpochStart, 180, 1),
    (AnyEpoch, 2561, 2),
    (BelowMinIsr, 8, 2),
    (RememberedPositions, 3153, 2),
    (ForgottenChange, 19, 1),
]


@pytest.mark.parametrize(("leader_type", "seed", "min_insync"), RULES_OFF)
def test_a_rule_that_is_switched_off_is_noticed(leader_type: type[Leader], seed: int, min_insync: int) -> None:
    run(Cluster(seed, min_insync))
    without_rule = Cluster(seed, min_insync, leader_type)
    with pytest.raises(Lost):
        run(without_rule)


def test_a_follower_that_truncates_to_its_high_watermark_loses_what_was_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = Node.follow_metadata

    def truncating(node: Node, count: int) -> None:
        before = node.follower.leader_epoch if node.follower is not None else -1
        follow(node, count)
        if node.follower is not None and node.follower.leader_epoch != before:
            node.cluster.truncate(node, node.log.high_watermark)

    run(Cluster(0))
    monkeypatch.setattr(Node, "follow_metadata", truncating)
    with pytest.raises(Lost):
        run(Cluster(0))


def test_a_node_that_leads_before_it_has_read_its_registration_loses_what_was_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(Cluster(59))
    monkeypatch.setattr(BrokerSession, "may_take_roles", lambda session, image_offset: True)
    with pytest.raises(Lost):
        run(Cluster(59))
