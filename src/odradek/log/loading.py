"""Opening a partition's folder: what a crash left half done is finished or undone, and what was not synced is looked at.

After a clean stop nothing is read but names and the ends of indexes. After any other, everything from the segment with the
recovery point on is scanned: length, CRC, offsets; the log is cut at the first batch that is not sound, whatever follows it,
and indexes and producer state are built again.

Invariants
 1. Below the recovery point nothing is cut. A log that is broken there is opened with its `damage`: it can be read up to it,
    and not written.
 2. A compaction that was interrupted is either as if it had never begun or as if it had finished.
 3. Opening twice gives the same log.
"""

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress

from odradek.log.checkpoint import CorruptFile
from odradek.log.config import LogConfig
from odradek.log.disk import Disk, DiskFull
from odradek.log.epochs import LEADER_EPOCHS, LeaderEpochs
from odradek.log.index import CorruptIndex
from odradek.log.log import Log
from odradek.log.names import FileKind, FileName, FileState, file_name, parse_file_name
from odradek.log.producer_state import ProducerState
from odradek.log.replay import note_batch
from odradek.log.segment import Damage, Segment
from odradek.wire.batch import BatchHeader
from odradek.wire.errors import ProtocolError


def open_log(
    disk: Disk,
    folder: str,
    config: LogConfig,
    *,
    now_ms: int,
    clean: bool,
    recovery_point: int = 0,
    start_offset: int = 0,
    clean_offset: int = 0,
    jitter: Callable[[int], int] = lambda _: 0,
    recovery_point_lowered: Callable[[], None] = lambda: None,
) -> Log:
    """The log in a folder, which may be empty. `clean` says that whoever wrote it last closed it; below `clean_offset` it has
    been compacted, and may have gaps between its segments."""
    files = _files(disk, folder)
    if any(name.state is not FileState.CURRENT for name in files):
        finish_compaction(disk, folder, config, files)
        files = _files(disk, folder)
    snapshots = [name.offset for name in files if name.kind is FileKind.SNAPSHOT]
    segments = find_segments(disk, folder, config, files, now_ms)
    epochs, epochs_lost = open_epochs(disk, f"{folder}/{LEADER_EPOCHS}")
    start_offset = max(start_offset, segments[0].base_offset)
    log = Log(
        disk,
        folder,
        config,
        segments,
        epochs,
        ProducerState(disk, folder, snapshots, expiration_ms=config.producer_id_expiration_ms),
        start_offset=start_offset,
        end_offset=start_offset,
        recovery_point=recovery_point,
        now_ms=now_ms,
        jitter=jitter,
        recovery_point_lowered=recovery_point_lowered,
    )
    log.producers.remove_stray_snapshots(log.bases)
    unsound = first_unsound(log, files, clean=clean)
    if unsound is None:
        log.recovery_point = log.end_offset
        log.is_settled = log.producers.latest_snapshot_offset == log.end_offset or not log.end_offset
        reload_producers(log, now_ms)
    else:
        recover(log, unsound, clean_offset, now_ms)
    if (epochs_lost or begin_late(log)) and log.end_offset > log.start_offset:
        rebuild_epochs(log)
    if log.end_offset < start_offset:  # the files with it are gone: nothing that is left may be shown
        log.reset_to(start_offset, now_ms)
    epochs.truncate_from_end(log.end_offset)
    epochs.truncate_from_start(log.start_offset)
    log.has_rolled = not all(segment.is_synced for segment in log.segments[:-1])
    log.active.release()
    return log


def find_segments(disk: Disk, folder: str, config: LogConfig, files: dict[FileName, int], now_ms: int) -> list[Segment]:
    """The segments that are there, at least one; indexes that belong to none are removed."""
    bases = {name.offset for name in files if name.kind is FileKind.LOG}
    segments = []
    for name, size in files.items():
        if name.kind is FileKind.LOG:
            segment = Segment(disk, folder, name.offset, config, size=size, created_ms=now_ms)
            if not all(FileName(name.offset, kind, FileState.CURRENT) in files for kind in (FileKind.INDEX, FileKind.TIME_INDEX)):
                segment.rebuild_indexes()
            segments.append(segment)
        elif name.kind is not FileKind.SNAPSHOT and name.offset not in bases:
            disk.remove(f"{folder}/{file_name(*name)}")
    return segments or [Segment(disk, folder, 0, config, created_ms=now_ms)]


def open_epochs(disk: Disk, path: str) -> tuple[LeaderEpochs, bool]:
    """The leader epochs, and whether their file was lost or damaged and they have to be read from the batches again."""
    try:
        epochs = LeaderEpochs(disk, path)
        return epochs, not epochs.entries
    except CorruptFile:
        disk.remove(path)
        return LeaderEpochs(disk, path), True


def begin_late(log: Log) -> bool:
    """Whether the log begins before its epochs do: they were saved when records were deleted that a power loss has brought
    back."""
    return bool(log.epochs.entries) and log.epochs.entries[0].start_offset > log.start_offset


def rebuild_epochs(log: Log) -> None:
    """Reads them from the batches, up to where they can be read."""
    log.epochs.forget()
    log.is_settled = False
    with suppress(ProtocolError):
        for _, _, header in log.batches(log.start_offset):
            note_epoch(log.epochs, header)


def note_epoch(epochs: LeaderEpochs, header: BatchHeader) -> None:
    if header.leader_epoch > epochs.latest_epoch:
        epochs.assign(header.leader_epoch, header.base_offset)


def first_unsound(log: Log, files: dict[FileName, int], *, clean: bool) -> int | None:
    """The number of the first segment that has to be scanned: it may not have been synced, or it is damaged, or its transaction
    index is, which nothing else tells. None when there is no such segment; the end of the log is then known."""
    first = None if clean else max(bisect_right(log.bases, log.recovery_point) - 1, 0)
    for number, segment in enumerate(log.segments[:first]):
        if FileName(segment.base_offset, FileKind.TRANSACTION_INDEX, FileState.CURRENT) in files:
            try:
                segment.transactions.check()
            except CorruptIndex:
                return number
    if clean:
        try:
            log.end_offset = log.active.next_offset()
        except ProtocolError:  # damaged since
            return len(log.segments) - 1
    return first


def _files(disk: Disk, folder: str) -> dict[FileName, int]:
    parsed = {parse_file_name(name): size for name, size in disk.names(folder)}
    return {name: size for name, size in parsed.items() if name is not None}


def finish_compaction(disk: Disk, folder: str, config: LogConfig, files: dict[FileName, int]) -> None:
    """Finishes or undoes a compaction that was under way, and removes what was about to be removed.

    Files named .cleaned were still being written, and so was everything named .swap at or past them. Without them, what is
    named .swap is complete: the segments that it replaces go, and it takes their place.
    """
    incomplete = min((name.offset for name in files if name.state is FileState.CLEANED), default=None)
    for name in list(files):
        invalid_swap = name.state is FileState.SWAP and incomplete is not None and name.offset >= incomplete
        if name.state in (FileState.DELETED, FileState.CLEANED) or invalid_swap:
            disk.remove(f"{folder}/{file_name(*name)}")
            del files[name]
    _replace_swapped(disk, folder, config, files)
    for name in files:
        if name.state is FileState.SWAP:
            old = f"{folder}/{file_name(*name)}"
            disk.rename(old, f"{folder}/{file_name(name.offset, name.kind)}")
    disk.sync_folder(folder)


def _replace_swapped(disk: Disk, folder: str, config: LogConfig, files: dict[FileName, int]) -> None:
    """Removes the segments that complete .swap segments stand for."""
    for swapped, size in [entry for entry in files.items() if entry[0].state is FileState.SWAP]:
        if swapped.kind is not FileKind.LOG:
            continue
        segment = Segment(disk, folder, swapped.offset, config, size=size, state=FileState.SWAP)
        end = max([header.next_offset for _, header in segment.batches()], default=swapped.offset + 1)  # its index may be gone
        for name in list(files):
            if name.state is FileState.CURRENT and swapped.offset <= name.offset < end:
                disk.remove(f"{folder}/{file_name(*name)}")
                del files[name]


def recover(log: Log, first: int, clean_offset: int, now_ms: int) -> None:
    """Scans all from a segment on; cuts the log at the first unsound batch."""
    for segment in log.segments[:first]:
        segment.check_indexes()
    log.end_offset = log.bases[first]
    if not reload_producers(log, now_ms):
        log.end_offset = max(log.recovery_point, log.bases[-1])
        return
    for number in range(first, len(log.segments)):
        segment = log.segments[number]
        if log.recovery_point <= log.end_offset < segment.base_offset and segment.base_offset > clean_offset:
            _remove_from(log, number)  # what stood before it was not synced, and is lost: there must be no hole
            break
        log.producers.map_end_offset = segment.base_offset
        with suppress(DiskFull):
            log.producers.take_snapshot()
        problem = _recover_segment(log, segment)
        if problem is None:
            continue
        if log.end_offset < log.recovery_point:
            log.damage = Damage(log.end_offset, str(problem))
            log.end_offset = max(log.recovery_point, log.bases[-1])
            return
        _remove_from(log, number + 1)
        break
    log.recovery_point = min(log.recovery_point, log.end_offset)
    log.producers.map_end_offset = log.end_offset


def reload_producers(log: Log, now_ms: int) -> bool:
    """Reads what is known of producers, perhaps in segments that were synced long ago: whether these are sound."""
    try:
        log.reload_producers(log.end_offset, now_ms)
    except ProtocolError as error:
        log.damage = Damage(first_broken(log), str(error))
        log.producers.map_end_offset = log.end_offset
    return log.damage is None


def first_broken(log: Log) -> int:
    """The offset up to which all batches can be followed."""
    offset = log.start_offset
    with suppress(ProtocolError):
        for _, _, header in log.batches(log.bases[0]):
            offset = header.next_offset
    return offset


def _recover_segment(log: Log, segment: Segment) -> ProtocolError | None:
    """Scans one segment. What is unsound at or past the recovery point is cut off it."""
    size = 0
    problem: ProtocolError | None = None
    log.end_offset = max(log.end_offset, segment.base_offset)
    try:
        for header, batch in segment.recover():
            note_epoch(log.epochs, header)
            note_batch(log.producers, segment, header, batch)
            size += header.size
            log.end_offset = header.next_offset
    except ProtocolError as error:
        problem = error
        if log.end_offset >= log.recovery_point:
            segment.cut(size)
    segment.seal()
    sync_aborted(log, segment)
    if segment is not log.active:  # it did at the roll, which a power loss may have undone
        segment.give_back_room()
    return problem


def sync_aborted(log: Log, segment: Segment) -> None:
    """Below the recovery point nothing else tells of it, and when the segment is rolled there, the next start does not look."""
    segment.transactions.sync()
    if segment.transactions.has_new_name:
        log.disk.sync_folder(log.folder)
        segment.transactions.has_new_name = False


def _remove_from(log: Log, number: int) -> None:
    """Removes segments for good: were they back after a power loss, they would follow on what is written now."""
    for segment in log.segments[number:]:
        segment.remove()
    log.producers.remove_snapshots_after(log.end_offset)
    log.disk.sync_folder(log.folder)
    del log.segments[number:], log.bases[number:]
