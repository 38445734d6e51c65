"""Who may lead by the metadata is looked at with every batch: what a controller should not have written is found."""

from collections.abc import Callable

import msgspec
import pytest

from odradek.core.metadata.image import TOPIC_RESOURCE, MetadataImage
from odradek.wire.message import Message
from odradek.wire.messages import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.sim.structural.eligible import EligibleChecks
from tests.sim.structural.findings import Violated

TOPIC_ID = bytes(15) + b"\7"
FENCE, UNFENCE = 1, -1


def registered(broker_id: int, life: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=broker_id, incarnation_id=incarnation(broker_id, life), broker_epoch=life, fenced=True)


def incarnation(broker_id: int, life: int) -> bytes:
    return bytes(14) + bytes((broker_id, life))


def fenced(broker_id: int, life: int, change: int = FENCE) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=life, fenced=change)


def changed(isr: list[int], elr: list[int], leader: int = -2) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=isr, eligible_leader_replicas=elr, leader=leader)


class Story:
    """A topic with two replicas, of which two have to be in sync; told batch by batch."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.unclean: dict[bytes, bool] = {}
        self.checks = EligibleChecks(self.unclean)
        self.tell(FeatureLevelRecord(name="metadata.version", feature_level=25))
        self.tell(registered(1, 1), registered(2, 1), fenced(1, 1, UNFENCE), fenced(2, 1, UNFENCE))
        setting = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="min.insync.replicas", value="2")
        partition = PartitionRecord(
            topic_id=TOPIC_ID, partition_id=0, replicas=[1, 2], isr=[1, 2], leader=1, directories=[bytes(16)] * 2
        )
        self.tell(TopicRecord(name="t", topic_id=TOPIC_ID), setting, partition)

    def tell(self, *records: Message) -> None:
        for record in records:
            self.image.replay(record)
        self.checks.replayed(self.image, records)

    def crash(self, broker_id: int, *, is_sure: bool = True) -> None:
        self.unclean[incarnation(broker_id, 1)] = is_sure


def leaves_and_comes_back(story: Story) -> None:
    story.tell(changed([1], [2]), fenced(2, 1))
    story.tell(registered(2, 2), fenced(2, 2, UNFENCE))
    story.tell(changed([1, 2], []))


def crashes_and_comes_back(story: Story) -> None:
    story.crash(2)
    story.tell(changed([1], [2]), fenced(2, 1))
    story.tell(changed([1], []), registered(2, 2))


def is_killed_while_it_stops(story: Story) -> None:
    story.crash(2, is_sure=False)
    story.tell(changed([1], [2]), fenced(2, 1))
    story.tell(registered(2, 2))


@pytest.mark.parametrize("tell", [leaves_and_comes_back, crashes_and_comes_back, is_killed_while_it_stops])
def test_what_a_controller_may_write_is_not_found(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    assert story.checks.changes


def fenced_in_sync(story: Story) -> None:
    story.tell(fenced(2, 1))


def in_sync_after_a_crash(story: Story) -> None:
    story.crash(2)
    story.tell(msgspec.structs.replace(registered(2, 2), fenced=False))


def eligible_after_a_crash(story: Story) -> None:
    story.crash(2)
    story.tell(changed([1], [2]), fenced(2, 1))
    story.tell(registered(2, 2))


def forgotten_when_it_left(story: Story) -> None:
    story.tell(changed([1], []), fenced(2, 1))


def forgotten_later(story: Story) -> None:
    story.tell(changed([1], [2]), fenced(2, 1))
    story.tell(changed([], [1], leader=-1), fenced(1, 1))


FOUND: dict[str, Callable[[Story], None]] = {
    r"t-0 has node 2 in sync, which is fenced": fenced_in_sync,
    r"node 2 comes back without having stopped cleanly, and may lead t-0 \(in sync \(1, 2\)": in_sync_after_a_crash,
    r"and may lead t-0 \(in sync \(1,\), eligible \(2,\)\)": eligible_after_a_crash,
    r"t-0 has \(1,\) in sync and \(\) eligible, and node 2": forgotten_when_it_left,
    r"t-0 has \(\) in sync and \(1,\) eligible, and node 2": forgotten_later,
}


@pytest.mark.parametrize("what", FOUND)
def test_what_it_should_not_have_written_is_found(what: str) -> None:
    story = Story()
    with pytest.raises(Violated, match=what):
        FOUND[what](story)
