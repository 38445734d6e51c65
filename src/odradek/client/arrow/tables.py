"""What was fetched of several partitions as one Arrow table."""

from collections.abc import Sequence

import pyarrow as pa

from odradek.client.arrow.columns import COLUMNS, schema
from odradek.client.arrow.decode import decode
from odradek.client.errors import Corrupt
from odradek.client.records import Batches
from odradek.wire.errors import ProtocolError


def table_of(fetched: Sequence[Batches], columns: Sequence[str] | None, *, is_committed: bool) -> pa.Table:
    """CRCs were checked when it came. Corrupt, with the place, when the records are not what they should be all the same."""
    wanted = COLUMNS if columns is None else columns
    parts: list[pa.RecordBatch] = []
    for place, data, offset, next_offset, aborted in fetched:
        transactions = aborted if is_committed else None
        try:
            found = decode(
                data,
                *place,
                columns=wanted,
                fetch_offset=offset,
                end_offset=next_offset,
                aborted=transactions,
                check_crcs=False,
            )
        except ProtocolError as error:
            raise Corrupt(f"{place}: {error}", topic=place.topic, partition=place.partition, offset=offset) from error
        parts += found.batches
    return pa.Table.from_batches(parts, schema(wanted))
