"""Random histories of a quorum: what happens to it, and what has to be true when all is well again.

A history is safe at every step, by the invariants of its cluster. Healed, it is alive: a record is committed everywhere, the
leader is one of the voters, it stays when another node comes back, and it knows when it is cut off.
"""

from typing import NamedTuple

from tests.core.raft.cluster import Cluster, Member
from tests.core.raft.invariants import hold

ROUNDS = 5
STEPS_MAX = 6  # in a round
PAUSES_MS = (0, 1, 2, 5, 10, 30, 100, 300, 2000)
CALMS_MS = (300, 1500, 3000)
COMMITTED_MS_MAX = 20_000
JOINED_MS_MAX = 60_000
STAYS_MS = 8_000  # longer than any timeout of the quorum

EVENTS = (
    *("append",) * 4,
    *("crash", "crash seen", "crash leader", "crash leader", "start", "start"),
    *("cut", "isolate", "isolate leader", "mend", "network"),
    *("snapshot", "snapshot", "voters", "voters", "upgrade"),
)


class Shape(NamedTuple):
    voters: list[int]
    observers: list[int] = []  # noqa: RUF012
    dynamic: bool = True  # the log names the voters
    loses_folder: bool = False  # once, one of them


SHAPES = {
    "1 voter": Shape([1]),
    "1 fixed voter": Shape([1], dynamic=False),
    "1 voter and an observer": Shape([1], [2]),
    "3 voters": Shape([1, 2, 3]),
    "3 fixed voters": Shape([1, 2, 3], dynamic=False),
    "3 voters and two observers": Shape([1, 2, 3], [4, 5]),
    "3 voters, one of which loses its folder": Shape([1, 2, 3], loses_folder=True),
    "5 voters": Shape([1, 2, 3, 4, 5]),
}


def happen(cluster: Cluster, what: str) -> None:
    """One thing that happens to a cluster."""
    random, leader = cluster.random, cluster.leader()
    member = random.choice(list(cluster.members.values()))
    if what.endswith("leader") and leader is not None:
        what, member = what.removesuffix(" leader"), leader
    match what:
        case "append":
            for other in leading(cluster):
                for _ in range(random.choice((1, 1, 3))):
                    if other.raft is not None and other.raft.is_leader:
                        other.append(random.randbytes(8))
        case "crash" | "crash seen":
            if member.raft is not None:
                cluster.crash(member.id, seen=what == "crash seen")
        case "start":
            if member.raft is None:
                member.start()
        case "cut":
            cluster.cut[(member.id, random.choice(list(cluster.members)))] = None
        case "isolate":
            cluster.isolate(member.id)
        case "mend":
            cluster.cut.clear()
        case "network":
            worsen(cluster)
        case "snapshot":
            member.take_snapshot()
        case "upgrade":
            cluster.upgrade()
        case "voters" if not any(other.folder for other in cluster.members.values()):
            for _ in range(random.choice((1, 2))):
                change_voters(cluster)
        case _:
            pass


def worsen(cluster: Cluster) -> None:
    """The network, the disks and the processes become another sort of bad."""
    random = cluster.random
    cluster.loss = random.choice((0.0, 0.0, 0.1, 0.5))
    cluster.doubling = random.choice((0.0, 0.2))
    cluster.delay_ms_max = random.choice((1, 10, 300))
    cluster.sync_ms_max = random.choice((1, 30, 2000))
    cluster.crash_amid = random.choice((0.0, 0.01, 0.1))
    cluster.restart_ms = random.choice((None, 1, 100, 1000))


def leading(cluster: Cluster) -> list[Member]:
    return [member for member in cluster.members.values() if member.raft is not None and member.raft.is_leader]


def change_voters(cluster: Cluster) -> None:
    node_id = cluster.random.choice(list(cluster.members))
    cluster.random.choice((cluster.add_voter, cluster.remove_voter))(node_id)


def lose_folder(cluster: Cluster) -> None:
    """Of one of three voters, which are the same for everybody: more could lose what is committed, or the majority."""
    random, members = cluster.random, list(cluster.members.values())
    cluster.heal()
    cluster.run(5000)
    leader = cluster.elect()
    assert leader.raft is not None
    if len(leader.raft.voters.voters) == len(members):
        cluster.isolate(random.choice(members).id)  # so that the two others have what it lacks
        for _ in range(3):
            happen(cluster, "append")
        cluster.run(random.choice((10, 100, 3000)))
        random.choice(members).lose_folder()
        cluster.run(random.choice((10, 100)))
        cluster.cut.clear()
        for member in members:
            if member.raft is None:
                member.start()


def disturb(cluster: Cluster, shape: Shape) -> None:
    """Whatever happens, it is safe. Where bad times and calm ones take turns there is something to lose; where there is no calm,
    elections cross each other."""
    random = cluster.random
    has_calm = random.random() < 0.5
    lost_in = random.randrange(ROUNDS) if shape.loses_folder else -1
    for number in range(ROUNDS):
        if has_calm:
            cluster.heal()
            cluster.run(random.choice(CALMS_MS), lambda: cluster.leader() is not None)
            happen(cluster, "append")
            cluster.run(random.choice(PAUSES_MS))
        if number == lost_in:
            lose_folder(cluster)
        worsen(cluster)
        for _ in range(random.randint(1, STEPS_MAX)):
            happen(cluster, random.choice(EVENTS))
            cluster.run(random.choice(PAUSES_MS))


def settle(cluster: Cluster) -> Member:
    """With everybody up and connected, a record is committed everywhere, by a leader that votes."""
    cluster.heal()
    cluster.run(5000)
    leader = cluster.elect()
    assert leader.raft is not None
    hold(leader.raft.is_voter, f"node {leader.id} leads and is no voter")
    leader.append(b"last")
    end_offset = leader.log.end_offset

    def is_everywhere() -> bool:
        return all(member.raft is not None and member.raft.high_watermark >= end_offset for member in cluster.members.values())

    hold(cluster.run(COMMITTED_MS_MAX, is_everywhere), f"{end_offset} is not committed everywhere: {told(cluster)}")
    for member in cluster.members.values():
        cluster.invariants.has_committed(member.log, end_offset)
    return cluster.elect()


def all_vote(cluster: Cluster) -> bool:
    return all(member.raft is not None and member.raft.is_voter for member in cluster.members.values())


def told(cluster: Cluster) -> list[object]:
    return [
        (member.id, member.raft and (member.raft.epoch, member.raft.leader, member.raft.high_watermark, member.raft.voters.ids))
        for member in cluster.members.values()
    ]


def check_joins(cluster: Cluster) -> None:
    """Who joins by itself votes in the end."""
    leader = settle(cluster)
    if cluster.auto_join and leader.raft is not None and leader.raft.kraft_version:
        hold(cluster.run(JOINED_MS_MAX, lambda: all_vote(cluster)), f"not everybody votes who joins by itself: {told(cluster)}")


def check_stays(cluster: Cluster) -> None:
    """A node that was cut off comes back and does not disturb the leader; a leader that was cut off knows it."""
    check_joins(cluster)
    leader = cluster.elect()
    raft = leader.raft
    assert raft is not None
    epoch, voters = raft.epoch, raft.voters.ids
    for member in cluster.members.values():
        if member is not leader and len(voters) > 2:
            cluster.isolate(member.id)
            cluster.run(STAYS_MS)
            cluster.cut.clear()
            cluster.run(STAYS_MS)
            hold(raft.is_leader and raft.epoch == epoch, f"node {member.id} came back and ended epoch {epoch}")
    if len(voters) > 1:
        cluster.isolate(leader.id)
        cluster.run(STAYS_MS)
        hold(not raft.is_leader, f"node {leader.id} leads without having been fetched from")


def begin(shape: Shape, seed: int) -> Cluster:
    auto_join = shape.loses_folder or seed % 3 == 0
    return Cluster(seed, shape.voters, shape.observers, dynamic=shape.dynamic, auto_join=auto_join).start()


def tell(shape: Shape, seed: int) -> None:
    """One history, from its beginning to its end."""
    cluster = begin(shape, seed)
    disturb(cluster, shape)
    check_stays(cluster)
