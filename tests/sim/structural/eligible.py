"""Who may lead by the metadata: looked at with every batch of the committed log.

Invariants that are checked
 1. Who is in an ISR is registered, and neither fenced nor shutting down.
 2. Who comes back after a process that did not stop cleanly is in no ISR and not eligible to lead.
 3. While fewer are in sync than min.insync.replicas asks for, who leaves the ISR stays eligible: all but those whose processes
    did not stop cleanly, or where an unclean election or another min.insync.replicas has ended that.
"""

from collections.abc import Sequence
from typing import Final

from odradek.core.controller.replication import ReplicationRules, effective_min_insync_replicas
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import RECOVERING, Partition
from odradek.core.partition.replica import TopicIdPartition
from odradek.wire.message import Message
from odradek.wire.messages import ClearElrRecord, PartitionChangeRecord, RegisterBrokerRecord
from tests.sim.structural.findings import hold

RULES: Final = ReplicationRules()  # a cluster with eligible leaders has its minimum in the metadata


class EligibleChecks:
    def __init__(self, unclean: dict[bytes, bool]) -> None:
        """`unclean` are the incarnations of brokers that have ended without a clean stop, and whether that is sure."""
        self.unclean = unclean
        self.states: dict[TopicIdPartition, Partition] = {}
        self.incarnations: dict[int, bytes] = {}
        self.changes = 0

    def replayed(self, image: MetadataImage, records: Sequence[Message]) -> None:
        """A batch was replayed."""
        keys = [(record.topic_id, record.partition_id) for record in records if isinstance(record, PartitionChangeRecord)]
        is_cleared = any(isinstance(record, ClearElrRecord) for record in records)
        for record in records:
            if isinstance(record, RegisterBrokerRecord):
                self._check_return(image, record)
        for key in keys:
            if key[0] in image.topics_by_id:
                self._check_change(image, key, is_cleared=is_cleared)
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                self._check_active(image, f"{topic.name}-{index}", state)
                self.states[topic.id, index] = state
        self.incarnations = {number: broker.incarnation_id for number, broker in image.brokers.items()}

    def _check_active(self, image: MetadataImage, name: str, state: Partition) -> None:
        for number in state.isr:
            broker = image.brokers.get(number)
            hold(broker is not None and broker.is_active, f"{name} has node {number} in sync, which is fenced or shutting down")

    def _check_return(self, image: MetadataImage, record: RegisterBrokerRecord) -> None:
        number = record.broker_id
        before = self.incarnations.get(number)
        if before is None or before == record.incarnation_id or not self.unclean.get(before, False):
            return
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                hold(
                    number not in state.isr and number not in state.elr,
                    f"node {number} comes back without having stopped cleanly, and may lead {topic.name}-{index} "
                    f"(in sync {state.isr}, eligible {state.elr})",
                )

    def _check_change(self, image: MetadataImage, key: TopicIdPartition, *, is_cleared: bool) -> None:
        topic = image.topics_by_id[key[0]]
        before, state = self.states.get(key), topic.partitions[key[1]]
        is_enough = len(state.isr) >= effective_min_insync_replicas(image, topic.name, key[1], RULES)
        if before is None or is_cleared or is_enough or state.recovery_state == RECOVERING:
            return
        self.changes += 1
        for number in {*before.isr, *before.elr} & set(state.replicas) - {*state.isr, *state.elr}:
            hold(
                self.incarnations.get(number) in self.unclean,
                f"{topic.name}-{key[1]} has {state.isr} in sync and {state.elr} eligible, and node {number}, which was "
                f"({before.isr}, {before.elr}) and has lost nothing, is not",
            )
