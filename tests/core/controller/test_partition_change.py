"""Changes of partitions, against Apache Kafka's own builder of them."""

from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.core.controller.partition_change import Election, PartitionChange
from odradek.core.metadata.image import MetadataImage
from odradek.wire.messages import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from tests.core.controller.cluster import folder_of, registration
from tests.kafka.oracle import Oracle

TOPIC = b"t" * 16
BROKERS = (1, 2, 3, 4)


def some(of: list[int], min_size: int = 0, max_size: int = 4) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from(of), unique=True, min_size=min_size, max_size=max_size) if of else st.just([])


@st.composite
def partitions(draw: st.DrawFn) -> PartitionRecord:
    replicas = draw(some(list(BROKERS), min_size=1))
    isr = draw(some(replicas))
    outside = [replica for replica in replicas if replica not in isr]
    elr = draw(some(outside))
    adding = draw(some(outside))
    return PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=replicas,
        isr=isr,
        removing_replicas=draw(some([replica for replica in replicas if replica not in adding])),
        adding_replicas=adding,
        leader=draw(st.sampled_from([-1, *isr])),
        leader_recovery_state=draw(st.integers(0, 1)),
        leader_epoch=3,
        partition_epoch=4,
        directories=[folder_of(replica) for replica in replicas],
        eligible_leader_replicas=elr or None,
        last_known_elr=draw(some(replicas, max_size=2)) or None,
    )


@settings(max_examples=400)
@given(
    partitions(),
    st.sampled_from([7, 11, 12, 17, 23, 30]),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from(list(Election)),
    some(list(BROKERS)),
    st.sampled_from([None, *BROKERS]),
    st.sampled_from([None, *BROKERS]),
)
def test_a_partition_changes_as_by_kafka(
    oracle: Oracle,
    record: PartitionRecord,
    level: int,
    min_insync_replicas: int,
    elr: bool,
    election: Election,
    acceptable: list[int],
    leaving: int | None,
    unclean_stop: int | None,
) -> None:
    if level < 23:  # which knows nothing of them
        elr, record.eligible_leader_replicas, record.last_known_elr = False, None, None
    isr = [replica for replica in record.isr if replica not in (leaving, unclean_stop)]
    image = MetadataImage()
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=level))
    image.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=int(elr)))
    for broker in BROKERS:
        image.replay(registration(broker))
    image.replay(TopicRecord(name="t", topic_id=TOPIC))
    image.replay(record)
    change = PartitionChange(image, TOPIC, 0, min_insync_replicas, lambda broker: broker in acceptable, election)
    change.isr = isr
    change.unclean_stop = unclean_stop
    ours = change.record()
    theirs = oracle.call(
        "PartitionChanges.build",
        hex=record.to_bytes(2).hex(),
        level=level,
        min_insync_replicas=min_insync_replicas,
        elr=elr,
        election=election.name,
        acceptable=acceptable,
        isr=isr,
        unclean_stop=unclean_stop,
    )
    if elr and (strangers := eligible_strangers(record, theirs)):  # of whom Kafka waits for, and who have no log any more
        found = None if ours is None else cast("PartitionChangeRecord", ours[0]).eligible_leader_replicas
        assert not strangers & set((record.eligible_leader_replicas or []) if found is None else found)
        return
    assert (None if ours is None else f"{ours[1]}:{ours[0].to_bytes(ours[1]).hex()}") == theirs


def eligible_strangers(record: PartitionRecord, theirs: str | None) -> set[int]:
    """Eligible leaders that are no replicas."""
    version, _, data = (theirs or "2:").partition(":")
    change = PartitionChangeRecord.decode(bytes.fromhex(data), int(version)) if data else PartitionChangeRecord()
    eligible = record.eligible_leader_replicas if change.eligible_leader_replicas is None else change.eligible_leader_replicas
    return set(eligible or []) - set(change.replicas or record.replicas)
