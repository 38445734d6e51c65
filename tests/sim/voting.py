"""What happens to who votes and leads in the metadata quorum: elections in bad moments. `faults.py` has their rates' names.

None of it may take away what was committed: votes, the metadata and its snapshots are synced before anybody is told. A process
that is killed is `is_unclean` for the sake of its partitions, a machine without power is `is_lossy`, as everywhere.
"""

from typing import TYPE_CHECKING, Final

from odradek.core.raft.election import QUORUM_STATE
from odradek.log.folder import METADATA_LOG
from tests.log.medium import Manner
from tests.sim.disk import Ending

if TYPE_CHECKING:
    from tests.sim.faults import Faults

OPERATIONS_MAX: Final = 12  # on the metadata, until it happens
PARTS: Final = (METADATA_LOG, ".checkpoint", QUORUM_STATE)  # of paths: anything, snapshots, votes
KILL_SECONDS_MAX: Final = 0.05  # after a vote
BACK_SECONDS_MAX: Final = 0.2  # an election takes longer
DELAYS_S: Final = (0.02, 0.05, 0.2)
MANNERS: Final[tuple[Manner, ...]] = ("strict", "mixed", "torn")


def isolate_leader(faults: "Faults") -> Ending | None:
    """Who leads the quorum, from the other nodes; clients still reach it."""
    cluster = faults.cluster
    leading = [number for number, node in cluster.nodes.items() if node.quorum.machine.is_leader]
    if not leading:
        return None
    here = cluster.members[faults.chance.choice(leading)].host
    return faults.part([here], [member.host for member in cluster.members.values() if member.host != here])


def slow_nodes(faults: "Faults") -> Ending:
    """All links between nodes, as if they were far from each other."""
    hosts = [member.host for member in faults.cluster.members.values()]
    links = [(source, target) for source in hosts for target in hosts if source != target]
    return faults.slow_down(links, faults.chance.choice(DELAYS_S))


def kill_at_metadata(faults: "Faults") -> Ending | None:
    """Between two operations on the metadata: the log, its snapshots, the vote."""
    member = faults.pick_up()
    if member is None:
        return None
    return faults.trap(member, member.kill, OPERATIONS_MAX, faults.chance.choice(PARTS))


def lose_power_at_metadata(faults: "Faults") -> Ending | None:
    member = faults.pick_up()
    if member is None:
        return None
    faults.lossy = member
    manner = faults.chance.choice(MANNERS)
    return faults.trap(member, lambda: member.lose_power(manner), OPERATIONS_MAX, faults.chance.choice(PARTS))


def kill_after_a_vote(faults: "Faults") -> Ending | None:
    """Of a voter that has just changed its mind about who leads; it is back at once, in the same election perhaps."""
    member = faults.pick_up()
    if member is None:
        return None
    chance, life = faults.chance, member.life
    seconds, back_seconds = chance.random() * KILL_SECONDS_MAX, chance.random() * BACK_SECONDS_MAX

    def come() -> None:
        if member.life == life and faults.lossy is None and not faults.is_over:
            member.kill()
            member.start_soon(back_seconds)

    return faults.trap(member, lambda: faults.cluster.world.after(seconds, come), 1, QUORUM_STATE)
