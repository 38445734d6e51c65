"""`odradek log`: looks at the files of a log without a node."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from odradek.cli.commands import complain, noun
from odradek.cli.screen import Json, stop_quietly

if TYPE_CHECKING:
    from odradek.log.dump.rows import Row


class As(StrEnum):
    """How records can be understood: the names of odradek.log.dump.Holds, without importing it."""

    RECORDS = "records"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"
    METADATA = "metadata"
    SHARE = "share"
    REMOTE = "remote"


app = noun()


@app.command()
def dump(
    paths: Annotated[
        list[str], Argument(metavar="PATH...", help="A file of a log, the folder of a partition, or a whole log folder.")
    ],
    json: Json = False,
    records: Annotated[bool, Option("--records", help="Show records, not only batches.")] = False,
    offset: Annotated[int, Option(metavar="FROM", min=0, help="Leave out what lies before this offset.")] = 0,
    limit: Annotated[int | None, Option(metavar="N", min=0, help="Show at most N rows of each file.")] = None,
    holds: Annotated[
        As | None, Option("--as", help="How to understand the records of files that lie elsewhere than in their topic's folder.")
    ] = None,
) -> None:
    """Show what is in the files of a log, Odradek's or Apache Kafka's.

    Segments, indexes, snapshots, checkpoints and the other files of a log folder are known by their names. The records of
    __cluster_metadata, __consumer_offsets, __transaction_state and __share_group_state are shown with their fields.
    A damaged file is shown up to the damage; the exit status is then 1.
    """
    from odradek.log.dump import Holds, NotOfALog, Selection
    from odradek.log.dump import dump as rows_of
    from odradek.log.dump.disk import ReadOnlyDisk

    wanted = Selection(offset, limit, records)
    held = Holds(holds) if holds else None
    disk, sound = ReadOnlyDisk(), True
    for path in paths:
        try:
            rows = rows_of(disk, path, wanted, held)
            sound = (print_json(rows) if json else print_tables(rows, records)) and sound
        except NotOfALog as error:
            sound = damaged(f"{error}; if it holds batches, say how to understand them: --as {'|'.join(As)}")
        except BrokenPipeError:
            stop_quietly()
        except OSError as error:
            sound = damaged(f"{path}: {error.strerror or error}; name a file or folder that you may read")
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        stop_quietly()
    if not sound:
        raise SystemExit(1)


def damaged(what: str) -> bool:
    sys.stdout.flush()
    complain(what)
    return False


def print_json(rows: "Iterator[Row]") -> bool:
    """One object a line; gives whether nothing was damaged."""
    import msgspec

    from odradek.log.dump.rows import Damage

    encode, write, sound = msgspec.json.Encoder().encode, sys.stdout.buffer.write, True
    for row in rows:
        sound = sound and not isinstance(row, Damage)
        write(encode(row) + b"\n")
    return sound


def print_tables(rows: "Iterator[Row]", records: bool) -> bool:
    """A table for each file, and one line on stderr for each damage; gives whether there was none."""
    from odradek.cli.table import Tables
    from odradek.log.dump.rows import Damage

    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    tables, sound = Tables(sys.stdout.write, records=records), True
    for row in rows:
        if isinstance(row, Damage):
            tables.flush()
            sound = damaged(f"{row.file}: damaged at byte {row.position}: {row.damage}")
        else:
            tables.add(row)
    tables.flush()
    return sound
