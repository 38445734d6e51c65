"""Quorums of 1, 3 and 5 nodes through random histories: safe at every step, and alive when the network heals."""

import pytest

from tests.core.raft.cluster import Cluster

RUNS_FACTOR = 1  # more find more: 10 take minutes
STEPS = 20


def chaos(cluster: Cluster) -> None:
    """One thing that happens to a cluster."""
    random = cluster.random
    ids = list(cluster.members)
    what = random.choice(
        ("append",) * 6 + ("crash", "crash", "crash seen", "cut", "mend", "network", "snapshot", "snapshot", "voters")
    )
    node_id = random.choice(ids)
    member = cluster.members[node_id]
    match what:
        case "append":
            leading = [other for other in cluster.members.values() if other.raft is not None and other.raft.is_leader]
            for other in leading:
                other.append(random.randbytes(8))
        case "crash" | "crash seen":
            if member.raft is None:
                member.start()
            else:
                cluster.crash(node_id, seen=what == "crash seen")
        case "cut":
            cluster.cut[(node_id, random.choice(ids))] = None
        case "mend":
            cluster.cut.clear()
        case "network":
            cluster.loss = random.choice((0.0, 0.0, 0.1, 0.5))
            cluster.doubling = random.choice((0.0, 0.2))
            cluster.delay_ms_max = random.choice((1, 10, 300))
            cluster.sync_ms_max = random.choice((1, 30, 2000))
        case "snapshot":
            member.take_snapshot()
        case _ if cluster.formatted is not None and len(ids) > 1:
            random.choice((cluster.add_voter, cluster.remove_voter))(node_id)


def check_alive(cluster: Cluster) -> None:
    """With everybody up and connected, a record is committed everywhere in a minute."""
    cluster.heal()
    cluster.run(5000)
    leader = cluster.elect()
    leader.append(b"last")
    end_offset = leader.log.end_offset

    def is_everywhere() -> bool:
        rafts = [member.raft for member in cluster.members.values()]
        return all(raft is not None and raft.high_watermark >= end_offset for raft in rafts)

    assert cluster.run(60_000, is_everywhere), [
        (member.id, member.raft and (member.raft.epoch, member.raft.leader, member.raft.high_watermark))
        for member in cluster.members.values()
    ]
    for member in cluster.members.values():
        cluster.check_has_committed(member, end_offset)


SHAPES = {  # voters, observers, whether the log names the voters, runs
    "1 voter": ([1], [], True, 60),
    "1 fixed voter": ([1], [], False, 40),
    "1 voter and an observer": ([1], [2], True, 60),
    "3 voters": ([1, 2, 3], [], True, 40),
    "3 fixed voters": ([1, 2, 3], [], False, 25),
    "3 voters and two observers": ([1, 2, 3], [4, 5], True, 20),
    "5 voters": ([1, 2, 3, 4, 5], [], True, 20),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_happens_nothing_committed_is_lost_and_the_quorum_comes_back(shape: str) -> None:
    voter_ids, observer_ids, dynamic, runs = SHAPES[shape]
    for seed in range(runs * RUNS_FACTOR):
        cluster = Cluster(seed, voter_ids, observer_ids, dynamic=dynamic, auto_join=seed % 3 == 0).start()
        for _ in range(STEPS):
            chaos(cluster)
            cluster.run(cluster.random.choice((1, 10, 100, 300, 2000)))
        check_alive(cluster)
