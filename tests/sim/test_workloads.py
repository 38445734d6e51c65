"""Workloads in a simulated cluster in which nothing fails: every kind of client does real work, and no rule is broken."""

import pytest

from tests.checker.check import check
from tests.sim.run import Run, Setting
from tests.sim.workloads.plan import make_plan
from tests.sim.workloads.profile import PROFILES

SECONDS = 25.0


@pytest.mark.parametrize(
    ("profile", "done"),
    [
        ("mixed", ["acknowledged", "records by readers", "committed offsets seen", "members, leave", "create"]),
        ("library", ["acknowledged", "records by readers", "members, leave", "transactions committed", "transactions aborted"]),
        ("writers", ["acknowledged", "polls of readers", "records by readers"]),
        ("groups", ["acknowledged", "members, leave"]),
        ("administration", ["create", "delete", "settings", "partitions", "moves", "records deleted"]),
        ("renewal", ["topics made anew", "create", "delete", "transactions committed", "committed offsets seen"]),
        ("elections", ["acknowledged", "elections", "epochs probed"]),
        ("flapping", ["acknowledged", "elections"]),
        ("zombies", ["transactions committed", "transactions aborted", "transactors fenced", "ends that come late"]),
        ("coordinators", ["elections", "transactions committed", "ends that come late", "records processed"]),
        ("older transactions", ["transactions committed", "transactions aborted"]),
        ("processing", ["records processed"]),
        ("instances", ["records processed", "members, twice"]),
        ("quiet", ["acknowledged", "records by readers"]),
        ("calm", ["acknowledged", "records by readers", "records in the end"]),
        ("unclean", ["acknowledged", "records in the end"]),
    ],
)
def test_each_kind_of_client_does_real_work(profile: str, done: list[str]) -> None:
    run = Run(Setting(seed=2, nodes=3, profile=profile, faults="none", seconds=SECONDS))
    result = run.whole()
    assert result.wrong == []
    assert [what for what in done if not result.done.get(what)] == []
    for group in run.workload.stage.plan.groups:
        assert result.done[f"records by {group.protocol}"] > 0
        assert result.done[f"commits, {group.protocol}"] > 0
    assert result.done["acknowledged"] > SECONDS
    assert check(run.history).checked["partitions read to the end"] >= len(run.workload.stage.plan.topics)


def test_seeds_make_groups_of_every_protocol_and_topics_of_every_kind() -> None:
    plans = [make_plan(str(seed), PROFILES["mixed"], 3) for seed in range(20)]
    assert {group.protocol for plan in plans for group in plan.groups} == set(PROFILES["mixed"].protocols)
    assert {group.is_static for plan in plans for group in plan.groups} == {True, False}
    assert {topic.partitions for plan in plans for topic in plan.topics} == {1, 2, 3}
    assert {topic.replicas for plan in plans for topic in plan.topics} == {2, 3}
