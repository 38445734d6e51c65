"""The rules of disks, starts and clocks, and how to do without each.

What a disk does when it fails is kept by `RealDisk`; a simulated cluster has `SimDisk` in its place, which keeps the same. So a
switch of that rule is thrown in both.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from odradek.log import disk, flush, folder, loading, producer_snapshots, segment
from odradek.log.checkpoint import CLEAN_SHUTDOWN, write_clean_shutdown
from odradek.log.disk import Disk, DiskFailed, DiskFull, RealDisk, RealFile
from odradek.log.flush import Flush
from odradek.log.folder import LogFolder
from odradek.log.index import Index
from odradek.log.log import Log
from odradek.log.producer import CorruptSnapshot, Producer, decode_snapshot
from odradek.log.segment import Segment
from odradek.log.transaction_index import TransactionIndex
from odradek.node.machine import Machine
from odradek.node.node import Node
from odradek.node.partitions import Partitions
from odradek.node.reserve import Reserve
from odradek.node.writing import Writing
from odradek.wire.varint import Buffer
from tests.log.disk import SimDisk, SimFile
from tests.sim.machine import SimMachine
from tests.sim.mutants.mutant import Mutant, Patch

# -- a failed sync


def forgiving(failed: Any, error: OSError) -> DiskFailed:
    """As `fail` of a disk, that is trusted as before."""
    del failed
    return DiskFailed(*error.args)


def failed_disk(patch: Patch) -> None:
    """A disk that failed is asked again."""
    patch.setattr(RealDisk, "fail", forgiving)
    patch.setattr(SimDisk, "fail", forgiving)


def failed_sync(patch: Patch) -> None:
    """Besides, a sync that failed counts as one that did not."""
    failed_disk(patch)
    known = Flush.run

    def run(flushing: Flush) -> None:
        try:
            known(flushing)
        except DiskFailed:
            return

    patch.setattr(Flush, "run", run)


def no_clean_mark(patch: Patch) -> None:
    """A folder whose disk failed gets the mark all the same."""
    known = Node._folder_failed

    def folder_failed(node: Node, failed: LogFolder) -> None:
        failure, failed.disk.failure = failed.disk.failure, None
        with suppress(DiskFailed):
            write_clean_shutdown(failed.disk, f"{failed.path}/{CLEAN_SHUTDOWN}", node.session.broker_epoch)
        failed.disk.failure = failure
        known(node, failed)

    patch.setattr(Node, "_folder_failed", folder_failed)


# -- a start after a crash


def scan(patch: Patch) -> None:
    """Every start is taken for one after a clean stop."""
    known = loading.first_unsound
    patch.setattr(loading, "first_unsound", lambda log, files, *, clean: known(log, files, clean=clean or True))


def checksums(patch: Patch) -> None:
    patch.setattr(segment, "check", lambda *_: None)


def torn_tail(patch: Patch) -> None:
    """What is unsound is not cut off: the next batch follows on it."""

    def cut(cutting: Segment, size: int) -> None:
        cutting.size = size

    patch.setattr(Segment, "cut", cut)


def nothing_behind_a_cut(patch: Patch) -> None:
    """Segments behind one that was cut stay."""
    patch.setattr(loading, "_remove_from", lambda *_: None)


def nothing_cut_below_the_recovery_point(patch: Patch) -> None:
    known = loading.recover

    def recover(log: Log, first: int, clean_offset: int, now_ms: int) -> None:
        log.recovery_point = 0
        known(log, first, clean_offset, now_ms)

    patch.setattr(loading, "recover", recover)


def producers_after_a_crash(patch: Patch) -> None:
    patch.setattr(loading, "note_batch", lambda *_: None)


def rotten_snapshot_of_producers(patch: Patch) -> None:
    """One that cannot be read counts as one that knows nobody."""

    def decode(path: str, data: bytes) -> list[Producer]:
        with suppress(CorruptSnapshot):
            return decode_snapshot(path, data)
        return []

    patch.setattr(producer_snapshots, "decode_snapshot", decode)


def epochs_after_a_crash(patch: Patch) -> None:
    patch.setattr(loading, "note_epoch", lambda *_: None)


def indexes_after_a_crash(patch: Patch) -> None:
    """The indexes of segments that are not scanned are believed, and what cannot be is not built again."""
    patch.setattr(Segment, "check_indexes", lambda *_: None)
    patch.setattr(Index, "_check", lambda *_: None)
    patch.setattr(Segment, "rebuild_indexes", lambda *_: None)


def damaged_replica(patch: Patch) -> None:
    """A damaged log is led and followed as any other."""
    patch.setattr(Partitions, "_is_usable", lambda *_: True)
    patch.setattr(Partitions, "damaged", lambda *_: None)


# -- the order of things


def cut_is_synced(patch: Patch) -> None:
    patch.setattr(Log, "_sync_cut", lambda _: None)


def recovery_point_before_the_cut(patch: Patch) -> None:
    """The lower recovery point is on disk when the next checkpoint is."""

    def lower(log: Log, offset: int) -> None:
        log.cuts += 1
        log.recovery_point = min(log.recovery_point, offset)

    patch.setattr(Log, "_lower_recovery_point", lower)


def recovery_point_is_synced(patch: Patch) -> None:
    """A flush syncs nothing."""
    patch.setattr(Flush, "run", lambda _: None)


def aborted_are_synced(patch: Patch) -> None:
    """What was aborted is left to the system."""
    patch.setattr(TransactionIndex, "sync", lambda _: None)


def names_are_synced(patch: Patch) -> None:
    """A flush syncs files, and not their names."""
    known = Flush.run

    def run(flushing: Flush) -> None:
        flushing.new_names = False
        known(flushing)

    patch.setattr(Flush, "run", run)


REPLACING: Final = (disk, flush, folder)  # where replace_files is called


def replacing(patch: Patch, replace: Callable[[Disk, dict[str, bytes]], None]) -> None:
    for module in REPLACING:
        patch.setattr(module, "replace_files", replace)


def checkpoints_beside(patch: Patch) -> None:
    """Small files are written in their place."""

    def replace(on: Disk, contents: dict[str, bytes]) -> None:
        for path, content in contents.items():
            file = on.open(path, create=True)
            file.truncate(0)
            file.append([content])
            file.sync()

    replacing(patch, replace)


def replace_in_names_alone(patch: Patch, *, is_synced: bool) -> None:
    """Small files are renamed, and their folder is not synced."""

    def replace(on: Disk, contents: dict[str, bytes]) -> None:
        for path, content in contents.items():
            on.remove(path + ".tmp")
            file = on.open(path + ".tmp", create=True)
            file.append([content])
            if is_synced:
                file.sync()
            on.rename(path + ".tmp", path)

    replacing(patch, replace)


def checkpoints_synced(patch: Patch) -> None:
    replace_in_names_alone(patch, is_synced=False)


def names_of_checkpoints_are_synced(patch: Patch) -> None:
    replace_in_names_alone(patch, is_synced=True)


def corrupt_checkpoint(patch: Patch) -> None:
    """A checkpoint that cannot be read ends the start."""

    def offsets(found: LogFolder, name: str) -> Any:
        return folder.read_offsets(found.disk, found._file(name))  # type: ignore[attr-defined]

    patch.setattr(LogFolder, "_offsets", offsets)


# -- a full disk


def reserve(patch: Patch) -> None:
    """The metadata has no room of its own."""
    patch.setattr(Reserve, "give", lambda _: False)


def refused_when_full(patch: Patch) -> None:
    """A batch for which there is no room is acknowledged."""
    known = Log._write

    def write(log: Log, data: Any, batches: Any, now_ms: int) -> None:
        try:
            known(log, data, batches, now_ms)
        except DiskFull:
            return

    patch.setattr(Log, "_write", write)


def short_writes(patch: Patch) -> None:
    """What a full disk takes of a write counts as all of it."""
    append = SimFile.append

    def append_some(file: SimFile, buffers: Sequence[Buffer]) -> int:
        try:
            return append(file, buffers)
        except DiskFull:
            data = b"".join(buffers)
            start = append(file, [data[: file.disk.medium.volume(file.path).room]])
            file.size = start + len(data)
            return start

    def write(file: RealFile, buffers: Sequence[Buffer], position: int) -> None:
        os.pwritev(file.fd, buffers, position)
        file.size = position + sum(map(len, buffers))

    patch.setattr(SimFile, "append", append_some)
    patch.setattr(RealFile, "_write", write)


def reserve_again(patch: Patch) -> None:
    """What the metadata was given is not kept for it again."""
    known = Reserve.make
    patch.setattr(Reserve, "make", lambda kept: not kept.is_in_use and known(kept))


# -- clocks and slow disks


def monotonic_clock(patch: Patch) -> None:
    """Whatever waits goes by the wall clock."""
    patch.setattr(Machine, "boot_ms", lambda here: here.wall_ms())
    known, wall_ms = SimMachine.boot_ms, SimMachine.wall_ms
    patch.setattr(SimMachine, "boot_ms", lambda here: known(here) + here.clock.ahead_ms)
    patch.setattr(SimMachine, "wall_ms", lambda here: wall_ms(here) - here.clock.ahead_ms)


def slow_disk_on_threads(patch: Patch) -> None:
    """A folder that turned slow is written on the loop."""
    patch.setattr(Writing, "appended", lambda *_: None)


MUTANTS: Final = (
    Mutant("a disk that failed is not asked again", failed_disk, "failed syncs"),
    Mutant("a sync that failed did not happen", failed_sync, "failed syncs"),
    Mutant("a node whose disk failed leaves no mark of a clean stop", no_clean_mark, "failed syncs"),
    Mutant("an unclean start scans from the recovery point on", scan, "power"),
    Mutant("a scan looks at checksums", checksums, "power"),
    Mutant("what is unsound past the recovery point is cut off", torn_tail, "power"),
    Mutant("whatever follows on a cut goes too", nothing_behind_a_cut, "busy disks", "rolling"),
    Mutant("nothing is cut below the recovery point", nothing_cut_below_the_recovery_point, "rot"),
    Mutant("what is known of producers is built again", producers_after_a_crash, "processes"),
    Mutant("also where its snapshot cannot be read", rotten_snapshot_of_producers, "rot of files", "writers"),
    Mutant("leader epochs are built again", epochs_after_a_crash, "power"),
    Mutant("indexes are built again", indexes_after_a_crash, "rot of files"),
    Mutant("a damaged replica is neither led nor followed", damaged_replica, "rot"),
    Mutant("a cut log is synced before anything is appended", cut_is_synced, "links"),
    Mutant("a lower recovery point is on disk before the log is cut", recovery_point_before_the_cut, "parted", "flushing"),
    Mutant("what is below the recovery point is synced", recovery_point_is_synced, "power"),
    Mutant("so is which transactions were aborted there", aborted_are_synced, "power", "transactions"),
    Mutant("so are the names of the files", names_are_synced, "power"),
    Mutant("a checkpoint is written to a temporary file", checkpoints_beside, "power"),
    Mutant("a checkpoint is synced before it has its name", checkpoints_synced, "power"),
    Mutant("so are the names of checkpoints", names_of_checkpoints_are_synced, "parted", "flushing"),
    Mutant("a checkpoint that cannot be read says nothing", corrupt_checkpoint, "rot of files"),
    Mutant("the metadata has room when the disk is full", reserve, "full disks"),
    Mutant("it is kept for the metadata again when there is room", reserve_again, "full disks"),
    Mutant("a write that was cut short is none", short_writes, "full disks"),
    Mutant("what there is no room for is refused", refused_when_full, "full disks"),
    Mutant("whatever waits goes by a clock that nobody sets", monotonic_clock, "clocks"),
    Mutant("a slow disk does not hold up the loop", slow_disk_on_threads, "slow disks", "writers"),
)
