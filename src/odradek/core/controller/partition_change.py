"""A change of one partition: who leads it, who is in its ISR, and who may lead it when the ISR is empty (KIP-966).

Something asks for a new ISR, or that a leader be found; this decides what follows from it and writes one record.

Invariants
 1. A leader is elected from the ISR; when that is empty, from the eligible leader replicas, and becomes the ISR.
 2. Only an unclean election takes another: its leader is the whole ISR, and recovers first.
 3. While the ISR is below the minimum, whoever leaves it stays eligible, unless it lost its tail in an unclean stop.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto

from odradek.core.controller.decision import Versioned
from odradek.core.controller.partitions import default_directory
from odradek.core.metadata.features import ELR_VERSION, METADATA_VERSION, RecordVersions
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import NO_LEADER, NO_LEADER_CHANGE, RECOVERING, Partition
from odradek.wire.messages import PartitionChangeRecord

LEADER_EPOCH_BUMP_LEVEL_MAX = 11  # until 3.6 brokers needed a new leader epoch when the ISR shrank


class Election(Enum):
    ONLINE = auto()  # keep the leader while it is in the ISR
    PREFERRED = auto()  # the first replica, if it is in the ISR
    UNCLEAN = auto()  # rather one from outside the ISR than none


def is_online(image: MetadataImage, partition: Partition, broker_id: int) -> bool:
    """Whether a broker can reach the folder that its replica is in."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.has_online(partition.directory(broker_id))


class PartitionChange:
    def __init__(
        self,
        image: MetadataImage,
        topic_id: bytes,
        number: int,
        min_insync_replicas: int,
        may_lead: Callable[[int], bool],
        election: Election = Election.ONLINE,
    ) -> None:
        self.image = image
        self.topic_id = topic_id
        self.number = number
        self.partition = partition = image.topics_by_id[topic_id].partitions[number]
        self.min_insync_replicas = min_insync_replicas
        self.is_acceptable = may_lead
        self.election = election
        self.versions = RecordVersions(image.features[METADATA_VERSION])
        self.has_elr = self.versions.has_elr and image.features.get(ELR_VERSION, 0) > 0
        self.isr: Sequence[int] = partition.isr
        self.replicas: Sequence[int] = partition.replicas
        self.removing: Sequence[int] = partition.removing
        self.adding: Sequence[int] = partition.adding
        self.elr: Sequence[int] = partition.elr
        self.directories = dict(zip(partition.replicas, partition.directories, strict=True))
        self.recovery_state = partition.recovery_state
        self.unclean_stop: int | None = None  # a broker that may have lost its tail
        self.returned: int | None = None  # a broker whose replica was lost, and is there again

    def record(self) -> Versioned | None:
        """The record of what changes; None when nothing does."""
        record = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.number)
        unchanged = PartitionChangeRecord(topic_id=self.topic_id, partition_id=self.number)
        self._complete_reassignment()
        self._find_eligible()
        self._elect(record)
        if record.leader == NO_LEADER_CHANGE and not set(self.partition.replicas) <= set(self.replicas):
            record.leader = self.partition.leader  # a new leader epoch, so that who was removed is fenced
        self._note_eligible(record)
        if record.isr is None and (self.isr or self.has_elr) and tuple(self.isr) != self.partition.isr:
            record.isr = list(self.isr)
        self._raise_epoch_for_shrunk_isr(record)
        self._note_last_leader(record)
        self._note_assignment(record)
        if self.recovery_state != self.partition.recovery_state:
            record.leader_recovery_state = self.recovery_state
        return None if record == unchanged else (record, self.versions.partition)

    def _complete_reassignment(self) -> None:
        """Ends a reassignment when its new replicas are in the ISR."""
        if not self.removing and not self.adding:
            return
        isr = [replica for replica in self.isr if replica not in self.removing]
        replicas = [replica for replica in self.replicas if replica not in self.removing]
        if self.removing and (not isr or not replicas):
            return
        if not set(self.adding) <= set(isr) or (len(self.adding) < len(self.removing) and not set(replicas) <= set(isr)):
            return
        self.isr, self.replicas, self.removing, self.adding = isr, replicas, (), ()

    def _find_eligible(self) -> None:
        if not self.has_elr:
            return
        if len(self.isr) >= self.min_insync_replicas:
            self.elr = ()
            return
        candidates = ({*self.elr, *self.partition.isr} - set(self.isr)) & set(self.replicas)
        self.elr = sorted(candidate for candidate in candidates if candidate != self.unclean_stop)

    # -- the election

    def _may_lead(self, broker: int) -> bool:
        return self.is_acceptable(broker) and (broker == self.returned or is_online(self.image, self.partition, broker))

    def _is_clean_leader(self, broker: int) -> bool:
        return (broker in self.isr or (not self.isr and broker in self.elr)) and self._may_lead(broker)

    def _find_leader(self) -> tuple[int, bool]:
        """Who leads, and whether that is unclean."""
        current = [self.partition.leader]
        candidates = [*current, *self.replicas]
        if self.election is Election.PREFERRED:
            candidates = [self.replicas[0], *current, *self.replicas[1:]]
        for broker in candidates:
            if broker != NO_LEADER and self._is_clean_leader(broker):
                return broker, False
        if (last := self._last_leader()) is not None:
            return last, True
        if self.election is Election.UNCLEAN:
            for broker in self.replicas:
                if self._may_lead(broker):
                    return broker, True
        return NO_LEADER, False

    def _last_leader(self) -> int | None:
        """The last leader, which has the most of what all others have lost."""
        last = self.partition.last_known_elr
        if not self.has_elr or self.elr or self.isr or len(last) != 1:
            return None
        return last[0] if self._may_lead(last[0]) else None

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, is_unclean = self._find_leader()
        if leader == self.partition.leader:
            return
        if leader in self.elr:
            self.isr = [leader]
            self.elr = [replica for replica in self.elr if replica != leader]
        record.leader = leader
        if is_unclean:
            record.isr = [leader]
            if self.partition.recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    # -- what the record says besides

    def _note_eligible(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None or not self.has_elr:  # an unclean leader has nobody beside it
            self.elr = ()
        if tuple(self.elr) != self.partition.elr:
            record.eligible_leader_replicas = list(self.elr)

    def _note_last_leader(self, record: PartitionChangeRecord) -> None:
        if not self.has_elr:
            return
        last = self.partition.last_known_elr
        if record.leader == NO_LEADER and not last:
            record.last_known_elr = [self.partition.leader]
        elif record.leader >= 0 and last:
            record.last_known_elr = []

    def _raise_epoch_for_shrunk_isr(self, record: PartitionChangeRecord) -> None:
        needed = self.versions.metadata_version <= LEADER_EPOCH_BUMP_LEVEL_MAX
        is_shrunk = record.isr is not None and not set(self.partition.isr) <= set(record.isr)
        if needed and is_shrunk and record.leader == NO_LEADER_CHANGE:
            record.leader = self.partition.leader

    def _note_assignment(self, record: PartitionChangeRecord) -> None:
        before = self.partition
        if self.replicas and self.versions.has_directories:
            known = self.directories
            directories = [known.get(broker) or default_directory(self.image, broker) for broker in self.replicas]
            if tuple(directories) != before.directories:
                record.directories = directories
        if self.replicas and tuple(self.replicas) != before.replicas:
            record.replicas = list(self.replicas)
        if tuple(self.removing) != before.removing:
            record.removing_replicas = list(self.removing)
        if tuple(self.adding) != before.adding:
            record.adding_replicas = list(self.adding)
