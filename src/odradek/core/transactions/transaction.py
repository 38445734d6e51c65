"""What is known of one transactional id: who may write with it, and how far its transaction is.

    Empty --> Ongoing --> PrepareCommit --> CompleteCommit --+
      |         |  ^                                         |--> Ongoing, or Empty when a producer begins anew
      |         |  +-- more partitions                       |
      |         +----> PrepareAbort ---> CompleteAbort ------+
      +--------------> (version 2: an abort of nothing)

Each transition is a new value, which is written to the log before anybody hears of it. With version 2 (KIP-890) every end bumps
the epoch: what a producer sent before the end cannot be taken for a part of its next transaction.

Invariants
 1. The partitions only grow while a transaction is open, and stay until all of them have their marker.
 2. An epoch is used by one producer, and with version 2 by one transaction. The largest is kept for fencing.
 3. A record that was written reads back as the same value, from version 1 of the record on.
"""

from enum import IntEnum
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from odradek.wire.messages import TransactionLogValue

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = 2**15 - 1
EPOCH_BUMPED_SINCE: Final = 2  # transaction.version
SEVERAL_IDS_SINCE: Final = 1  # the version of a record

TopicIndex: TypeAlias = tuple[str, int]  # a topic's name and a partition of it


class State(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # never written
    PREPARE_EPOCH_FENCE = 7  # never written

    @property
    def title(self) -> str:
        """As administrators are told: `PrepareCommit`."""
        return self.name.title().replace("_", "")


BY_TITLE: Final = {state.title: state for state in State}
PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})


class Transaction(Struct, frozen=True):
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicIndex] = frozenset()
    start_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # which the producer gets when the transaction is complete: its epochs are used up
    version: int = 0  # the transaction.version of who changed it last

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.epoch)

    @property
    def is_commit(self) -> bool:
        """Of one that is prepared, or complete."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    def is_promised(self, producer_id: int, epoch: int) -> bool:
        """Whether this is what the producer, whose epochs are used up, was told that it has next: it is when this is complete."""
        return self.state in PREPARED and producer_id == self.next_producer_id != NO_PRODUCER_ID and epoch == 0

    def initialized(self, producer_id: int, epoch: int, timeout_ms: int, now_ms: int) -> "Transaction":
        """A producer begins, or goes on, with an epoch of its own."""
        assert self.state in AT_REST
        return replace(
            self,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            epoch=epoch,
            timeout_ms=timeout_ms,
            state=State.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIME,
            updated_ms=now_ms,
        )

    def added(self, partitions: frozenset[TopicIndex], version: int, now_ms: int) -> "Transaction":
        assert self.state not in PREPARED
        return replace(
            self,
            previous_producer_id=self.producer_id,
            state=State.ONGOING,
            partitions=self.partitions | partitions,
            start_ms=now_ms if self.state in AT_REST else self.start_ms,
            updated_ms=now_ms,
            version=version,
        )

    def prepared(
        self, *, is_commit: bool, epoch: int, version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> "Transaction":
        """It is decided, and the partitions are to hear of it."""
        assert self.state is State.ONGOING or (self.state in AT_REST and not is_commit)
        return replace(
            self,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            epoch=epoch,
            state=State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            updated_ms=now_ms,
            version=version,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """All partitions have their marker."""
        assert self.state in PREPARED
        is_rotated = self.version >= EPOCH_BUMPED_SINCE and self.next_producer_id != NO_PRODUCER_ID
        return replace(
            self,
            previous_producer_id=self.producer_id,
            producer_id=self.next_producer_id if is_rotated else self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            epoch=0 if is_rotated else self.epoch,
            state=State.COMPLETE_COMMIT if self.is_commit else State.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms,
        )

    # -- in the log

    def value(self, version: int) -> TransactionLogValue:
        """In a version of the record; the first knows one producer id."""
        topics: dict[str, TransactionLogValue.PartitionsSchema] = {}
        for topic, index in sorted(self.partitions):
            topics.setdefault(topic, TransactionLogValue.PartitionsSchema(topic=topic)).partition_ids.append(index)
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state is State.EMPTY else list(topics.values()),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.start_ms,
        )
        if version >= SEVERAL_IDS_SINCE:
            value.previous_producer_id = self.previous_producer_id
            value.next_producer_id = self.next_producer_id
            value.client_transaction_version = self.version
        return value

    @classmethod
    def of(cls, value: TransactionLogValue) -> "Transaction":
        topics = value.transaction_partitions or ()
        return cls(
            producer_id=value.producer_id,
            epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            state=State(value.transaction_status),
            partitions=frozenset((topic.topic, index) for topic in topics for index in topic.partition_ids),
            start_ms=value.transaction_start_timestamp_ms,
            updated_ms=value.transaction_last_update_timestamp_ms,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            version=value.client_transaction_version,
        )


def is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


def bumped(epoch: int) -> int:
    return min(epoch + 1, EPOCH_MAX)
