"""Aborted transactions: hidden from readers of committed records as Kafka's consumer hides them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.arrow.decode import decode
from odradek.wire.batch import NO_PRODUCER_ID
from odradek.wire.control import ControlType, control_key, end_marker
from odradek.wire.errors import ProtocolError
from odradek.wire.records import Record, build

PRODUCERS = (0, 7, 8)


class Log:
    """Batches one after the other, and what a reader of committed records should see of them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.offset = 0
        self.open: dict[int, tuple[int, list[int]]] = {}  # first offset and offsets, by producer
        self.written: list[int] = []
        self.committed: list[int] = []
        self.aborted: list[tuple[int, int]] = []

    def write(self, count: int, producer_id: int = NO_PRODUCER_ID, transactional: bool = False) -> None:
        offsets = list(range(self.offset, self.offset + count))
        records = [Record(offset, 0, None, b"%d" % offset) for offset in offsets]
        ids: dict[str, Any] = (
            {} if producer_id == NO_PRODUCER_ID else {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        )
        self.data += build(records, base_offset=self.offset, transactional=transactional, **ids)
        if transactional:
            self.open.setdefault(producer_id, (self.offset, []))[1].extend(offsets)
        else:
            self.committed += offsets
        self.written += offsets
        self.offset += count

    def end(self, producer_id: int, commit: bool) -> None:
        first_offset, offsets = self.open.pop(producer_id, (None, []))
        if commit:
            self.committed += offsets
        elif first_offset is not None:
            self.aborted.append((producer_id, first_offset))
        self.data += end_marker(
            commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=self.offset
        )
        self.offset += 1

    def read(self, aborted: Any, start: int = 0) -> list[int]:
        decoded = decode(self.data, "t", 0, columns=["offset"], aborted=aborted, fetch_offset=start)
        assert decoded.next_offset == max(start, self.offset)
        return [offset for batch in decoded.batches for offset in batch.column("offset").to_pylist()]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 3), st.sampled_from((NO_PRODUCER_ID, *PRODUCERS)), st.booleans()),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
    ),
    max_size=20,
)


@given(STEPS, st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_committed_records_alone_are_read_whatever_happens_between_them(steps: list[Any], chance: Any) -> None:
    log = Log()
    for name, *arguments in steps:
        if name == "write":
            count, producer_id, transactional = arguments
            log.write(count, producer_id, transactional and producer_id != NO_PRODUCER_ID)
        else:
            log.end(*arguments)
    for producer_id in list(log.open):
        log.end(producer_id, commit=True)
    chance.shuffle(log.aborted)
    assert log.read(log.aborted) == sorted(log.committed)
    assert log.read(None) == log.written


def test_readers_of_everything_see_aborted_records() -> None:
    log = Log()
    log.write(3, 7, transactional=True)
    log.end(7, commit=False)
    assert log.read(None) == [0, 1, 2]
    assert log.read([(7, 0)]) == []


def test_a_transaction_ends_at_its_producers_abort_marker() -> None:
    log = Log()
    log.write(2, 7, transactional=True)
    log.write(1, 8, transactional=True)
    log.end(8, commit=True)
    log.write(1, 7, transactional=True)
    log.end(7, commit=False)
    log.write(2, 7, transactional=True)
    log.end(7, commit=True)
    assert log.aborted == [(7, 0)]
    assert log.read(log.aborted) == [2, 6, 7]
    assert log.read(log.aborted, start=5) == [6, 7]


def test_a_transaction_that_began_before_the_answer_is_hidden_from_its_first_batch() -> None:
    log = Log()
    log.offset = 100
    log.write(2, 7, transactional=True)
    log.end(7, commit=False)
    assert log.read([(7, 50)], start=100) == []


def test_what_is_not_transactional_is_not_hidden() -> None:
    log = Log()
    log.write(1, 7)
    log.write(1, 7, transactional=True)
    log.end(7, commit=False)
    assert log.read([(7, 0)]) == [0]


def test_an_unknown_control_record_ends_no_transaction() -> None:
    log = Log()
    log.write(1, 7, transactional=True)
    key = control_key(ControlType.LEADER_CHANGE)
    log.data += build([Record(1, 0, key, b"")], base_offset=1, producer_id=7, producer_epoch=0, transactional=True, control=True)
    log.offset += 1
    log.write(1, 7, transactional=True)
    log.end(7, commit=False)
    assert log.read([(7, 0)]) == []


def test_a_control_record_without_a_type_is_refused() -> None:
    log = Log()
    log.data += build([Record(0, 0, b"", b"")], producer_id=7, producer_epoch=0, transactional=True, control=True)
    with pytest.raises(ProtocolError, match="control record key"):
        decode(log.data, "t", 0, aborted=[(7, 0)])
