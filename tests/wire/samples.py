"""Batches for the tests of the wire: strategies for records and settings, and the form in which the oracle takes them."""

from typing import Any

from hypothesis import strategies as st

from odradek.wire.records import Record, build

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
BYTES = st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 9000]))
HEADERS = st.lists(st.tuples(TEXT, BYTES), max_size=3).map(tuple)
TIMESTAMPS = st.one_of(st.just(-1), st.integers(0, 1 << 40), st.integers(1_700_000_000_000, 1_700_000_100_000))
GAPS = st.one_of(st.just(1), st.integers(1, 200), st.integers(1, 30_000))


@st.composite
def record_lists(draw: st.DrawFn, gapless: bool = False) -> tuple[int, list[Record]]:
    """A base offset, and records after it with growing offsets."""
    base_offset = draw(st.one_of(st.just(0), st.integers(0, 1 << 62)))
    offset = base_offset + (0 if gapless else draw(st.integers(0, 5)))
    records = []
    for _ in range(draw(st.integers(1, 12))):
        records.append(Record(offset, draw(TIMESTAMPS), draw(BYTES), draw(BYTES), draw(HEADERS)))
        offset += 1 if gapless else draw(GAPS)
    return base_offset, records


@st.composite
def batch_settings(draw: st.DrawFn) -> dict[str, Any]:
    """The settings of `build`, but for offsets and codec, all given."""
    producer = draw(st.booleans())
    transactional = producer and draw(st.booleans())
    return {
        "leader_epoch": draw(st.integers(-1, (1 << 31) - 1)),
        "producer_id": draw(st.integers(0, (1 << 63) - 1)) if producer else -1,
        "producer_epoch": draw(st.integers(0, (1 << 15) - 1)) if producer else -1,
        "base_sequence": draw(st.one_of(st.integers(0, (1 << 31) - 1), st.just((1 << 31) - 1))) if producer else -1,
        "transactional": transactional,
        "control": False,
        "log_append_time": draw(st.one_of(st.none(), st.integers(0, 1 << 42))),
        "delete_horizon_ms": draw(st.one_of(st.none(), st.integers(0, 1 << 42))),
    }


def produced(count: int = 3, **settings: Any) -> bytearray:
    """A batch as a producer sends it."""
    return build([Record(n, 1000 + n, b"key-%d" % n, b"value-%d" % n) for n in range(count)], **settings)


def to_json(records: list[Record]) -> list[dict[str, Any]]:
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _hex(record.key),
            "value": _hex(record.value),
            "headers": [[name, _hex(value)] for name, value in record.headers],
        }
        for record in records
    ]


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()
