"""Records made of fetched bytes: the same that the wire's own reader makes, and errors for anything else."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.errors import Corrupt
from odradek.client.records import TopicPartition
from odradek.client.unpacking import Unpacking
from odradek.wire.batch import HEADER_SIZE, read_header
from odradek.wire.compression import Codec
from odradek.wire.control import end_marker
from odradek.wire.records import Record, build, records

PLACE = TopicPartition("t", 3)
payloads = st.one_of(st.none(), st.binary(max_size=20), st.integers(60, 9000).map(bytes))
headers = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=5))), max_size=2).map(tuple)
rows = st.lists(st.tuples(st.integers(-200, 20_000), payloads, payloads, headers), min_size=1, max_size=80)


@given(
    rows, st.sampled_from(list(Codec)), st.integers(0, 1 << 40), st.integers(0, 90), st.booleans(), st.sampled_from([None, 17])
)
def test_records_are_those_that_the_wire_reads(
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    codec: Codec,
    base: int,
    skipped: int,
    is_sparse: bool,
    appended: int | None,
) -> None:
    made = [
        Record(base + number * (2 if is_sparse else 1), 5000 + delta, key, value, some)
        for number, (delta, key, value, some) in enumerate(rows)
    ]
    batch = bytes(build(made, base_offset=base, codec=codec, log_append_time=appended, leader_epoch=4))
    header = read_header(batch)
    unpacking = Unpacking(PLACE, memoryview(batch), base + skipped)
    expected = [
        (PLACE.topic, PLACE.partition, each.offset, each.timestamp, each.key, each.value, each.headers)
        for each in records(batch, 0, header)
        if each.offset >= base + skipped
    ]
    found = unpacking.take(1 << 30)
    assert [
        (each.topic, each.partition, each.offset, each.timestamp_ms, each.key, each.value, each.headers) for each in found
    ] == expected
    assert unpacking.is_done
    assert unpacking.next_offset == max(base + skipped, header.next_offset)


@given(st.data())
def test_bytes_that_were_changed_are_an_error_with_the_place(data: st.DataObject) -> None:
    batch = bytearray(build([Record(number, 7, b"k", b"v" * 9) for number in range(5)], codec=data.draw(st.sampled_from([0, 3]))))
    at = data.draw(st.integers(21, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Corrupt) as raised:
        Unpacking(PLACE, memoryview(batch), 0).take(100)
    assert (raised.value.topic, raised.value.partition, raised.value.offset, raised.value.is_retriable) == ("t", 3, 0, True)


@given(st.data())
def test_without_crcs_malformed_bytes_are_records_or_an_error_and_nothing_else(data: st.DataObject) -> None:
    batch = bytearray(build([Record(number, 7, b"k", b"v" * 9, (("h", b"x"),)) for number in range(5)]))
    at = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    unpacking = Unpacking(PLACE, memoryview(batch), 0, checks_crcs=False)
    with suppress(Corrupt):
        unpacking.take(100)


def transaction(producer_id: int, base: int, count: int) -> bytes:
    made = [Record(base + number, 1, None, b"%d" % (base + number)) for number in range(count)]
    return bytes(build(made, base_offset=base, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True))


def marker(producer_id: int, offset: int, *, is_commit: bool) -> bytes:
    return bytes(
        end_marker(
            commit=is_commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=offset
        )
    )


LOG = b"".join(
    [
        transaction(1, 0, 3),
        transaction(2, 3, 2),
        marker(1, 5, is_commit=False),
        transaction(1, 6, 2),  # its next one, which is committed
        marker(2, 8, is_commit=True),
        marker(1, 9, is_commit=True),
        bytes(build([Record(10, 1, None, b"10")], base_offset=10)),
    ]
)


def test_an_aborted_transaction_is_left_out_from_its_first_offset_to_its_marker() -> None:
    unpacking = Unpacking(PLACE, memoryview(LOG), 0, [(1, 0)])
    assert [each.offset for each in unpacking.take(100)] == [3, 4, 6, 7, 10]
    assert unpacking.next_offset == 11


def test_what_is_left_says_which_transactions_are_still_to_be_left_out() -> None:
    unpacking = Unpacking(PLACE, memoryview(LOG), 0, [(1, 0)])
    assert [each.offset for each in unpacking.take(1)] == [3, 4]
    rest = unpacking.rest()
    assert (rest.offset, rest.next_offset, rest.aborted) == (5, 11, ((1, 0),))
    again = Unpacking(PLACE, rest.records, rest.offset, rest.aborted)
    assert [each.offset for each in again.take(100)] == [6, 7, 10]
    unpacking = Unpacking(PLACE, memoryview(LOG), 0, [(1, 0)])
    unpacking.take(3)
    assert unpacking.rest().aborted == ()


def test_what_is_taken_at_once_is_of_one_epoch() -> None:
    log = b"".join(bytes(build([Record(at, 1, None, b"")], base_offset=at, leader_epoch=at // 2)) for at in range(4))
    unpacking = Unpacking(PLACE, memoryview(log), 0)
    assert [each.offset for each in unpacking.take(10)] == [0, 1]
    assert (unpacking.last_epoch, unpacking.next_offset) == (0, 2)
    assert [each.offset for each in unpacking.take(10)] == [2, 3]
    assert unpacking.last_epoch == 1


def test_a_batch_that_is_cut_off_is_not_there() -> None:
    whole = bytes(build([Record(0, 1, None, b"0")]))
    unpacking = Unpacking(PLACE, memoryview(whole + whole[:-1]), 0)
    assert [each.offset for each in unpacking.take(10)] == [0]
    assert unpacking.is_done


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=6), st.integers(0, 80), st.integers(0, 80))
def test_what_is_read_up_to_an_offset_is_exact_to_the_record(sizes: list[tuple[int, int]], start: int, until: int) -> None:
    """Batches of so many records, after holes of so many offsets."""
    data, base, written = b"", 0, []
    for size, hole in sizes:
        base += hole
        made = [Record(base + number, 1, None, b"v") for number in range(size)]
        data += bytes(build(made, base_offset=base))
        written += [each.offset for each in made]
        base += size
    wanted = [offset for offset in written if start <= offset < until]
    until = max(until, start)
    unpacking = Unpacking(PLACE, memoryview(data), start, until=until)
    found = [record for _ in sizes for record in unpacking.take(1)]
    assert [each.offset for each in found] == wanted
    assert start <= unpacking.next_offset <= max(start, until)
    rest = Unpacking(PLACE, memoryview(data), start, until=until).rest()
    assert rest.next_offset == Unpacking(PLACE, memoryview(data), start, until=until).rest().next_offset
    assert rest.next_offset == (until if until < base else max(start, base))
