"""What is in the files of a log, row by row: for `odradek log dump`, and for whoever has to look at a folder by hand.

`dump` takes a file or a folder, of one partition or of many, and gives typed rows. It opens nothing for writing, takes no lock
and trusts nothing: it may look at the folder of a running node, of Apache Kafka, or at what a crash has left.

Invariants
 1. Each file begins with a `File` row; when it cannot be read to its end, a `Damage` row is its last.
 2. Memory does not grow with the size of a file, but for the small ones.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator

from odradek.log.disk import Disk
from odradek.log.dump import texts
from odradek.log.dump.damage import Damaged
from odradek.log.dump.indexes import index_rows, snapshot_rows, time_index_rows, transaction_index_rows
from odradek.log.dump.names import OF_A_SEGMENT, Kind, Known, holds_of, in_order, recognise
from odradek.log.dump.rows import Batch, Damage, File, Row
from odradek.log.dump.segment import Selection, segment_rows
from odradek.log.dump.values import Holds
from odradek.log.names import parse_folder_name

__all__ = ["Holds", "NotOfALog", "Selection", "dump"]

EVERYTHING = Selection()


class NotOfALog(ValueError):
    """A file or folder whose name says that it is none of a log's."""


def dump(disk: Disk, path: str, wanted: Selection = EVERYTHING, holds: Holds | None = None) -> Iterator[Row]:
    """The rows of a file, or of all files of a log in a folder. `holds` says how records are understood, where the name of the
    folder does not. OSError or NotOfALog when there is nothing to be shown."""
    try:
        found = disk.names(path)
    except NotADirectoryError:
        known = recognise(os.path.basename(path)) or (Known(Kind.SEGMENT) if holds else None)
        if known is None:
            raise NotOfALog(f"{path} has no name that a file of a log has") from None
        yield from _file(disk, path, known, wanted, holds)
        return
    files = in_order([name for name, size in found if size >= 0 and recognise(name)])
    folders = [name for name, size in found if size < 0 and parse_folder_name(name)]
    if not files and not folders:
        raise NotOfALog(f"{path} has nothing of a log in it")
    yield from _folder(disk, path, files, wanted, holds)
    for folder in [os.path.join(path, name) for name in folders]:
        try:
            inside = in_order([name for name, size in disk.names(folder) if size >= 0 and recognise(name)])
        except FileNotFoundError:
            continue  # a running node has removed it meanwhile
        except OSError as error:
            yield _unreadable(folder, error)
        else:
            yield from _folder(disk, folder, inside, wanted, holds)


def _unreadable(path: str, error: OSError) -> Damage:
    return Damage(file=path, position=0, damage=f"cannot be read: {error.strerror}")


def _folder(disk: Disk, folder: str, names: list[str], wanted: Selection, holds: Holds | None) -> Iterator[Row]:
    segments = [known for known in map(recognise, names) if known and known.kind is Kind.SEGMENT and not known.state]
    bases = sorted(known.base_offset or 0 for known in segments)
    for name in names:
        known = recognise(name)
        assert known is not None
        following = bisect_right(bases, known.base_offset or 0)
        if known.kind in OF_A_SEGMENT and following < len(bases) and bases[following] <= wanted.offset:
            continue  # all of it lies before what is wanted
        path = os.path.join(folder, name)
        try:
            yield from _file(disk, path, known, wanted, holds)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield _unreadable(path, error)


def _file(disk: Disk, path: str, known: Known, wanted: Selection, holds: Holds | None) -> Iterator[Row]:
    file = disk.open(path)
    of_batches = known.kind in (Kind.SEGMENT, Kind.METADATA_SNAPSHOT)
    held = (holds or holds_of(path, known.kind)) if of_batches else None
    yield File(file=path, kind=known.kind, size=file.size, base_offset=known.base_offset, state=known.state, holds=held)
    base_offset = known.base_offset or 0
    try:
        match known.kind:
            case Kind.SEGMENT:
                yield from segment_rows(file, held or Holds.RECORDS, base_offset, wanted)
            case Kind.METADATA_SNAPSHOT:
                rows = segment_rows(file, held or Holds.METADATA, 0, wanted)
                yield from _to_footer(rows, file.size) if known.is_numbered and not known.state else rows
            case Kind.INDEX:
                yield from index_rows(file, base_offset, wanted)
            case Kind.TIME_INDEX:
                yield from time_index_rows(file, base_offset, wanted)
            case Kind.TRANSACTION_INDEX:
                yield from transaction_index_rows(file, base_offset, wanted)
            case Kind.PRODUCER_SNAPSHOT:
                yield from snapshot_rows(file, wanted)
            case _:
                yield from _text(disk, path, known.kind, wanted)
    except Damaged as damaged:
        yield Damage(file=path, position=damaged.position, damage=damaged.reason)


def _text(disk: Disk, path: str, kind: Kind, wanted: Selection) -> Iterator[Row]:
    content = disk.read(path)
    match kind:
        case Kind.OFFSETS:
            return texts.offset_rows(path, content, wanted.limit)
        case Kind.LEADER_EPOCHS:
            return texts.leader_epoch_rows(path, content, wanted.limit)
        case Kind.PARTITION_METADATA:
            return texts.partition_metadata_rows(disk, path, content)
        case Kind.META_PROPERTIES:
            return texts.meta_properties_rows(disk, path, content)
        case _:
            return texts.json_rows(path, content, may_be_empty=kind is Kind.CLEAN_SHUTDOWN)


def _to_footer(rows: Iterator[Row], size: int) -> Iterator[Row]:
    """The batches of a metadata snapshot, of which the last one says that it is complete."""
    end, complete = 0, False
    for row in rows:
        if isinstance(row, Batch):
            end, complete = row.position + row.size, row.is_control
        yield row
    if end >= size and not complete:
        raise Damaged(size, "the snapshot ends without the footer that says that it is complete")
