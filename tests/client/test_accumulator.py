"""The producer's machine, without a network: lanes of batches that fail, come back, and go again, against a model of a broker.

The model keeps what a leader of one partition keeps of a producer: the epoch, and the sequence that comes next.
"""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.client.accumulator import UNSEEN_MAX, Accumulator
from odradek.client.batches import Batch, Compression, Delivery, payload, size_of
from odradek.client.errors import KafkaError, Refused, TimedOut, Unreachable
from odradek.client.lane import IN_FLIGHT_MAX, Fate, Lane
from odradek.client.records import TopicPartition
from odradek.wire.batch import SEQUENCE_MASK, read_header
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode
from odradek.wire.records import records

PLACE = TopicPartition("t", 0)
DELIVERY_TIMEOUT_S = 1_000.0
REMEMBERED = 5
ROUNDS_MAX = 1_000
FATES = ["heard", "heard", "heard", "answer lost", "never heard", "refused", "leads no more", "too large"]


class Leader:
    """What a partition's leader does with the batches of one producer."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.epoch = -1
        self.next_sequence = 0
        self.last: list[tuple[int, int]] = []  # sequence and base offset

    def append(self, data: bytearray) -> int | ErrorCode:
        header = read_header(data)
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > self.epoch:
            if header.base_sequence and self.epoch >= 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.epoch, self.next_sequence, self.last = header.producer_epoch, header.base_sequence, []  # whatever is the first
        for sequence, offset in self.last:
            if sequence == header.base_sequence:
                return offset
        if header.base_sequence != self.next_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        offset = len(self.log)
        self.log += [record.value or b"" for record in records(data, 0, header)]
        self.last = [*self.last, (header.base_sequence, offset)][-REMEMBERED:]
        self.next_sequence = (header.base_sequence + header.record_count) & SEQUENCE_MASK
        return offset


class Sending(RuleBasedStateMachine):
    """One partition; answers may be lost in both directions, and batches refused, in any order that a network can have."""

    def __init__(self) -> None:
        super().__init__()
        self.accumulator = Accumulator(
            batch_size=200, buffer_memory=4_000, linger_s=0.0, delivery_timeout_s=DELIVERY_TIMEOUT_S, is_idempotent=True
        )
        self.lane = self.accumulator.lane(PLACE)
        self.leader = Leader()
        self.epoch = 0
        self.now_s = 0.0
        self.sent: list[tuple[bytes, Delivery]] = []
        self.answers: list[tuple[Batch, int | ErrorCode | None]] = []  # on their way back, in order; None: it was lost

    @initialize()
    def begin(self) -> None:
        self.lane.begin_epoch(7, 0)

    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % len(self.sent)
            entry = (None, value, 0, ())
            size = size_of(entry)
            if self.accumulator.has_room(size):
                delivery, _ = self.accumulator.append(self.lane, entry, size, self.now_s)
                self.sent.append((value, delivery))

    def _take(self) -> Batch | None:
        lane = self.lane
        if not lane.may_send():
            return None
        if lane.needs_epoch:
            self.epoch += 1
            lane.begin_epoch(7, self.epoch)
        batch = lane.take()
        batch.stamp(*batch.identity, Compression(Codec.NONE), is_transactional=False)
        return batch

    @rule(
        fate=st.sampled_from(["heard", "heard", "heard", "answer lost", "never heard", "refused", "leads no more", "too large"])
    )
    def leave(self, fate: str) -> None:
        batch = self._take()
        if batch is None:
            return
        assert batch.data is not None
        match fate:
            case "heard":
                self.answers.append((batch, self.leader.append(batch.data)))
            case "answer lost":
                self.leader.append(batch.data)
                self.answers.append((batch, None))
            case "never heard":
                self.answers.append((batch, None))
            case "refused":
                self.answers.append((batch, ErrorCode.NOT_ENOUGH_REPLICAS))
            case "leads no more":
                self.leader.append(batch.data)
                self.answers.append((batch, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            case "too large":
                self.answers.append((batch, ErrorCode.MESSAGE_TOO_LARGE))

    @precondition(lambda self: self.answers)
    @rule()
    def come_back(self) -> None:
        batch, answer = self.answers.pop(0)
        lane, accumulator = self.lane, self.accumulator
        if answer is None:
            lane.retry(batch, Unreachable("lost"), is_uncertain=True, not_before_s=0)
        elif not isinstance(answer, ErrorCode):
            accumulator.succeed(lane, batch, answer, -1)
        else:
            assert answer is not ErrorCode.INVALID_PRODUCER_EPOCH, "nothing is sent in an epoch that is over"
            match lane.refused(batch, answer, may_renumber=True):
                case Fate.AGAIN:
                    lane.retry(batch, Refused(answer), is_uncertain=False, not_before_s=0)
                case Fate.IN_PARTS:
                    accumulator.split(lane, batch)
                case Fate.RENUMBERED:
                    lane.renumber(batch, Refused(answer))
                case Fate.GIVEN_UP:
                    accumulator.fail(lane, batch, Refused(answer))

    @rule()
    def start_again(self) -> None:
        """A leader that does knows the last batch of a producer alone, where retention has taken those before it."""
        self.leader.last = self.leader.last[-1:]

    @rule()
    def expire(self) -> None:
        self.now_s += DELIVERY_TIMEOUT_S / 3
        self.accumulator.fail_expired(self.now_s)

    def settle(self) -> None:
        """The network is well again: everything ends soon."""
        for _ in range(ROUNDS_MAX):
            while self.answers:
                self.come_back()
            if self.lane.is_idle:
                return
            self.leave("heard")
        raise AssertionError(f"a lane does not end: {[*self.lane.queue]} {self.lane.in_flight}")

    def teardown(self) -> None:
        self.settle()
        self.check_log()
        assert self.accumulator.held_bytes == 0
        assert not self.accumulator.active
        for value, delivery in self.sent:
            assert delivery.is_done
            if delivery_error(delivery) is None:
                assert self.leader.log[delivery.result().offset] == value, "a delivery says where the record is"
            elif isinstance(delivery_error(delivery), Refused) and not part_of(delivery).is_uncertain:
                assert value not in self.leader.log, "what was refused is not there"

    @invariant()
    def check_log(self) -> None:
        numbers = [int(value) for value in self.leader.log]
        assert numbers == sorted(set(numbers)), "in order, and each once"

    @invariant()
    def bounds_hold(self) -> None:
        lane = self.lane
        assert len(lane.in_flight) <= IN_FLIGHT_MAX
        assert self.accumulator.held_bytes <= 4_000 + 61 * (len(lane.queue) + len(lane.in_flight) + 1)
        assert self.accumulator.held_bytes == sum(batch.size for batch in [*lane.queue, *lane.in_flight])


def delivery_error(delivery: Delivery) -> KafkaError | None:
    try:
        delivery.result()
    except KafkaError as error:
        return error
    return None


def part_of(delivery: Delivery) -> Batch:
    """The batch that a record was in at last."""
    batch, index = delivery.batch, delivery.index
    while batch.parts is not None:
        first, second = batch.parts
        batch, index = (first, index) if index < len(first) else (second, index - len(first))
    return batch


TestSending = Sending.TestCase
TestSending.settings = settings(max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck))


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=9_000),
            st.integers(0, 2**41),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2).map(tuple),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([None, *Codec]),
)
def test_a_batch_reads_back_as_what_was_sent(entries: list[Any], codec: Codec | None) -> None:
    batch = Batch(PLACE, 0.0)
    batch.entries = entries
    batch.stamp(5, 1, 3, Compression(codec), is_transactional=True)
    assert batch.data is not None
    header = read_header(batch.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (5, 1, 3, True)
    assert [(each.key, each.value, each.timestamp, each.headers) for each in records(batch.data, 0, header)] == entries
    batch.stamp(6, 2, 0, Compression(codec), is_transactional=True)
    again = read_header(batch.data)
    assert (again.producer_id, again.producer_epoch, again.base_sequence) == (6, 2, 0)
    assert len(list(records(batch.data, 0, again))) == len(entries)
    assert sum(map(size_of, entries)) >= len(payload(entries, entries[0][2]))


def lane_of(*counts: int) -> tuple[Accumulator, Lane]:
    """With a batch of each count of records."""
    accumulator = Accumulator(batch_size=10_000, buffer_memory=10**6, linger_s=5.0, delivery_timeout_s=60, is_idempotent=True)
    lane = accumulator.lane(PLACE)
    lane.begin_epoch(1, 0)
    for count in counts:
        lane.open = None
        for _ in range(count):
            entry = (None, b"v", 0, ())
            accumulator.append(lane, entry, size_of(entry), 0.0)
    return accumulator, lane


def test_a_batch_lingers_unless_it_is_full_or_somebody_waits() -> None:
    accumulator, lane = lane_of(1)
    assert accumulator.due_s(lane) == 5.0
    accumulator.is_urgent = True
    assert accumulator.due_s(lane) == 0.0
    accumulator, lane = lane_of(1, 1)
    assert accumulator.due_s(lane) == 0.0, "the first of two takes no more"


def test_the_failure_of_a_record_that_nobody_waited_for_is_told_once() -> None:
    accumulator, lane = lane_of(2)
    batch = lane.take()
    accumulator.fail(lane, batch, Refused(ErrorCode.INVALID_RECORD))
    assert isinstance(accumulator.take_unseen(), Refused)
    assert accumulator.take_unseen() is None


def test_the_failure_of_a_record_that_somebody_has_heard_of_is_not_told_again() -> None:
    accumulator, lane = lane_of(1)
    batch = lane.take()
    accumulator.fail(lane, batch, Refused(ErrorCode.INVALID_RECORD))
    assert isinstance(delivery_error(Delivery(batch, 0)), Refused)
    assert accumulator.take_unseen() is None


def test_what_took_too_long_says_what_stood_in_the_way() -> None:
    accumulator, lane = lane_of(3)
    lane.last_error = Refused(ErrorCode.NOT_ENOUGH_REPLICAS, topic="t", partition=0)
    batch = lane.queue[0]
    accumulator.fail_expired(60.0)
    assert isinstance(batch.error, TimedOut)
    assert (batch.error.topic, batch.error.partition) == ("t", 0)
    assert "NOT_ENOUGH_REPLICAS" in str(batch.error)
    assert batch.error.__cause__ is lane.last_error


def test_what_a_leader_of_the_past_may_have_written_gets_no_other_number() -> None:
    """It says that it leads no more also of what it has appended, and another may have that."""
    _, lane = lane_of(1)
    batch = lane.take()
    assert lane.refused(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER, may_renumber=True) is Fate.AGAIN
    lane.retry(batch, Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), is_uncertain=False, not_before_s=0)
    assert lane.take() is batch
    assert lane.refused(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, may_renumber=True) is Fate.GIVEN_UP


def test_a_batch_of_a_new_epoch_that_comes_back_stays_before_those_that_were_sent_in_the_old_one() -> None:
    _, lane = lane_of(1, 1)
    lane.is_known = True
    first, second = lane.take(), lane.take()
    for batch in (first, second):
        lane.renumber(batch, Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    lane.begin_epoch(1, 1)
    assert lane.take() is first
    lane.retry(first, Unreachable("lost"), is_uncertain=True, not_before_s=0)
    assert [*lane.queue] == [first, second]


def test_who_has_heard_of_one_part_of_a_batch_has_not_heard_what_became_of_the_other() -> None:
    accumulator, lane = lane_of(2)
    whole = lane.take()
    accumulator.split(lane, whole)
    first, second = lane.queue
    for part in (first, second):
        assert lane.take() is part
        lane.is_known = True
    accumulator.succeed(lane, first, 7, -1)
    accumulator.fail(lane, second, Refused(ErrorCode.MESSAGE_TOO_LARGE))
    assert Delivery(whole, 0).result().offset == 7
    assert isinstance(accumulator.take_unseen(), Refused)


def test_who_has_heard_what_became_of_a_part_of_a_batch_is_not_told_again() -> None:
    accumulator, lane = lane_of(2)
    whole = lane.take()
    accumulator.split(lane, whole)
    for part in [*lane.queue]:
        accumulator.fail(lane, part, Refused(ErrorCode.MESSAGE_TOO_LARGE))
    assert isinstance(delivery_error(Delivery(whole, 1)), Refused)
    assert accumulator.take_unseen() is None


def test_a_failure_that_nobody_has_heard_of_is_told_however_many_were_heard_of_before() -> None:
    accumulator, lane = lane_of(*[1] * (UNSEEN_MAX + 1))
    batches = [*lane.queue]
    for batch in batches:
        accumulator.fail(lane, batch, Refused(ErrorCode.INVALID_RECORD))
        if batch is not batches[-1]:
            assert isinstance(delivery_error(Delivery(batch, 0)), Refused)
    assert isinstance(accumulator.take_unseen(), Refused)
