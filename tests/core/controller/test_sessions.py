"""Brokers that are heard of, that fall silent, that crash, and that stop."""

from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.controller.controller import Controller, ControllerConfig
from odradek.core.controller.decision import RECORDS_MAX, Decision
from odradek.core.metadata.features import supported_features
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import Partition
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    NoOpRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.core.controller.cluster import cluster, folder_of, registration, rules

TOPIC = b"a topic with 16b"
TIMEOUT_MS = 9_000
Answer = TypeVar("Answer")
CONFIG = ControllerConfig(node_id=1, cluster_id="c", topics=rules(), session_timeout_ms=TIMEOUT_MS)


class Active:
    """A controller whose decisions are appended at once; time stands still until it is moved."""

    def __init__(self, image: MetadataImage, end_offset: int = 100) -> None:
        image.advance(end_offset - 1, 1, 0)
        self.controller = Controller(image, CONFIG)
        self.end_offset = end_offset
        self.now_ms = 0

    def append(self, decision: Decision[Answer]) -> Answer:
        for batch in decision.batches():
            self.controller.next_offset = self.end_offset
            self.controller.replay(batch)
            self.end_offset += len(batch)
        self.controller.next_offset = self.end_offset
        return decision.response

    def register(self, broker: int, incarnation: bytes = b"n" * 16, previous_epoch: int = -1) -> int:
        image = self.controller.image
        request = BrokerRegistrationRequest(
            broker_id=broker,
            cluster_id="c",
            incarnation_id=incarnation,
            features=[
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_features(image.features).items()
            ],
            log_dirs=[folder_of(broker)],
            previous_broker_epoch=previous_epoch,
        )
        self.controller.next_offset = self.end_offset
        return self.append(self.controller.register_broker(request, self.now_ms)).broker_epoch

    def beat(self, broker: int, **wants: object) -> BrokerHeartbeatResponse:
        """A heartbeat of a broker that has read everything, unless it says otherwise."""
        known = self.controller.image.brokers.get(broker)
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=-1 if known is None else known.epoch,
            current_metadata_offset=self.end_offset - 1,
        )
        for name, value in wants.items():
            setattr(request, name, value)
        return self.append(self.controller.heartbeat(request, self.now_ms))

    def partition(self) -> Partition:
        return self.controller.image.topics["t"].partitions[0]

    def is_fenced(self, broker: int) -> bool:
        return self.controller.image.brokers[broker].fenced


def with_topic(image: MetadataImage, *replicas: int) -> MetadataImage:
    image.replay(TopicRecord(name="t", topic_id=TOPIC))
    image.replay(
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=list(replicas),
            isr=list(replicas),
            leader=replicas[0],
            directories=[folder_of(replica) for replica in replicas],
        )
    )
    return image


def test_a_broker_is_let_in_when_it_has_read_its_own_registration() -> None:
    active = Active(cluster([1]))
    assert active.register(2) == 100
    told = active.beat(2, current_metadata_offset=99)
    assert (told.is_caught_up, told.is_fenced, told.should_shut_down) == (False, True, False)
    told = active.beat(2, want_fence=True)
    assert (told.is_caught_up, told.is_fenced) == (True, True)
    told = active.beat(2)
    assert (told.is_caught_up, told.is_fenced) == (True, False)
    assert not active.is_fenced(2)


def test_a_broker_that_asks_for_it_is_fenced() -> None:
    active = Active(with_topic(cluster([1, 2]), 1, 2))
    assert active.beat(1, want_fence=True).is_fenced
    assert active.is_fenced(1)
    assert (active.partition().leader, active.partition().isr) == (2, (2,))


def test_who_is_not_registered_or_in_another_epoch_is_told_so() -> None:
    active = Active(cluster([1]))
    for broker, epoch in ((1, 7), (2, 0)):
        with pytest.raises(Refused) as refusal:
            active.beat(broker, broker_epoch=epoch)
        assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert active.controller.sessions.next_expiry_ms() == TIMEOUT_MS + 1  # that of 1, which was heard of by nobody


def test_a_silent_broker_is_fenced_when_its_session_ends_and_not_before() -> None:
    active = Active(with_topic(cluster([1, 2]), 1, 2))
    active.now_ms = 1_000
    active.beat(1)
    active.beat(2)
    active.now_ms = 1_000 + TIMEOUT_MS
    assert not active.append(active.controller.fence_stale(active.now_ms))
    active.beat(2)
    active.now_ms += 1
    assert active.controller.sessions.next_expiry_ms() == active.now_ms
    assert active.append(active.controller.fence_stale(active.now_ms))
    assert (active.is_fenced(1), active.is_fenced(2), active.partition().leader) == (True, False, 2)
    assert not active.append(active.controller.fence_stale(active.now_ms))


def test_two_that_fell_silent_are_fenced_one_after_the_other() -> None:
    active = Active(with_topic(cluster([1, 2, 3]), 1, 2, 3))
    active.now_ms = TIMEOUT_MS + 1
    active.beat(3)
    for _ in range(2):
        assert active.append(active.controller.fence_stale(active.now_ms))
    assert not active.append(active.controller.fence_stale(active.now_ms))
    assert (active.partition().leader, active.partition().isr) == (3, (3,))


def test_a_crash_that_was_seen_needs_no_time_out() -> None:
    active = Active(with_topic(cluster([1, 2]), 1, 2))
    active.append(active.controller.fence(1, 0))
    assert active.is_fenced(1)
    assert active.partition().leader == 2
    assert not active.controller.sessions.has_session(1, 0, 0)
    with pytest.raises(Refused) as refusal:
        active.controller.fence(2, 5)  # of an incarnation that is no more
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_that_was_fenced_comes_back_with_its_next_heartbeat() -> None:
    active = Active(cluster([1, 2]))
    active.append(active.controller.fence(1, 0))
    assert not active.beat(1).is_fenced
    assert active.controller.sessions.has_session(1, 0, TIMEOUT_MS)


def test_two_brokers_with_one_id_are_told_apart_by_their_sessions() -> None:
    active = Active(cluster([]))
    active.register(1)
    active.beat(1)
    with pytest.raises(Refused) as refusal:
        active.register(1, b"another incarna.")
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    active.now_ms = TIMEOUT_MS + 1
    assert active.register(1, b"another incarna.") > 100
    assert active.is_fenced(1)


def test_a_broker_that_stopped_can_come_back_at_once() -> None:
    active = Active(cluster([1, 2]))
    assert active.beat(1, want_shut_down=True).should_shut_down
    assert active.register(1, b"another incarna.", previous_epoch=0) > 100


def test_also_one_that_was_taken_for_dead_while_it_stopped() -> None:
    """Nobody listens there any more, and a new controller looks just then who is there."""
    active = Active(cluster([1, 2]))
    active.append(active.controller.fence(1, 0))
    assert active.beat(1, want_shut_down=True).should_shut_down
    assert active.register(1, b"another incarna.", previous_epoch=0) > 100


def test_a_new_controller_gives_unfenced_brokers_the_whole_time_out() -> None:
    controller = Controller(cluster([1], fenced=[2]), CONFIG, 50_000)
    assert controller.sessions.has_session(1, 0, 50_000 + TIMEOUT_MS)
    assert not controller.sessions.has_session(2, 0, 50_000)
    assert controller.sessions.expired(50_000 + TIMEOUT_MS) is None
    assert controller.sessions.expired(50_001 + TIMEOUT_MS) == (1, 0)


def test_a_broker_may_stop_when_all_others_know_who_leads_in_its_place() -> None:
    active = Active(with_topic(cluster([1, 2, 3]), 1, 2, 3))
    active.beat(2)
    active.beat(3)
    known = active.end_offset - 1
    told = active.beat(1, want_shut_down=True)
    assert (told.is_fenced, told.should_shut_down) == (False, False)
    assert active.controller.image.brokers[1].in_controlled_shutdown
    assert (active.partition().leader, active.partition().isr) == (2, (2, 3))
    active.beat(2)
    assert not active.beat(1, want_shut_down=True).should_shut_down
    active.beat(3, current_metadata_offset=known)
    assert not active.beat(1, want_shut_down=True).should_shut_down
    active.beat(3)
    told = active.beat(1, want_shut_down=True)
    assert (told.is_fenced, told.should_shut_down) == (True, True)
    assert active.is_fenced(1)


def test_a_broker_that_leads_nothing_or_is_fenced_may_stop_at_once() -> None:
    active = Active(with_topic(cluster([1, 2], fenced=[3]), 2))
    for broker in (1, 3):
        told = active.beat(broker, want_shut_down=True)
        assert (told.is_fenced, told.should_shut_down) == (True, True)
        assert active.is_fenced(broker)
    assert active.beat(2, want_shut_down=True, want_fence=True).should_shut_down


def test_a_controlled_shutdown_goes_on_under_a_new_controller() -> None:
    active = Active(with_topic(cluster([1, 2]), 1, 2))
    active.beat(1, want_shut_down=True)
    after = Active(active.controller.image.copy(), active.end_offset)
    assert not after.beat(1, want_shut_down=True).should_shut_down  # 2 has not been heard of yet
    after.beat(2)
    assert after.beat(1, want_shut_down=True).should_shut_down


def test_partitions_in_a_folder_that_failed_have_other_leaders() -> None:
    active = Active(with_topic(cluster([1, 2]), 1, 2))
    active.beat(1, offline_log_dirs=[folder_of(1), folder_of(9)])
    assert (active.partition().leader, active.partition().isr) == (2, (2,))
    assert not active.is_fenced(1)
    before = active.end_offset
    active.beat(2, offline_log_dirs=[folder_of(1)])  # which is none of its own
    assert active.end_offset == before


def test_a_broker_with_a_newly_failed_folder_is_let_in_with_its_next_heartbeat() -> None:
    other = b"other folder 16b"
    image = cluster([])
    record = registration(1, fenced=False)
    record.log_dirs.append(other)
    image.replay(record)
    active = Active(with_topic(image, 1))
    active.append(active.controller.fence_stale(TIMEOUT_MS + 1))
    assert active.beat(1, offline_log_dirs=[folder_of(1)]).is_fenced
    assert active.controller.image.brokers[1].log_dirs == (other,)
    assert not active.beat(1, offline_log_dirs=[folder_of(1)]).is_fenced


def test_cordoned_folders_are_noted_when_they_change() -> None:
    active = Active(cluster([1]))
    for cordoned, offset in (([folder_of(1)], 101), ([folder_of(1)], 101), (None, 101), ([], 102)):
        active.beat(1, cordoned_log_dirs=cordoned)
        assert active.end_offset == offset
    assert active.controller.image.brokers[1].cordoned_log_dirs == ()


def test_what_was_decided_ahead_of_the_commit_goes_with_the_controller() -> None:
    committed = with_topic(cluster([1, 2]), 1, 2)
    first = Active(committed.copy())
    first.append(first.controller.fence(1, 0))
    assert first.is_fenced(1)
    second = Active(committed.copy())
    assert not second.is_fenced(1)
    assert second.partition().leader == 1


@given(st.integers(0, 3 * RECORDS_MAX), st.booleans())
def test_a_decision_is_one_batch_or_several_that_a_log_takes(count: int, is_atomic: bool) -> None:
    decision = Decision([(NoOpRecord(), 0)] * count, None, is_atomic=is_atomic)
    batches = decision.batches()
    assert sum(map(len, batches)) == count
    assert all(batches)
    assert len(batches) <= 1 if is_atomic else all(len(batch) <= RECORDS_MAX for batch in batches)
