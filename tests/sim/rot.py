"""What rots on a disk, or is put in its place: faults of what is written, not of writing. `faults.py` has their rates' names.

What a node makes of each, and so when it may come:
- Rot in a segment is found by whoever reads it, and the replica is copied anew; so what it holds must be on others (`is_lossy`).
- A segment that is read wrong for a while is the same for as long. Coordinators read their logs without looking at checksums, as
  in Kafka: theirs are left out.
- An index, or a snapshot of producers, is built again from the records: nothing is lost. The node was killed, so `is_unclean`.
- A checkpoint tells nothing then, also not where records were deleted: until the leader has told, the replica must not lead. A
  number that has become another number is believed, as in Kafka: only what cannot be read comes here.
- The metadata is repaired by a person, with a copy of the folder: the node may refuse to start until then, and erases nothing.
- A disk that is replaced has nothing on it. Not that of a voter's metadata: a voter with another directory is another voter.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.log.checkpoint import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from odradek.log.epochs import LEADER_EPOCHS
from odradek.log.folder import METADATA_LOG
from odradek.log.names import FileKind
from odradek.node.node import Node
from tests.sim.disk import Ending
from tests.sim.structural.findings import INTERNAL

if TYPE_CHECKING:
    from tests.sim.faults import Faults

CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS, LEADER_EPOCHS)
INDEXES: Final = (".index", ".timeindex")  # in a transaction index nothing shows that a bit has flipped, in Kafka's either
REBUILT_SHARE: Final = 0.7  # of files that can be made again: many may be lost at once
UNREADABLE_BIT: Final = 7  # which no character of a text file has


def rot(faults: "Faults") -> Ending | None:
    """A bit has flipped in a segment that nobody writes any more. Whoever reads it finds out, and copies the partition anew; what
    nobody has read is put right in the end: the other copies may rot next."""
    member = faults.pick()
    cold = member.disks.cold_segments(is_replicated)
    mend = member.disks.break_batch(faults.chance.choice(cold), faults.chance) if cold else None
    if mend is not None:
        faults.lossy = member
    return mend


def wrong_reads(faults: "Faults") -> Ending | None:
    """Records in such a segment are read wrong for a while."""
    member = faults.pick()
    cold = member.disks.cold_segments(lambda path: INTERNAL not in path)
    mend = member.disks.break_records(faults.chance.choice(cold), faults.chance) if cold else None
    if mend is not None:
        faults.lossy = member
    return mend


def rot_at_a_start(faults: "Faults") -> Ending | None:
    """A node is killed, and a bit has flipped below a recovery point when it comes back, where the start looks."""
    member = faults.pick_up()
    found = [] if member is None or member.node is None else scanned_below_recovery_points(member.node)
    if member is None or not found:
        return None
    faults.lossy = member
    member.kill()
    path, recovery_point = faults.chance.choice(found)
    if faults.chance.random() < 0.5:
        member.disks.break_batch(path, faults.chance, recovery_point)
    else:
        member.disks.break_records(path, faults.chance, recovery_point)
    return lambda: member.start_soon(0)


def rot_of_indexes(faults: "Faults") -> Ending | None:
    return rot_while_down(faults, lambda path: path.endswith(INDEXES), share=REBUILT_SHARE)


def rot_of_snapshots(faults: "Faults") -> Ending | None:
    """Of producers."""
    return rot_while_down(faults, lambda path: path.endswith(".snapshot"), share=REBUILT_SHARE)


def rot_of_a_checkpoint(faults: "Faults") -> Ending | None:
    return rot_while_down(faults, lambda path: path.endswith(CHECKPOINTS) and is_replicated(path), UNREADABLE_BIT, is_lossy=True)


def rot_while_down(
    faults: "Faults", concerns: Callable[[str], bool], bit: int | None = None, *, share: float = 0.0, is_lossy: bool = False
) -> Ending | None:
    """A node is killed, and a bit has flipped in some file when it comes back, or in each of a share of them."""
    member = faults.pick_up()
    files = [] if member is None else member.disks.paths(concerns)
    if member is None or not files:
        return None
    if is_lossy:
        faults.lossy = member
    member.kill()
    for path in faults.chance.sample(files, max(int(share * len(files)), 1)):
        member.disks.flip_bit(path, faults.chance, bit)
    return lambda: member.start_soon(0)


def rot_of_the_metadata(faults: "Faults") -> Ending | None:
    """In a snapshot of it. The node is started again and again, until somebody puts the file right."""
    member = faults.pick_up()
    files = [] if member is None else member.disks.paths(lambda path: METADATA_LOG in path and path.endswith(".checkpoint"))
    if member is None or not files:
        return None
    member.kill()
    mend = member.disks.break_records(files[-1], faults.chance)
    member.start_soon(0)

    def end() -> None:
        if mend is not None:
            mend()
        member.start_soon(0)

    return end


def replace_disk(faults: "Faults") -> Ending | None:
    """By an empty one, which somebody has formatted."""
    member = faults.chance.choice(list(faults.cluster.members.values()))
    folders = member.disks.folders[member.config.is_controller :]  # the metadata is in the first
    if not folders:
        return None
    faults.lossy = member
    member.kill()
    member.disks.wipe(faults.chance.choice(folders))
    faults.cluster.format_again(member, faults.chance)
    return lambda: member.start_soon(0)


def is_replicated(path: str) -> bool:
    """The metadata is repaired by a person, with a copy of the folder."""
    return METADATA_LOG not in path


def scanned_below_recovery_points(node: Node) -> list[tuple[str, int]]:
    """The segments that a start would scan, of which a part is known to be synced; and up to where."""
    logs = [log for folder in node.partitions.folders for log in folder.logs.values()]
    return [(log.active.path(FileKind.LOG), log.recovery_point) for log in logs if log.active.base_offset < log.recovery_point]
