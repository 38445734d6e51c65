"""The header of a record batch: what is read, refused, and written in place."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire.batch import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    InvalidBatch,
    assemble,
    check,
    check_produced,
    empty_batch,
    headers,
    read_header,
    sequence_after,
    set_max_timestamp,
    set_offset_and_epoch,
)
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, ProtocolError
from odradek.wire.records import Record, build, payload, records
from tests.kafka.oracle import Oracle, OracleError
from tests.wire.samples import batch_settings, produced, record_lists


def changed(batch: bytearray, **fields: int) -> bytearray:
    """The batch with other header fields and a right CRC."""
    header = read_header(batch)
    attributes = fields.get("attributes", header.attributes)
    changed = assemble(header._replace(**{**fields, "attributes": 0}), payload(batch, 0, header))
    if attributes:
        changed[21:23] = attributes.to_bytes(2, "big", signed=True)
        set_max_timestamp(changed, 0, fields.get("max_timestamp", header.max_timestamp), attributes & 0x08 != 0)
    return changed


def test_header_gives_every_field() -> None:
    batch = produced(
        3, base_offset=0, leader_epoch=7, producer_id=1 << 40, producer_epoch=9, base_sequence=11, transactional=True
    )
    header = read_header(memoryview(b"..." + batch), 3)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=len(batch) - 12,
        leader_epoch=7,
        magic=2,
        crc=int.from_bytes(batch[17:21], "big"),
        attributes=0x10,
        last_offset_delta=2,
        base_timestamp=1000,
        max_timestamp=1002,
        producer_id=1 << 40,
        producer_epoch=9,
        base_sequence=11,
        record_count=3,
    )
    assert (header.size, header.last_offset, header.next_offset, header.last_sequence) == (len(batch), 2, 3, 13)
    assert header.is_transactional
    assert header.has_producer_id
    assert not header.is_control
    assert not header.is_log_append_time
    assert not header.has_delete_horizon


@given(record_lists(), batch_settings(), st.sampled_from(Codec))
@settings(max_examples=60)
def test_header_agrees_with_kafka(
    oracle: Oracle, drawn: tuple[int, list[Record]], given_settings: dict[str, Any], codec: Codec
) -> None:
    base_offset, drawn_records = drawn
    batch = build(drawn_records, base_offset=base_offset, codec=codec, **given_settings)
    header = read_header(batch)
    check(batch, 0, header)
    (kafka,) = oracle.call("Batches.read", hex=batch.hex())
    del kafka["records"]
    assert kafka == {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "next_offset": header.next_offset,
        "leader_epoch": header.leader_epoch,
        "size": header.size,
        "crc": header.crc,
        "codec": header.codec,
        "max_timestamp": header.max_timestamp,
        "log_append_time": header.is_log_append_time,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "record_count": header.record_count,
        "delete_horizon_ms": header.base_timestamp if header.has_delete_horizon else None,
    }


@given(st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 31) - 1))
@settings(max_examples=30)
def test_sequences_wrap_as_in_kafka(oracle: Oracle, sequence: int, count: int) -> None:
    assert sequence_after(sequence, count) == oracle.call("Batches.sequenceAfter", sequence=sequence, count=count)


def test_last_sequence_wraps_to_zero() -> None:
    last = (1 << 31) - 1
    assert read_header(produced(1, producer_id=1, producer_epoch=0, base_sequence=last)).last_sequence == last
    assert read_header(produced(2, producer_id=1, producer_epoch=0, base_sequence=last)).last_sequence == 0
    assert read_header(produced(4, producer_id=1, producer_epoch=0, base_sequence=last)).last_sequence == 2
    assert read_header(produced(4)).last_sequence == -1


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [30, 61, 90])
def test_old_message_formats_are_refused_by_name(magic: int, size: int) -> None:
    message = bytearray(size)
    message[16] = magic
    with pytest.raises(InvalidBatch, match=rf"message format v{magic} \(magic {magic}\) is no longer supported") as caught:
        read_header(message)
    assert caught.value.error is ErrorCode.INVALID_RECORD


def test_unknown_magic_is_refused() -> None:
    batch = produced()
    batch[16] = 3
    with pytest.raises(CorruptBatch, match="magic at byte 16: magic 3"):
        read_header(batch)


@pytest.mark.parametrize("size", [0, 1, 16, 17, 60])
def test_cut_header_is_refused(size: int) -> None:
    with pytest.raises(CorruptBatch, match=f"record batch at byte 0: {size} bytes"):
        read_header(produced()[:size])
    with pytest.raises(CorruptBatch, match="0 bytes"):
        read_header(produced(), 10_000)


@pytest.mark.parametrize("length", [48, 0, -1, -(1 << 31)])
def test_length_below_the_header_is_refused(length: int) -> None:
    batch = produced()
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match=f"batch length at byte 8: a length of {length}"):
        read_header(batch)


def test_headers_walks_all_batches_and_says_which_is_cut() -> None:
    first, second = produced(2), produced(5)
    set_offset_and_epoch(second, 0, 77, 1)
    both = bytes(first + second)
    assert [(at, header.record_count) for at, header in headers(both)] == [(0, 2), (len(first), 5)]
    assert list(headers(b"")) == []
    with pytest.raises(CorruptBatch, match=rf"byte {len(first)}: the batch with base offset 77 has {len(second)} bytes"):
        list(headers(both[:-1]))
    with pytest.raises(CorruptBatch, match=rf"byte {len(first)}: 20 bytes, where the header"):
        list(headers(both[: len(first) + 20]))


def test_wrong_crc_says_what_was_found() -> None:
    batch = produced()
    header = read_header(batch)
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch, match=f"CRC at byte 17: .* says {header.crc:#010x}, its bytes give 0x") as caught:
        check(batch, 0, header)
    assert caught.value.error is ErrorCode.CORRUPT_MESSAGE


@given(st.integers(21, len(produced()) - 1), st.integers(1, 255))
def test_every_byte_after_the_crc_counts(position: int, bits: int) -> None:
    batch = produced()
    batch[position] ^= bits
    with pytest.raises(CorruptBatch):
        check(batch, 0, read_header(batch))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"record_count": -1}, "record count at byte 57"),
        ({"last_offset_delta": -1}, "last offset delta at byte 23"),
        ({"base_offset": -1}, "base offset at byte 0"),
        ({"base_offset": (1 << 63) - 2}, "base offset at byte 0"),
    ],
)
def test_offsets_and_counts_that_no_log_holds_are_refused(fields: dict[str, int], reason: str) -> None:
    batch = changed(produced(), **fields)
    with pytest.raises(CorruptBatch, match=reason):
        check(batch, 0, read_header(batch))


def test_check_refuses_a_cut_batch() -> None:
    batch = produced()
    with pytest.raises(CorruptBatch, match=f"has {len(batch)} bytes, of which {len(batch) - 1} are there"):
        check(memoryview(batch)[:-1], 0, read_header(batch))


@pytest.mark.parametrize("codec", Codec)
def test_what_producers_send_is_taken(codec: Codec) -> None:
    for given_settings in ({}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}):
        batch = b"-" * 7 + produced(codec=codec, leader_epoch=3, **given_settings)
        check_produced(batch, 7, read_header(batch, 7))


def test_without_a_producer_id_epoch_and_sequence_do_not_matter() -> None:
    batch = changed(produced(), producer_epoch=0, base_sequence=0)  # as some clients send it
    check_produced(batch, 0, read_header(batch))


@pytest.mark.parametrize(
    ("fields", "reason", "error"),
    [
        ({"record_count": 2}, "record count at byte 57: 2 records, .* of 3", ErrorCode.INVALID_RECORD),
        ({"record_count": 0}, "record count at byte 57", ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 3}, "record count at byte 57", ErrorCode.INVALID_RECORD),
        ({"base_offset": 1}, "base offset at byte 0", ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, "client may not write control records", ErrorCode.INVALID_RECORD),
        ({"attributes": 0x05}, "no codec 5", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 0x07}, "no codec 7", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 0x40}, "0x0040 has bits", ErrorCode.INVALID_RECORD),
        ({"attributes": 0x80}, "0x0080 has bits", ErrorCode.INVALID_RECORD),
        ({"attributes": -0x8000}, "0x8000 has bits", ErrorCode.INVALID_RECORD),
        ({"attributes": 0x10}, "transactional batch without a producer id", ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "producer_epoch": 0}, "base sequence at byte 53", ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "base_sequence": 0}, "producer epoch at byte 51", ErrorCode.INVALID_RECORD),
    ],
)
def test_what_a_client_may_not_send_is_refused(fields: dict[str, int], reason: str, error: ErrorCode) -> None:
    batch = changed(produced(), **fields)
    check(batch, 0, read_header(batch))
    with pytest.raises(InvalidBatch, match=reason) as caught:
        check_produced(batch, 0, read_header(batch))
    assert caught.value.error is error


@given(record_lists(), batch_settings(), st.sampled_from(Codec), st.booleans())
@settings(max_examples=40)
def test_empty_batch_is_what_kafka_leaves(
    oracle: Oracle, drawn: tuple[int, list[Record]], given_settings: dict[str, Any], codec: Codec, control: bool
) -> None:
    given_settings["control"] = control
    batch = build(drawn[1], base_offset=drawn[0], codec=codec, **given_settings)
    empty = empty_batch(read_header(batch))
    assert empty.hex() == oracle.call("Batches.empty", hex=batch.hex())
    header = read_header(empty)
    check(empty, 0, header)
    assert len(empty) == HEADER_SIZE
    assert list(records(empty, 0, header)) == []


@given(
    st.sampled_from(Codec),
    st.integers(0, 1 << 60),
    st.integers(0, 1 << 30),
    st.integers(0, 1 << 60),
    st.booleans(),
)
@settings(max_examples=40)
def test_stamps_in_place_as_kafka_does(
    oracle: Oracle, codec: Codec, base_offset: int, leader_epoch: int, max_timestamp: int, log_append_time: bool
) -> None:
    batch = produced(codec=codec)
    kafka = oracle.call(
        "Batches.stamp",
        hex=batch.hex(),
        last_offset=base_offset + 2,
        leader_epoch=leader_epoch,
        max_timestamp=max_timestamp,
        log_append_time=log_append_time,
    )
    framed = bytearray(b"-----" + batch + b"--")
    set_offset_and_epoch(memoryview(framed), 5, base_offset, leader_epoch)
    check(framed, 5, read_header(framed, 5))
    set_max_timestamp(memoryview(framed), 5, max_timestamp, log_append_time)
    check(framed, 5, read_header(framed, 5))
    assert framed[5:-2].hex() == kafka
    assert framed[:5] + framed[-2:] == b"-" * 7


def test_kafka_too_refuses_a_changed_byte(oracle: Oracle) -> None:
    batch = produced()
    batch[-1] ^= 1
    with pytest.raises(OracleError, match="corrupt"):
        oracle.call("Batches.read", hex=batch.hex())


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_a_header_or_a_protocol_error(data: bytes) -> None:
    try:
        for position, header in headers(data):
            check(data, position, header)
    except ProtocolError:
        pass
