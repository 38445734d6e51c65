"""What a task of a read does: reads its range, and makes rows of it. Records that are not in their format are dealt with as
`badRecords` says.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from odradek.spark import clients, dead_letters
from odradek.spark.columns import Columns, Refuse
from odradek.spark.options import EARLIEST, LATEST, LIVE, ReadOptions
from odradek.spark.positions import Positions
from odradek.spark.ranges import Range

if TYPE_CHECKING:
    import pyarrow as pa


class BadRecord(ValueError):
    """A key or value that is not in its format."""


class RangePartition(InputPartition):
    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)


def read_rows(options: ReadOptions, columns: Columns, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
    wanted: Range | None = partition.value
    if wanted is None:  # Spark's own, where there is nothing to read
        return
    from odradek.spark.range_reader import read

    if wanted.end == LIVE:
        wanted = as_it_is(options, wanted)
    yield from columns.made(read(options, wanted, columns.wanted), refuser(options))


def as_it_is(options: ReadOptions, wanted: Range) -> Range:
    """The range up to where the partition ends now."""
    positions, place = Positions(options), wanted.place
    end = positions.at([place], LATEST)[place]
    start = positions.at([place], EARLIEST)[place] if wanted.start == EARLIEST else wanted.start
    return Range(place, min(start, end), end)


def refuser(options: ReadOptions) -> Refuse:
    match options.bad_records:
        case "fail":
            return fail
        case "drop" | "only":
            return lambda _, __: None
    return lambda batch, errors: bury(options, batch, errors)


def fail(batch: "pa.RecordBatch", errors: dict[int, str]) -> None:
    row = min(errors)
    topic, partition, offset = (batch.column(name)[row].as_py() for name in ("topic", "partition", "offset"))
    raise BadRecord(
        f"{topic}-{partition} offset {offset}: {errors[row]}. badRecords=drop leaves such records out, badRecords=TOPIC sends "
        "them there"
    )


def bury(options: ReadOptions, batch: "pa.RecordBatch", errors: dict[int, str]) -> None:
    """Sends them to the dead-letter topic: at least once, for a task may be done twice."""
    from odradek.spark.producing import producer

    with producer(options.properties) as found:

        async def send() -> None:
            await (await found.send_arrow(options.bad_records, dead_letters.table(batch, errors, "")))

        clients.run(send())
