"""What a log refuses, remembers and forgets of producers, rule by rule. Random histories: test_producers_by_kafka.py."""

import pytest

from odradek.log.producer_state import CompletedTransaction, ProducerRefused, ProducerState
from odradek.wire.batch import BatchHeader, empty_batch, read_header, set_offset_and_epoch
from odradek.wire.control import end_marker
from odradek.wire.errors import ErrorCode
from odradek.wire.records import Record, build
from tests.log.disk import SimDisk

SEQUENCE_MAX = 2**31 - 1


class Partition:
    """A producer state, and the end of the log that it is of."""

    def __init__(self, *, verifies_transactions: bool = False) -> None:
        self.state = ProducerState(SimDisk(), "/disk", expiration_ms=1000, verifies_transactions=verifies_transactions)
        self.end = 0

    def batch(
        self,
        sequence: int,
        count: int = 1,
        *,
        producer_id: int = 7,
        epoch: int = 0,
        transactional: bool = False,
        timestamp: int = 0,
    ) -> BatchHeader:
        records = [Record(offset, timestamp, None, b"v") for offset in range(count)]
        data = build(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)
        return read_header(data)

    def append(self, header: BatchHeader) -> int:
        """Appends it if it may be; the offset of its first record."""
        duplicate = self.state.check(header)
        if duplicate is not None:
            return duplicate.first_offset
        placed = header._replace(base_offset=self.end)
        self.state.append(placed)
        self.end = self.state.map_end_offset = placed.next_offset
        return placed.base_offset

    def mark(
        self, *, commit: bool = True, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0
    ) -> CompletedTransaction | None:
        data = end_marker(
            commit=commit, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=coordinator_epoch, timestamp=50
        )
        self.state.check_marker(read_header(data), data, version)
        set_offset_and_epoch(data, 0, self.end, 0)
        completed = self.state.append_marker(read_header(data), data)
        if completed is not None:
            self.state.complete(completed)
        self.end = self.state.map_end_offset = self.end + 1
        return completed


def refused(code: ErrorCode) -> "pytest.RaisesExc[ProducerRefused]":
    return pytest.raises(ProducerRefused, match=f"^{code.name}: ")


def test_duplicate_of_the_last_five_batches_is_answered_with_its_offset() -> None:
    partition = Partition()
    offsets = [partition.append(partition.batch(sequence, 2)) for sequence in (0, 2, 4, 6, 8, 10)]
    assert offsets == [0, 2, 4, 6, 8, 10]
    for sequence in (2, 4, 6, 8, 10):
        assert partition.append(partition.batch(sequence, 2)) == sequence
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.append(partition.batch(0, 2))  # older than the five
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.append(partition.batch(10, 1))  # the same start, but not the same batch
    assert partition.end == 12


def test_gap_is_refused() -> None:
    partition = Partition()
    partition.append(partition.batch(0))
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.append(partition.batch(2))
    partition.append(partition.batch(1))


def test_unknown_producer_may_begin_anywhere() -> None:
    partition = Partition()
    assert partition.append(partition.batch(500)) == 0
    assert partition.append(partition.batch(501)) == 1


def test_sequence_wraps_after_the_largest() -> None:
    partition = Partition()
    partition.append(partition.batch(SEQUENCE_MAX - 1, 2))
    partition.append(partition.batch(0))
    partition.append(partition.batch(1, 2))
    partition = Partition()
    partition.append(partition.batch(SEQUENCE_MAX, 3))
    assert partition.append(partition.batch(SEQUENCE_MAX, 3)) == 0
    partition.append(partition.batch(2))


def test_new_epoch_begins_with_sequence_0() -> None:
    partition = Partition()
    partition.append(partition.batch(0, 5))
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.append(partition.batch(5, epoch=1))
    partition.append(partition.batch(0, 5, epoch=1))
    assert len(partition.state.producers[7].batches) == 1


def test_old_epoch_is_refused() -> None:
    partition = Partition()
    partition.append(partition.batch(0, epoch=3))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.append(partition.batch(0, epoch=2))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.append(partition.batch(0, epoch=2, transactional=True))


def test_batch_outside_of_the_open_transaction_is_refused() -> None:
    partition = Partition()
    partition.append(partition.batch(0, transactional=True))
    with refused(ErrorCode.INVALID_TXN_STATE):
        partition.append(partition.batch(1))
    with refused(ErrorCode.INVALID_TXN_STATE):
        partition.state.check_from_coordinator(partition.batch(-1))
    partition.state.check_from_coordinator(partition.batch(-1, transactional=True))
    partition.mark()
    partition.append(partition.batch(1))


def test_marker_of_an_old_coordinator_is_refused() -> None:
    partition = Partition()
    partition.mark(coordinator_epoch=5)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        partition.mark(coordinator_epoch=4)
    partition.mark(coordinator_epoch=5)


def test_marker_needs_the_epoch_or_since_version_2_a_later_one() -> None:
    for version, epoch in ((0, 3), (1, 3), (2, 4)):
        partition = Partition()
        partition.append(partition.batch(0, epoch=3, transactional=True))
        with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
            partition.mark(epoch=epoch - 1, version=version)
        assert partition.mark(epoch=epoch, version=version) == (7, 0, 1, False)
        assert partition.mark(epoch=epoch, version=version) is None  # a retry, after the answer was lost


def test_last_epoch_ends_its_transaction_although_it_cannot_be_raised() -> None:
    partition = Partition()
    partition.append(partition.batch(0, epoch=2**15 - 1, transactional=True))
    assert partition.mark(epoch=2**15 - 1, version=2) == (7, 0, 1, False)


def test_producer_goes_on_with_sequence_0_in_the_epoch_of_the_marker() -> None:
    partition = Partition()
    partition.append(partition.batch(0, 3, transactional=True))
    partition.mark(epoch=1, version=2)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.append(partition.batch(3, epoch=1, transactional=True))
    partition.append(partition.batch(0, epoch=1, transactional=True))


def test_first_open_transaction_holds_the_stable_offset_until_its_marker_is_replicated() -> None:
    partition = Partition()
    state = partition.state
    assert state.first_unstable_offset is None
    partition.append(partition.batch(0, transactional=True))
    partition.append(partition.batch(0, producer_id=8, transactional=True))
    assert state.first_unstable_offset == 0
    completed = CompletedTransaction(7, 0, 2, is_aborted=True)
    assert state.last_stable_offset(completed) == 1
    assert partition.mark(commit=False) == completed
    assert state.first_unstable_offset == 0
    state.on_high_watermark(2)
    assert state.first_unstable_offset == 0
    state.on_high_watermark(3)
    assert state.first_unstable_offset == 1
    assert state.last_stable_offset(CompletedTransaction(8, 1, 3, is_aborted=False)) == 4
    partition.mark(producer_id=8)
    state.on_high_watermark(4)
    assert state.first_unstable_offset is None


def test_completed_transaction_is_stable_when_the_log_begins_after_its_marker() -> None:
    partition = Partition()
    partition.append(partition.batch(0, transactional=True))
    partition.mark()
    partition.state.on_start_moved(1)
    assert partition.state.first_unstable_offset == 0
    partition.state.on_start_moved(2)
    assert partition.state.first_unstable_offset is None
    assert partition.state.is_empty is False
    partition.state.on_start_moved(9)
    assert partition.state.map_end_offset == 9


def test_marker_keeps_a_producer_known() -> None:
    partition = Partition()
    partition.append(partition.batch(0, timestamp=10, transactional=True))
    partition.mark()  # at 50
    partition.state.remove_expired(50)
    partition.state.remove_expired(1049)
    assert [*partition.state.producers] == [7]
    partition.state.remove_expired(1050)
    assert partition.state.producers == {}


def test_marker_that_compaction_emptied_says_nothing() -> None:
    partition = Partition()
    partition.append(partition.batch(0, transactional=True))
    marker = end_marker(commit=True, producer_id=7, producer_epoch=9, coordinator_epoch=0, timestamp=0, base_offset=1)
    data = empty_batch(read_header(marker))
    partition.state.check_marker(read_header(data), data)
    assert partition.state.append_marker(read_header(data), data) is None
    assert partition.state.producers[7].epoch == 0
    assert partition.state.first_unstable_offset == 0


def test_silent_producers_are_forgotten_but_not_in_a_transaction() -> None:
    partition = Partition()
    partition.append(partition.batch(0, timestamp=100))
    partition.append(partition.batch(0, producer_id=8, timestamp=100, transactional=True))
    partition.append(partition.batch(0, producer_id=9, timestamp=101))
    partition.state.remove_expired(100)
    partition.state.remove_expired(1099)
    assert [*partition.state.producers] == [7, 8, 9]
    partition.state.remove_expired(1100)
    assert [*partition.state.producers] == [8, 9]
    assert partition.append(partition.batch(77)) == 3


def test_who_sends_what_is_old_is_not_forgotten_between_a_batch_and_its_retry() -> None:
    partition, day = Partition(), 5_000
    sent = partition.batch(0, timestamp=0)
    partition.append(sent)
    partition.state.remove_expired(day)
    assert partition.state.check(sent) is not None
    partition.append(partition.batch(1, timestamp=1))
    partition.state.remove_expired(day + 999)  # from here on it is silent
    partition.state.remove_expired(day + 1998)
    assert [*partition.state.producers] == [7]
    partition.state.remove_expired(day + 1999)
    assert partition.state.producers == {}


def test_transaction_that_hangs_is_late() -> None:
    partition = Partition()
    assert not partition.state.has_late_transaction(10**9, 1000)
    partition.append(partition.batch(0, timestamp=100, transactional=True))
    assert not partition.state.has_late_transaction(100 + 1000 + 300_000, 1000)
    assert partition.state.has_late_transaction(101 + 1000 + 300_000, 1000)
    partition.mark()
    assert not partition.state.has_late_transaction(10**9, 1000)


def test_transaction_is_appended_only_when_its_coordinator_was_asked() -> None:
    partition = Partition(verifies_transactions=True)
    state = partition.state
    batch = partition.batch(0, transactional=True)
    with refused(ErrorCode.INVALID_TXN_STATE):
        state.check(batch)
    asked = state.verify(7, 0, 0, supports_epoch_bump=True, now_ms=0)
    assert asked is not None
    with refused(ErrorCode.INVALID_TXN_STATE):
        state.check(batch)
    assert state.check(batch, asked) is None
    with refused(ErrorCode.INVALID_TXN_STATE):
        state.check_from_coordinator(partition.batch(-1, transactional=True))
    state.append(batch)
    assert state.verifications == {}
    assert state.verify(7, 1, 0, supports_epoch_bump=True, now_ms=0) is None
    assert partition.append(partition.batch(1, transactional=True)) == 0


def test_batch_does_not_overtake_one_that_waits_to_be_verified() -> None:
    partition = Partition()
    state = partition.state
    partition.append(partition.batch(0))
    state.verify(7, 2, 0, supports_epoch_bump=False, now_ms=0)
    state.verify(7, 1, 0, supports_epoch_bump=False, now_ms=0)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        state.check(partition.batch(2, transactional=True))
    partition.append(partition.batch(1, transactional=True))
    partition.append(partition.batch(2, transactional=True))


def test_lowest_sequence_that_waits_is_appended_first() -> None:
    partition = Partition()
    for sequence in (5, 4, 6):
        partition.state.verify(7, sequence, 0, supports_epoch_bump=False, now_ms=0)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.append(partition.batch(5, transactional=True))  # which a producer that is not known might else send
    partition.append(partition.batch(4, transactional=True))
    partition.append(partition.batch(5, transactional=True))


def test_known_producer_that_bumps_goes_on_with_its_sequence() -> None:
    partition = Partition()
    partition.append(partition.batch(0))
    partition.state.verify(7, 1, 0, supports_epoch_bump=True, now_ms=0)
    partition.append(partition.batch(1, transactional=True))


def test_first_batch_of_a_bumping_producer_has_sequence_0() -> None:
    partition = Partition()
    partition.state.verify(7, 3, 0, supports_epoch_bump=True, now_ms=0)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.append(partition.batch(3, transactional=True))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.append(partition.batch(0, producer_id=8, epoch=1))
        partition.state.verify(8, 0, 0, supports_epoch_bump=True, now_ms=0)


def test_verification_lives_through_the_marker_of_its_own_epoch_and_expires() -> None:
    partition = Partition()
    state = partition.state
    partition.append(partition.batch(0, transactional=True))
    state.verify(7, 0, 1, supports_epoch_bump=True, now_ms=0)
    partition.mark(epoch=1, version=2)
    assert [*state.verifications] == [7]
    state.verify(7, 0, 2, supports_epoch_bump=True, now_ms=0)
    partition.mark(epoch=1, version=2)
    assert state.verifications == {}
    state.verify(7, 0, 1, supports_epoch_bump=True, now_ms=500)
    state.remove_expired(1499)
    assert [*state.verifications] == [7]
    state.remove_expired(1500)
    assert state.verifications == {}
