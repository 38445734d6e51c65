"""Topics and partitions as the metadata log says they are.

Invariants
 1. A partition is a value: a change makes a new one, so whoever holds one may keep it.
 2. `directories` has one id for each replica, in the order of `replicas`.
 3. Every change of a partition raises its partition epoch by one; a change of the leader raises the leader epoch too.
"""

from typing import Final

import msgspec

from odradek.wire.message import NIL_UUID
from odradek.wire.messages import PartitionChangeRecord, PartitionRecord

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_STATE_CHANGE: Final = -1
RECOVERED: Final = 0
RECOVERING: Final = 1

MIGRATING_DIRECTORY: Final = NIL_UUID  # written before folders had ids
UNASSIGNED_DIRECTORY: Final = bytes(15) + b"\x01"  # the broker has not chosen yet
LOST_DIRECTORY: Final = bytes(15) + b"\x02"  # a folder that the broker cannot reach
RESERVED_DIRECTORIES: Final = 100  # no folder has one of the first ids


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    leader: int = NO_LEADER
    recovery_state: int = RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[bytes, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing or self.adding)

    def directory(self, replica: int) -> bytes:
        return self.directories[self.replicas.index(replica)]

    @classmethod
    def of(cls, record: PartitionRecord) -> "Partition":
        return cls(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            removing=tuple(record.removing_replicas),
            adding=tuple(record.adding_replicas),
            leader=record.leader,
            recovery_state=record.leader_recovery_state,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=_directories(record.directories, len(record.replicas)),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )

    def changed(self, change: PartitionChangeRecord) -> "Partition":
        """The partition after a change; what the record leaves out stays."""
        replicas = self.replicas if change.replicas is None else tuple(change.replicas)
        directories = self.directories if change.directories is None else change.directories
        new_leader = change.leader != NO_LEADER_CHANGE
        new_state = change.leader_recovery_state != NO_RECOVERY_STATE_CHANGE
        return Partition(
            replicas=replicas,
            isr=self.isr if change.isr is None else tuple(change.isr),
            removing=self.removing if change.removing_replicas is None else tuple(change.removing_replicas),
            adding=self.adding if change.adding_replicas is None else tuple(change.adding_replicas),
            leader=change.leader if new_leader else self.leader,
            recovery_state=change.leader_recovery_state if new_state else self.recovery_state,
            leader_epoch=self.leader_epoch + new_leader,
            partition_epoch=self.partition_epoch + 1,
            directories=_directories(directories, len(replicas)),
            elr=self.elr if change.eligible_leader_replicas is None else tuple(change.eligible_leader_replicas),
            last_known_elr=self.last_known_elr if change.last_known_elr is None else tuple(change.last_known_elr),
        )

    def without_elr(self) -> "Partition":
        """The partition after ClearElr, which changes only what has eligible leader replicas."""
        if not self.elr and not self.last_known_elr:
            return self
        return self.changed(PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[]))


def is_reserved(directory: bytes) -> bool:
    """Whether an id says something else than which folder it is."""
    return directory[:8] == bytes(8) and int.from_bytes(directory[8:], "big", signed=True) < RESERVED_DIRECTORIES


def _directories(given: list[bytes] | tuple[bytes, ...], replica_count: int) -> tuple[bytes, ...]:
    if not given:
        return (MIGRATING_DIRECTORY,) * replica_count
    if len(given) != replica_count:
        raise ValueError(f"a partition with {replica_count} replicas in {len(given)} directories")
    return tuple(given)


class Topic(msgspec.Struct):
    name: str
    id: bytes
    partitions: dict[int, Partition] = msgspec.field(default_factory=dict)
