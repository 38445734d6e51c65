"""Random histories of a replicated partition lose nothing; and the same histories catch every rule that is switched off."""

from collections.abc import Callable

import pytest

from tests.core.partition.replication_model import Cluster, Lost, Node
from tests.sim.mutants import replicas
from tests.sim.mutants.mutant import Patch

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


# Each with a history that catches it: the seed, and min.insync.replicas. When the model changes, look for other seeds.
RULES_OFF = [
    (replicas.maximal_isr, 1, 1),
    (replicas.join_past_the_epoch_start, 180, 1),
    (replicas.any_leader_epoch, 2561, 2),
    (replicas.minimum, 8, 2),
    (replicas.positions_of_this_epoch, 3153, 2),
    (replicas.change_under_way, 19, 1),
    (replicas.registration_in_the_image, 59, 1),
]


@pytest.mark.parametrize(("switch_off", "seed", "min_insync"), RULES_OFF)
def test_a_rule_that_is_switched_off_is_noticed(
    switch_off: Callable[[Patch], None], seed: int, min_insync: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(Cluster(seed, min_insync))
    switch_off(monkeypatch)
    without_rule = Cluster(seed, min_insync)
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
