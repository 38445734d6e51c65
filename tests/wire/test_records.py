"""The records of a batch: both ways with Apache Kafka's own classes, and every way in which they can be malformed."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire import varint
from odradek.wire.batch import HEADER_SIZE, BatchHeader, assemble, check, check_produced, read_header
from odradek.wire.compression import Codec
from odradek.wire.control import ControlType, control_key
from odradek.wire.errors import ProtocolError
from odradek.wire.records import (
    Record,
    build,
    build_payload,
    encode_record,
    payload,
    records,
    scan,
    with_timestamp_delta,
)
from tests.kafka.oracle import Oracle
from tests.wire.samples import batch_settings, produced, record_lists, to_json

DEFAULTS: dict[str, Any] = {
    "base_offset": 0,
    "last_offset": None,
    "leader_epoch": -1,
    "codec": Codec.NONE,
    "level": None,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
    "transactional": False,
    "control": False,
    "log_append_time": None,
    "delete_horizon_ms": None,
}


def read(batch: bytes | bytearray, position: int = 0) -> list[Record]:
    header = read_header(batch, position)
    check(batch, position, header)
    return list(records(batch, position, header))


def seen(given_records: list[Record], log_append_time: int | None) -> list[Record]:
    """The records as a reader sees them: the time of the append hides their own."""
    if log_append_time is None:
        return given_records
    return [Record(r.offset, log_append_time, r.key, r.value, r.headers) for r in given_records]


@given(record_lists(), batch_settings(), st.sampled_from(Codec), st.integers(0, 100))
@settings(max_examples=60)
def test_records_come_back(drawn: tuple[int, list[Record]], given_settings: dict[str, Any], codec: Codec, after: int) -> None:
    base_offset, given_records = drawn
    last_offset = given_records[-1].offset + after
    batch = build(given_records, base_offset=base_offset, last_offset=last_offset, codec=codec, **given_settings)
    assert read(b"-----" + batch + b"--", 5) == seen(given_records, given_settings["log_append_time"])
    assert read_header(batch).last_offset == last_offset


@given(record_lists(), batch_settings(), st.booleans(), st.one_of(st.none(), st.integers(0, 100)))
@settings(max_examples=80)
def test_uncompressed_batches_are_kafkas_byte_for_byte(
    oracle: Oracle, drawn: tuple[int, list[Record]], given_settings: dict[str, Any], control: bool, after: int | None
) -> None:
    base_offset, given_records = drawn
    if control:
        given_records = [Record(r.offset, r.timestamp, control_key(ControlType.COMMIT), b"v") for r in given_records]
    options = {**DEFAULTS, **given_settings, "base_offset": base_offset, "control": control}
    options["last_offset"] = None if after is None else given_records[-1].offset + after
    kafka = oracle.call("Batches.build", records=to_json(given_records), **options)
    assert build(given_records, **options).hex() == kafka


@pytest.mark.parametrize("codec", list(Codec)[1:])
@given(drawn=record_lists(), given_settings=batch_settings())
@settings(max_examples=20)
def test_compressed_batches_are_kafkas_but_for_the_compressor(
    oracle: Oracle, codec: Codec, drawn: tuple[int, list[Record]], given_settings: dict[str, Any]
) -> None:
    base_offset, given_records = drawn
    options = {**DEFAULTS, **given_settings, "base_offset": base_offset, "codec": codec}
    kafka = bytes.fromhex(oracle.call("Batches.build", records=to_json(given_records), **options))
    ours = build(given_records, **options)
    theirs_header, ours_header = read_header(kafka), read_header(ours)
    check(kafka, 0, theirs_header)
    assert bytes(payload(kafka, 0, theirs_header)) == bytes(payload(ours, 0, ours_header))
    assert theirs_header._replace(batch_length=0, crc=0) == ours_header._replace(batch_length=0, crc=0)
    assert read(kafka) == seen(given_records, given_settings["log_append_time"])


@pytest.mark.parametrize("codec", Codec)
@given(drawn=record_lists(), given_settings=batch_settings())
@settings(max_examples=20)
def test_kafka_reads_ours(oracle: Oracle, codec: Codec, drawn: tuple[int, list[Record]], given_settings: dict[str, Any]) -> None:
    base_offset, given_records = drawn
    batch = build(given_records, base_offset=base_offset, codec=codec, **given_settings)
    (kafka,) = oracle.call("Batches.read", hex=batch.hex())
    assert kafka["records"] == to_json(seen(given_records, given_settings["log_append_time"]))


@pytest.mark.parametrize("codec", Codec)
def test_big_batches_pass_both_ways(oracle: Oracle, codec: Codec) -> None:
    given_records = [
        Record(n, 1_700_000_000_000 + 7 * n, b"%d" % n, bytes(n % 251 for n in range(n, n + 300))) for n in range(2000)
    ]
    ours = build(given_records, codec=codec)
    kafka = oracle.call("Batches.build", records=to_json(given_records), **{**DEFAULTS, "codec": codec})
    assert read(bytes.fromhex(kafka)) == read(ours) == given_records
    (theirs,) = oracle.call("Batches.read", hex=ours.hex())
    assert theirs["records"] == to_json(given_records)


@given(record_lists(gapless=True), st.sampled_from(Codec))
@settings(max_examples=30)
def test_gapless_batches_from_zero_may_be_produced(drawn: tuple[int, list[Record]], codec: Codec) -> None:
    base_offset, given_records = drawn
    moved = [Record(r.offset - base_offset, r.timestamp, r.key, r.value, r.headers) for r in given_records]
    batch = build(moved, codec=codec)
    check_produced(batch, 0, read_header(batch))


@given(record_lists())
def test_scan_finds_what_records_reads(drawn: tuple[int, list[Record]]) -> None:
    base_offset, given_records = drawn
    batch = build(given_records, base_offset=base_offset)
    header = read_header(batch)
    data = bytes(payload(batch, 0, header))
    found, at = [], 0
    for start, end, offset, timestamp, key_start, key_end, value_start, value_end in scan(memoryview(data), header):
        assert start == at
        at = end
        key = None if key_end < 0 else data[key_start:key_end]
        value = None if value_end < 0 else data[value_start:value_end]
        found.append((base_offset + offset, header.base_timestamp + timestamp, key, value))
    assert at == len(data)
    assert found == [(r.offset, r.timestamp, r.key, r.value) for r in given_records]


def test_raw_records_can_be_kept_under_a_new_header() -> None:
    given_records = [Record(10 + n, 1000 + n, b"k", b"v%d" % n, (("h", None),)) for n in range(100)]
    batch = build(given_records, base_offset=10, codec=Codec.ZSTD, producer_id=1, producer_epoch=0, base_sequence=0)
    header = read_header(batch)
    data = bytes(payload(batch, 0, header))
    kept = [data[span[0] : span[1]] for span in scan(data, header) if span[2] % 3 == 0]
    compacted = assemble(header._replace(record_count=len(kept)), b"".join(kept))
    assert read(compacted) == given_records[::3]
    assert read_header(compacted).last_sequence == header.last_sequence


@given(record_lists(), st.integers(0, 1 << 42))
@settings(max_examples=30)
def test_a_delete_horizon_moves_the_timestamps_of_raw_records(drawn: tuple[int, list[Record]], horizon: int) -> None:
    base_offset, given_records = drawn
    header = read_header(batch := build(given_records, base_offset=base_offset))
    data = bytes(payload(batch, 0, header))
    shift = header.base_timestamp - horizon
    moved = b"".join(with_timestamp_delta(data, span[0], span[3] + shift) for span in scan(data, header))
    rebuilt = assemble(header._replace(attributes=0x40, base_timestamp=horizon), moved)
    assert rebuilt == build(given_records, base_offset=base_offset, delete_horizon_ms=horizon)
    assert read(rebuilt) == given_records


def test_bad_utf8_in_a_header_key_is_replaced_as_kafka_does(oracle: Oracle) -> None:
    good = build([Record(0, 1, None, b"", (("ab", b"x"),))])
    header = read_header(good)
    batch = assemble(header, bytes(good[HEADER_SIZE:]).replace(b"ab", b"\xffb"))
    (kafka,) = oracle.call("Batches.read", hex=batch.hex())
    assert kafka["records"] == to_json(read(batch))
    assert read(batch)[0].headers == (("\ufffdb", b"x"),)


ZIGZAG = varint.encode
SOUND = encode_record(0, 0, b"key", b"value", (("name", b"x"),))
PLAIN = encode_record(0, 0, b"", b"")
LONG = encode_record(0, 0, b"k" * 200, b"v" * 9000)


def record(*parts: bytes, size: int | None = None) -> bytes:
    body = b"".join(parts)
    return ZIGZAG(len(body) if size is None else size) + body


DELTAS = b"\x00\x00\x00"  # attributes, timestamp delta and offset delta of a first record
EMPTY = ZIGZAG(0)
HUGE = ZIGZAG((1 << 31) - 1)
OVER_LONG = b"\x80\x80\x80\x80\x80\x00"

MALFORMED = {
    "no bytes": (b"", "records at byte 0: the bytes end before the 1 records"),
    "bytes after": (SOUND + b"\x00", f"records at byte {len(SOUND)}: 1 bytes after the 1 records"),
    "negative length": (record(DELTAS, b"\x01\x01\x00", size=-1), "record length at byte 0: a record of -1 bytes"),
    "negative length of the right size": (b"\x7f" + b"\x00" * 3 + b"\x01" + ZIGZAG(57) + b"v" * 57 + b"\x00", "of -64 bytes"),
    "negative length of two bytes": (record(DELTAS, b"\x01\x01\x00", size=-100), "record length at byte 0: .* -100"),
    "length too long": (record(DELTAS, b"\x01\x01\x00", size=7), "record length at byte 0: a record of 7 bytes where 6"),
    "length huge": (HUGE + DELTAS + b"\x01\x01\x00", "record length at byte 0"),
    "length too short": (record(DELTAS, b"\x01\x01\x00", size=5), "header count at byte 6: the bytes end inside"),
    "length over-long": (OVER_LONG + DELTAS + b"\x01\x01\x00", "record length at byte 0: a number of more than 5"),
    "bytes inside after": (record(DELTAS, b"\x01\x01\x00", b"\x00"), "record length at byte 0: .* 7 bytes, .* take 6"),
    "only attributes": (record(b"\x00"), "timestamp delta at byte 2: the bytes end"),
    "empty record": (b"\x00", "timestamp delta at byte 2"),
    "timestamp over-long": (record(b"\x00" + b"\x80" * 10 + b"\x00\x00\x01\x01\x00"), "timestamp delta .* more than 10"),
    "offset over-long": (record(b"\x00\x00" + OVER_LONG + b"\x01\x01\x00"), "offset delta at byte 3: .* more than 5"),
    "offset negative": (record(b"\x00\x00", ZIGZAG(-1), b"\x01\x01\x00"), "offset delta at byte 3: -1, after -1"),
    "offset beyond the last": (record(b"\x00\x00", ZIGZAG(1), b"\x01\x01\x00"), "offset delta at byte 3: 1, .* last is 0"),
    "offset far beyond": (record(b"\x00\x00", HUGE, b"\x01\x01\x00"), "offset delta at byte 3"),
    "key length -2": (record(DELTAS, ZIGZAG(-2), b"\x01\x00"), "key length at byte 4: -2"),
    "key length very negative": (record(DELTAS, ZIGZAG(-1000), b"\x01\x00"), "key length at byte 4: -1000"),
    "key too long": (record(DELTAS, ZIGZAG(10), b"\x01\x00"), "key length at byte 4: 10, where 2 bytes"),
    "key huge": (record(DELTAS, HUGE, b"\x01\x00"), "key length at byte 4"),
    "key over-long": (record(DELTAS, OVER_LONG, b"\x01\x00"), "key length at byte 4"),
    "value length -2": (record(DELTAS, EMPTY, ZIGZAG(-2), b"\x00"), "value length at byte 5: -2"),
    "value length very negative": (record(DELTAS, EMPTY, ZIGZAG(-3000), b"\x00"), "value length at byte 5: -3000"),
    "value too long": (record(DELTAS, EMPTY, ZIGZAG(5), b"abcd"), "value length at byte 5: 5, where 4 bytes"),
    "value huge": (record(DELTAS, EMPTY, HUGE, b"\x00"), "value length at byte 5"),
    "no header count": (record(DELTAS, EMPTY, EMPTY), "header count at byte 6"),
    "header count negative": (record(DELTAS, EMPTY, EMPTY, ZIGZAG(-1)), "header count at byte 6: -1 headers"),
    "header count huge": (record(DELTAS, EMPTY, EMPTY, HUGE), "header count at byte 6: 2147483647 headers in 0 bytes"),
    "header key null": (record(DELTAS, EMPTY, EMPTY, ZIGZAG(1), b"\x01\x01"), "header key length at byte 7: -1"),
    "header key too long": (record(DELTAS, EMPTY, EMPTY, ZIGZAG(1), ZIGZAG(9), b"a"), "header key length at byte 7: 9"),
    "header value -2": (record(DELTAS, EMPTY, EMPTY, ZIGZAG(1), EMPTY, ZIGZAG(-2)), "header value length at byte 8: -2"),
    "header value too long": (record(DELTAS, EMPTY, EMPTY, ZIGZAG(1), EMPTY, ZIGZAG(3)), "header value length at byte 8"),
    "header missing": (record(DELTAS, EMPTY, EMPTY, ZIGZAG(1), b"\x00"), "header value length at byte 8"),
}


def header_of(data: bytes, count: int = 1, last_offset_delta: int = 0) -> BatchHeader:
    return read_header(produced(1))._replace(record_count=count, last_offset_delta=last_offset_delta)


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_malformed_record_names_field_and_byte(case: str, codec: Codec) -> None:
    data, reason = MALFORMED[case]
    batch = assemble(header_of(data)._replace(attributes=int(codec)), data)
    header = read_header(batch)
    check(batch, 0, header)
    with pytest.raises(ProtocolError, match=reason):
        list(records(batch, 0, header))
    with pytest.raises(ProtocolError, match=reason):
        list(scan(data, header))


@pytest.mark.parametrize("sound", [SOUND, PLAIN, LONG])
def test_sound_record_that_the_malformed_ones_are_made_of(sound: bytes) -> None:
    assert len(list(scan(sound, header_of(sound)))) == 1


def test_padded_varints_are_read_as_kafka_reads_them(oracle: Oracle) -> None:
    for key, value, expected in [
        (b"\x80\x00", b"\x82\x80\x00v", Record(0, 1000, b"", b"v")),
        (b"\x81\x00", b"\x81\x80\x00", Record(0, 1000, None, None)),
        (b"\x82\x80\x80\x00k", b"\x81\x80\x80\x80\x00", Record(0, 1000, b"k", None)),
    ]:
        data = record(b"\x00\x80\x00\x80\x80\x00", key, value, b"\x82\x00", b"\x80\x00", b"\x81\x00")
        batch = assemble(header_of(data), data)
        (kafka,) = oracle.call("Batches.read", hex=batch.hex())
        expected.headers = (("", None),)
        assert kafka["records"] == to_json(read(batch)) == to_json([expected])


def test_offsets_must_grow() -> None:
    data = encode_record(0, 0, None, None) + encode_record(1, 0, None, None) + encode_record(1, 0, None, None)
    header = header_of(data, count=3, last_offset_delta=2)
    spans = scan(data, header)
    assert [next(spans)[2], next(spans)[2]] == [0, 1]
    with pytest.raises(ProtocolError, match="offset delta at byte 17: 1, after 1"):
        next(spans)


@pytest.mark.parametrize("count", [2, 4, (1 << 31) - 1])
def test_count_that_lies_is_found(count: int) -> None:
    data = build_payload([Record(n, 0, None, None) for n in range(3)], 0, 0)
    header = header_of(data, count=count, last_offset_delta=9)
    with pytest.raises(ProtocolError, match=f"the {count} records that the header says"):
        list(scan(data, header))


def test_timestamp_outside_int64_is_refused() -> None:
    data = encode_record(0, 5, None, None)
    batch = assemble(header_of(data)._replace(base_timestamp=(1 << 63) - 3), data)
    with pytest.raises(ProtocolError, match="timestamp delta at byte 0: 5 after 9223372036854775805"):
        read(batch)


def test_payload_of_a_cut_batch_is_refused() -> None:
    batch = produced()
    with pytest.raises(ProtocolError, match="of the batch's"):
        payload(batch[:-1], 0, read_header(batch))


def test_payload_without_codec_is_a_slice_of_the_view() -> None:
    batch = produced()
    view = payload(batch, 0, read_header(batch))
    assert isinstance(view, memoryview)
    assert view.obj is batch


@pytest.mark.parametrize("codec", Codec)
def test_size_max_holds_for_records(codec: Codec) -> None:
    batch = build([Record(0, 0, None, bytes(100_000))], codec=codec)
    header = read_header(batch)
    size = len(payload(batch, 0, header))
    assert len(list(records(batch, 0, header, size_max=size))) == 1
    with pytest.raises(ProtocolError, match=f"more than the {size - 1} bytes allowed"):
        list(records(batch, 0, header, size_max=size - 1))


def scan_plainly(data: bytes, header: BatchHeader) -> list[tuple[int, ...]] | None:
    """What `scan` should give, by the format's definition and one number at a time; None where something is wrong."""
    spans: list[tuple[int, ...]] = []
    start, previous = 0, -1

    def sized(position: int, end: int, size_min: int) -> tuple[int, int, int]:
        size, at = varint.decode(data[:end], position)
        if not size_min <= size <= end - at:
            raise ProtocolError("size", "", position)
        return at, at + size, max(at, at + size)

    try:
        for _ in range(header.record_count):
            body, end, _ = sized(start, len(data), 0)
            timestamp, at = varint.decode(data[:end], body + 1, varint.BYTES_MAX_INT64)
            offset, at = varint.decode(data[:end], at)
            key_start, key_end, at = sized(at, end, -1)
            value_start, value_end, at = sized(at, end, -1)
            count, at = varint.decode(data[:end], at)
            for _ in range(count):
                *_, at = sized(at, end, 0)
                *_, at = sized(at, end, -1)
            if count < 0 or at != end or not previous < offset <= header.last_offset_delta:
                return None
            key_end, value_end = (
                -1 if stop < begin else stop for begin, stop in ((key_start, key_end), (value_start, value_end))
            )
            spans.append((start, end, offset, timestamp, key_start, key_end, value_start, value_end))
            start, previous = end, offset
    except ProtocolError:
        return None
    return spans if start == len(data) else None


EDGES = st.sampled_from([0x00, 0x01, 0x02, 0x03, 0x7E, 0x7F, 0x80, 0x81, 0xFF])


@given(record_lists(), st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 2), st.lists(EDGES, max_size=2)), max_size=3))
@settings(max_examples=500)
def test_scan_takes_and_refuses_what_the_format_says(
    drawn: tuple[int, list[Record]], mutations: list[tuple[int, int, list[int]]]
) -> None:
    header = read_header(batch := build(drawn[1], base_offset=drawn[0]))
    data = bytearray(payload(batch, 0, header))
    for position, cut, put in mutations:
        position %= len(data)
        data[position : position + cut] = bytes(put)
        if not data:
            break
    expected = scan_plainly(bytes(data), header)
    if expected is None:
        with pytest.raises(ProtocolError):
            list(scan(data, header))
    else:
        assert list(scan(data, header)) == expected


@st.composite
def mutated(draw: st.DrawFn) -> bytearray:
    """A valid batch with bytes changed, cut or put in; often with a CRC that fits, so that the records are reached."""
    base_offset, given_records = draw(record_lists())
    batch = build(given_records, base_offset=base_offset, codec=draw(st.sampled_from(Codec)), **draw(batch_settings()))
    first = draw(st.sampled_from([0, 21, HEADER_SIZE]))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(min(first, len(batch) - 1), len(batch) - 1))
        end = position + draw(st.integers(0, 3))
        batch[position:end] = draw(st.binary(max_size=4))
        if not batch:
            return batch
    if first == HEADER_SIZE and len(batch) >= HEADER_SIZE:
        header = read_header(batch)
        payload_bytes = bytes(batch[HEADER_SIZE:])
        fitted = assemble(header._replace(attributes=header.attributes & ~7), payload_bytes)
        fitted[21:23] = header.attributes.to_bytes(2, "big")
        return fitted
    return batch


@given(mutated())
@settings(max_examples=400)
def test_mutated_batches_give_records_or_a_protocol_error(batch: bytearray) -> None:
    try:
        header = read_header(batch)
    except ProtocolError:
        return
    for judge in (check, check_produced):
        with suppress(ProtocolError):
            judge(batch, 0, header)
    try:
        assert len(list(records(batch, 0, header, size_max=1 << 20))) == header.record_count
        assert len(list(scan(payload(batch, 0, header), header))) == header.record_count
    except ProtocolError:
        pass
