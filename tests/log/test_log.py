"""Appending to a log and reading from it, rule by rule: what is taken, what is refused and leaves no trace, what is found."""

from collections.abc import Callable

import pytest

from odradek.log.log import Appended, Log, Origin
from odradek.log.lookup import aborted, aborted_between
from odradek.log.names import FileKind
from odradek.log.segment import Slice
from odradek.wire.batch import CONTROL, MAGIC_POSITION, TRANSACTIONAL, CorruptBatch, InvalidBatch, _write_crc, read_header
from odradek.wire.compression import Codec
from odradek.wire.control import ControlType, control_key
from odradek.wire.errors import ErrorCode, ProtocolError, Refused
from odradek.wire.records import Record, build
from tests.log.disk import SimDisk, SimFile
from tests.log.model import batches_of
from tests.log.partition import (
    NOW_MS,
    SMALL,
    add,
    batch,
    end,
    files,
    fill,
    indexed,
    known,
    marker,
    new_log,
    opened,
    produced,
    sent,
    sim,
    written,
)

# -- appending as the leader


def test_a_batch_gets_its_offsets_and_epoch_in_place_and_keeps_every_other_byte() -> None:
    log = new_log()
    add(log, batch(3), epoch=1)
    data = batch(2, codec=Codec.GZIP)
    before = bytes(data)
    assert add(log, data, epoch=4) == Appended(3, 4)
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (3, 4)
    assert data[8:12] + data[16:] == before[8:12] + before[16:]
    assert written(log).endswith(bytes(data))


def test_the_end_moves_by_the_records_and_every_epoch_is_known_from_its_first_offset() -> None:
    log = new_log()
    for count, epoch in ((2, 0), (1, 0), (4, 3)):
        add(log, batch(count), epoch=epoch)
    assert log.end_offset == 7
    assert [*log.epochs.entries] == [(0, 0), (3, 3)]


def with_attributes(data: bytearray, attributes: int) -> bytearray:
    data[21:23] = attributes.to_bytes(2, "big")
    _write_crc(data, 0, len(data))
    return data


def with_field(data: bytearray, position: int, value: bytes) -> bytearray:
    data[position : position + len(value)] = value
    _write_crc(data, 0, len(data))
    return data


def flipped(data: bytearray, position: int) -> bytearray:
    data[position] ^= 1
    return data


REFUSED: dict[str, tuple[Callable[[], bytearray], ErrorCode]] = {
    "over max.message.bytes": (lambda: batch(value=bytes(500)), ErrorCode.MESSAGE_TOO_LARGE),
    "nothing": (bytearray, ErrorCode.INVALID_RECORD),
    "two batches": (lambda: batch() + batch(), ErrorCode.INVALID_RECORD),
    "a wrong CRC": (lambda: flipped(batch(), 70), ErrorCode.CORRUPT_MESSAGE),
    "cut off": (lambda: batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
    "half a header": (lambda: batch()[:40], ErrorCode.CORRUPT_MESSAGE),
    "bytes behind it": (lambda: batch() + b"\0", ErrorCode.CORRUPT_MESSAGE),
    "an old format": (lambda: with_field(batch(), 16, b"\1"), ErrorCode.INVALID_RECORD),
    "a control batch": (lambda: with_attributes(batch(), CONTROL), ErrorCode.INVALID_RECORD),
    "a marker": (lambda: marker(commit=True), ErrorCode.INVALID_RECORD),
    "an unknown codec": (lambda: with_attributes(batch(), 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "an unknown attribute": (lambda: with_attributes(batch(), 0x80), ErrorCode.INVALID_RECORD),
    "a transaction of nobody": (lambda: with_attributes(batch(), TRANSACTIONAL), ErrorCode.INVALID_RECORD),
    "offsets of its own": (lambda: bytearray(sent(3)), ErrorCode.INVALID_RECORD),
    "a count that lies": (lambda: with_field(batch(2), 57, b"\0\0\0\3"), ErrorCode.INVALID_RECORD),
    "no sequence": (lambda: produced(-1), ErrorCode.INVALID_RECORD),
    "a gap in the sequence": (lambda: produced(9), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "an old epoch of a producer": (lambda: produced(0, producer_id=8, epoch=1), ErrorCode.INVALID_PRODUCER_EPOCH),
    "outside of its transaction": (lambda: produced(1, producer_id=9), ErrorCode.INVALID_TXN_STATE),
}


def code_of(error: Exception) -> ErrorCode:
    """What the sender is answered with."""
    if isinstance(error, Refused):
        return error.code
    assert isinstance(error, CorruptBatch | InvalidBatch)
    return error.error


def some_log() -> Log:
    """A log in which all kinds of things are known."""
    log = new_log(max_message_bytes=400)
    fill(log, 7)
    add(log, produced(0), epoch=1)
    add(log, produced(0, producer_id=8, epoch=2), epoch=1)
    add(log, produced(0, producer_id=9, transactional=True), epoch=2)
    return log


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_has_its_error_and_leaves_no_trace(what: str) -> None:
    log = some_log()
    before, indexes, names = known(log), indexed(log), files(log)
    steps = len(sim(log).steps)
    make, code = REFUSED[what]
    with pytest.raises((Refused, ProtocolError)) as refused:
        add(log, make(), epoch=5)
    assert code_of(refused.value) is code
    assert (known(log), indexed(log), files(log)) == (before, indexes, names)
    assert len(sim(log).steps) == steps
    assert add(log, batch(), epoch=5) == Appended(10, 10)


def test_more_than_a_segment_can_hold_is_refused_and_leaves_no_trace() -> None:
    log = new_log(segment_bytes=300)
    add(log, batch())
    before, names = known(log), files(log)
    with pytest.raises(Refused) as refused:
        add(log, batch(value=bytes(300)), epoch=5)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert (known(log), files(log)) == (before, names)


def test_the_quorum_may_append_more_than_max_message_bytes_and_several_batches() -> None:
    log = new_log(max_message_bytes=100)
    data = batch(value=bytes(150)) + batch(2)
    assert add(log, data, origin=Origin.RAFT) == Appended(0, 2)
    assert [found.base_offset for found in batches_of(written(log))] == [0, 1]


def test_a_coordinator_appends_data_and_ends_transactions() -> None:
    log = new_log()
    add(log, batch(2, producer_id=7, producer_epoch=0, transactional=True), origin=Origin.COORDINATOR)
    assert end(log, commit=False) == Appended(2, 2)
    assert [*log.producers.ongoing] == []
    assert [(found.first_offset, found.last_offset) for found in aborted_between(log, 0, 3)] == [(0, 2)]


# -- duplicates


def test_each_of_the_last_five_batches_of_a_producer_is_known_when_it_comes_again() -> None:
    log = new_log()
    for number in range(6):
        add(log, produced(number * 2, 2))
    before = known(log)
    for number in range(1, 6):
        assert add(log, produced(number * 2, 2))[:3] == (number * 2, number * 2 + 1, True)
    with pytest.raises(Refused) as refused:
        add(log, produced(0, 2))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert known(log) == before


@pytest.mark.parametrize("clean", [True, False])
def test_they_are_known_after_a_restart_too(clean: bool) -> None:
    log = new_log(segment_bytes=250)  # so that they lie in several segments
    for number in range(6):
        add(log, produced(number * 2, 2))
        add(log, produced(number, producer_id=8))
    if clean:
        log.close(NOW_MS)
    again = opened(sim(log).crash("kept"), log.config, clean=clean)
    for number in range(1, 6):
        assert add(again, produced(number * 2, 2))[:3] == (number * 3, number * 3 + 1, True)
    with pytest.raises(Refused):
        add(again, produced(0, 2))


def test_after_a_restart_a_producer_goes_on_where_it_was() -> None:
    log = new_log()
    add(log, produced(0, 3))
    log.close(NOW_MS)
    again = opened(sim(log), log.config, clean=True)
    with pytest.raises(Refused):
        add(again, produced(4))
    assert add(again, produced(3)) == Appended(3, 3)


def test_a_marker_between_them_does_not_hide_older_batches_after_a_restart() -> None:
    log = new_log()
    for number in range(4):
        add(log, produced(number, transactional=True))
        end(log, commit=True)
    log.close(NOW_MS)
    again = opened(sim(log), log.config, clean=True)
    assert add(again, produced(0, transactional=True))[:3] == (0, 0, True)


@pytest.mark.parametrize(("version", "is_written"), [(1, True), (2, False)])
def test_an_end_of_version_2_that_comes_again_is_not_written_again(version: int, is_written: bool) -> None:
    log, epoch = new_log(), version // 2  # the next one, since version 2
    add(log, produced(0, transactional=True))
    first, again = (
        log.append(
            marker(commit=True, epoch=epoch),
            leader_epoch=0,
            now_ms=NOW_MS,
            origin=Origin.COORDINATOR,
            transaction_version=version,
        )
        for _ in range(2)
    )
    assert (first.is_duplicate, again.is_duplicate) == (False, not is_written)
    assert log.end_offset == 2 + is_written
    assert again.last_offset == log.end_offset - 1, "which has to be committed before it counts"


def test_a_producer_whose_epoch_was_raised_after_a_restart_is_refused_as_any_other() -> None:
    log = new_log()
    add(log, produced(0, transactional=True))
    log.close(NOW_MS)
    again = opened(sim(log), log.config, clean=True)
    raised = marker(commit=True, epoch=1)
    again.append(raised, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR, transaction_version=2)
    with pytest.raises(Refused) as refused:
        add(again, produced(5, epoch=1))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# -- appending as a follower


def test_what_the_leader_sent_is_appended_unchanged() -> None:
    log = new_log()
    data = sent(0, 2, epoch=3) + sent(2, epoch=3, codec=Codec.LZ4) + sent(3, epoch=5)
    assert log.append_as_follower(data, now_ms=NOW_MS) == Appended(0, 3)
    assert written(log) == data
    assert [*log.epochs.entries] == [(3, 0), (5, 3)]


def test_what_a_segment_cannot_hold_is_left_for_the_next_fetch_unless_it_is_one_batch() -> None:
    batches = [sent(0), sent(1), sent(2), sent(3, 20), sent(23)]
    log = new_log(segment_bytes=2 * len(batches[0]) + 1)
    data, taken = b"".join(batches), 0
    while log.append_as_follower(data[taken:], now_ms=NOW_MS):
        taken = sum(segment.size for segment in log.segments)
    assert written(log) == data
    assert log.bases == [0, 2, 3, 23]


def test_a_follower_takes_gaps_and_keeps_them() -> None:
    log = new_log()
    log.append_as_follower(sent(0), now_ms=NOW_MS)
    assert log.append_as_follower(sent(10) + sent(20), now_ms=NOW_MS) == Appended(10, 20)
    assert log.end_offset == 21
    assert batches_of(log.read(5, 1000, 21).read())[0].base_offset == 10


@pytest.mark.parametrize("offset", [0, 4])
def test_a_follower_refuses_what_goes_back(offset: int) -> None:
    log = new_log()
    log.append_as_follower(sent(0, 5), now_ms=NOW_MS)
    before = known(log)
    for data in (sent(offset), sent(5) + sent(offset + 1)):
        with pytest.raises(Refused) as refused:
            log.append_as_follower(data, now_ms=NOW_MS)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert known(log) == before


def test_a_batch_that_is_cut_off_at_any_byte_is_left_for_the_next_fetch() -> None:
    whole, last = sent(0), sent(1)
    for kept in range(len(last)):
        log = new_log()
        assert log.append_as_follower(whole + last[:kept], now_ms=NOW_MS) == Appended(0, 0)
        assert written(log) == whole
        assert log.append_as_follower(last, now_ms=NOW_MS) == Appended(1, 1)
    assert new_log().append_as_follower(last[:50], now_ms=NOW_MS) is None


@pytest.mark.parametrize("byte", [16, 70])
def test_a_follower_takes_what_is_before_an_unsound_batch_so_that_it_asks_for_that_next(byte: int) -> None:
    log = new_log()
    unsound = bytes(flipped(bytearray(sent(1)), byte))
    assert log.append_as_follower(sent(0) + unsound + sent(2), now_ms=NOW_MS) == Appended(0, 0)
    with pytest.raises(ProtocolError) as refused:
        log.append_as_follower(unsound + sent(2), now_ms=NOW_MS)
    assert code_of(refused.value) is ErrorCode.CORRUPT_MESSAGE
    assert log.end_offset == 1
    assert written(log) == sent(0)


def test_who_reads_a_closed_segment_is_told_of_rot_in_it() -> None:
    log = new_log(segment_bytes=3 * len(batch()))
    for _ in range(5):
        add(log, batch())
    sim(log).flip_bit(log.segments[0].path(FileKind.LOG), 8 * (len(batch()) + 16) + 6)  # the magic of the second batch
    assert log.read(0, len(batch()), 5).read()
    with pytest.raises(Refused) as refused:
        log.read(1, 10_000, 5)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


UNREADABLE = {
    "no value": Record(0, NOW_MS, control_key(ControlType.ABORT), None),
    "no key": Record(0, NOW_MS, None, b"\0\0\0\0\0\1"),
    "no end of a transaction": Record(0, NOW_MS, control_key(ControlType.LEADER_CHANGE), b"\0\0\0\0\0\1"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_marker_that_nobody_can_read_is_refused_before_it_is_written(what: str) -> None:
    unreadable = build([UNREADABLE[what]], producer_id=7, producer_epoch=0, transactional=True, control=True)
    log = new_log()
    add(log, produced(0, transactional=True))
    before = known(log)
    with pytest.raises(ProtocolError):
        add(log, bytearray(unreadable), origin=Origin.COORDINATOR)
    unreadable[7] = 1  # the offset that it has at the leader
    with pytest.raises(ProtocolError):
        log.append_as_follower(unreadable, now_ms=NOW_MS)
    assert known(log) == before


# -- reading


def ten_batches() -> Log:
    """Ten batches of two records in three segments."""
    log = new_log(segment_bytes=400, index_interval_bytes=0)
    fill(log, 10, 2)
    assert len(log.segments) == 3
    return log


def bases(found: Slice) -> list[int]:
    return [read.base_offset for read in batches_of(found.read())]


@pytest.mark.parametrize("offset", range(20))
def test_a_read_begins_with_the_batch_that_holds_the_offset(offset: int) -> None:
    log = ten_batches()
    assert bases(log.read(offset, 10_000, 20)) == [*range(offset // 2 * 2, 20, 2)]


def test_a_read_gives_no_more_bytes_than_asked_for() -> None:
    log = ten_batches()
    everything = log.read(0, 10_000, 20).read()
    first = len(batch(2, value=b"value 0"))
    for bytes_max in range(first, len(everything) + 1):
        found = log.read(0, bytes_max, 20).read()
        assert everything.startswith(found)
        assert bytes_max - 2 * first < len(found) <= bytes_max


def test_the_first_batch_is_whole_whatever_its_size_unless_told_otherwise() -> None:
    log = ten_batches()
    for bytes_max in (0, 1, 60):
        assert bases(log.read(3, bytes_max, 20)) == [2]
        assert len(log.read(3, bytes_max, 20, at_least_one=False)) == 0


def test_a_batch_that_does_not_fit_is_not_passed_over_for_a_smaller_one_in_the_next_segment() -> None:
    log = new_log()
    fill(log, 1)
    add(log, batch(1, value=b"x" * 400))
    while len(log.segments) == 1:
        fill(log, 1)
    small = len(log.read(log.bases[1], 1, log.end_offset))
    assert len(log.read(1, small, log.end_offset, at_least_one=False)) == 0


@pytest.mark.parametrize("upper", range(0, 21, 2))
def test_nothing_at_or_past_the_upper_offset_is_read(upper: int) -> None:
    log = ten_batches()
    assert bases(log.read(0, 10_000, upper)) == [*range(0, upper, 2)]
    assert len(log.read(upper, 10_000, upper)) == 0


def test_several_segments_are_several_ranges_of_their_files() -> None:
    log = ten_batches()
    found = log.read(0, 10_000, 20)
    assert [part.file.path for part in found.ranges] == [segment.file.path for segment in log.segments]
    assert len(found) == log.size


@pytest.mark.parametrize("offset", [-1, 21])
def test_an_offset_that_the_log_does_not_have_is_out_of_range(offset: int) -> None:
    with pytest.raises(Refused) as refused:
        ten_batches().read(offset, 100, 20)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_offset_below_the_start_is_out_of_range_though_its_segment_is_there() -> None:
    log = ten_batches()
    log.move_high_watermark(20)
    log.move_start(3)
    with pytest.raises(Refused) as refused:
        log.read(2, 100, 20)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert bases(log.read(3, 10, 20)) == [2]


def test_a_range_is_readable_after_its_segment_was_deleted() -> None:
    log = ten_batches()
    found = log.read(0, 10_000, 20)
    expected = found.read()
    log.reset_to(50, NOW_MS)
    log.delete_due(NOW_MS + log.config.file_delete_delay_ms)
    assert [name for name in files(log) if name.endswith(".log")] == ["00000000000000000050.log"]
    assert found.read() == expected


class Reads(SimDisk):
    """Counts the reads of files."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        read = file.read

        def counted(position: int, length: int) -> bytes:
            self.count += 1
            return read(position, length)

        file.read = counted  # type: ignore[method-assign]
        return file


def test_a_reader_at_the_end_costs_no_read_of_the_disk() -> None:
    disk = Reads()
    log = opened(disk, SMALL)
    for number in range(30):
        add(log, batch(2))
        log.move_high_watermark(log.end_offset)
        found = log.read(number * 2, 10_000, log.high_watermark)
        assert found.size == len(batch(2))
        assert aborted(log, number * 2, found) == []
        assert len(log.read(log.end_offset, 10_000, log.high_watermark)) == 0
    assert disk.count == 0
    log.read(0, 100, log.high_watermark).read()
    assert disk.count > 0


# -- aborted transactions


def test_the_aborted_transactions_of_a_range_are_all_that_have_records_in_it() -> None:
    log = new_log(segment_bytes=400, index_interval_bytes=0)
    transactions = []
    for number in range(6):
        producer_id, commit = 10 + number % 3, number % 2 == 1
        first = add(log, produced(0, producer_id=producer_id, epoch=number, transactional=True)).first_offset
        fill(log, 2)
        ending = marker(commit=commit, producer_id=producer_id, epoch=number)
        last = add(log, ending, origin=Origin.COORDINATOR).first_offset
        transactions += [] if commit else [(first, last)]
    assert len(log.segments) > 3
    for offset in range(log.end_offset):
        for bytes_max in (1, 200, 300, 500, 5000):
            found = log.read(offset, bytes_max, log.end_offset)
            seen = batches_of_whole(found)
            needed = {first for first, last in transactions if first <= seen[-1] and last >= offset}
            told = {transaction.first_offset for transaction in aborted(log, offset, found)}
            assert needed <= told <= {first for first, _ in transactions}


def batches_of_whole(found: Slice) -> list[int]:
    """The last offsets of the batches in a read, also of one that is cut off."""
    data, position, last = found.read(), 0, []
    while position + 61 <= len(data):
        header = read_header(data, position)
        last.append(header.last_offset)
        position += header.size
    return last


# -- the last stable offset


def test_nothing_past_the_first_open_transaction_is_stable_until_its_marker_is_committed() -> None:
    log = new_log()
    add(log, batch())
    add(log, produced(0, transactional=True))
    add(log, batch())
    log.move_high_watermark(3)
    assert log.last_stable_offset == 1
    end(log, commit=True)
    assert log.last_stable_offset == 1
    log.move_high_watermark(4)
    assert log.last_stable_offset == 4


def test_what_is_broken_at_the_begin_of_a_segment_keeps_nothing_from_being_appended() -> None:
    """Only its timestamp is looked at, and only after a start."""
    disk = SimDisk()
    log = opened(disk)
    fill(log, 3)
    log.close(NOW_MS)
    disk.flip_bit(log.active.path(FileKind.LOG), 8 * MAGIC_POSITION)
    again = opened(disk, clean=True)
    assert add(again, batch()).first_offset == 3
    with pytest.raises(Refused, match="CORRUPT_MESSAGE"):
        again.read(0, 10_000, 4)
