"""What a log knows of its idempotent producers: what to refuse, what was said before, and which transactions are open.

A leader asks `check` before it appends a client's batch, `check_marker` before the end of a transaction; leaders and
followers tell `append` and `append_marker` what was appended, and so does the replay of a log after its newest snapshot.

Invariants
 1. `append` refuses nothing: a follower takes what the leader took, in an order that only the leader judged.
 2. The state is that of all batches below `map_end_offset`; replaying them on an older snapshot gives the same producers.
 3. Open transactions are ordered by first offset, completed ones by the offset of their marker, as the log has them.
 4. `first_unstable_offset` is the first offset of a transaction that is open, or whose marker was seen to come, and is not below
    the high watermark. A marker that is in a snapshot counts at once, as in Kafka: it is decided, and comes again if it is lost.
 5. A producer with an open transaction is never forgotten.
"""

from collections import OrderedDict
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

from odradek.log.disk import Disk
from odradek.log.producer import NO_OFFSET, BatchMetadata, Producer
from odradek.log.producer_snapshots import ProducerSnapshots
from odradek.wire.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, SEQUENCE_MASK, TRANSACTIONAL, BatchHeader
from odradek.wire.control import ControlType, read_end_marker
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.records import records
from odradek.wire.varint import Buffer

EXPIRATION_MS = 24 * 60 * 60 * 1000  # producer.id.expiration.ms, unless told
LATE_TRANSACTION_MS = 5 * 60 * 1000  # past its longest timeout, an open transaction is taken for a hanging one
EPOCH_MAX = 2**15 - 1
EPOCH_BUMPED_SINCE = 2  # transaction.version: every end of a transaction raises the producer's epoch (KIP-890)


class ProducerRefused(Refused):
    """A batch that must not be appended, and what its producer is answered with."""


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Verification:
    """That a transaction's coordinator is being asked whether the transaction is open here (KIP-890).

    Batches with a higher sequence than the lowest that waits are refused meanwhile: they would overtake it.
    """

    __slots__ = ("epoch", "lowest_sequence", "started_ms", "supports_epoch_bump")

    def __init__(self, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int) -> None:
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.started_ms = now_ms

    def lower(self, sequence: int, epoch: int) -> None:
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence


class ProducerState(ProducerSnapshots):
    """The producers of one log in memory; their snapshots on disk are in the base class."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        snapshots: Iterable[int] | None = None,
        *,
        expiration_ms: int = EXPIRATION_MS,
        verifies_transactions: bool = False,
    ) -> None:
        """With the offsets of the snapshots in the folder, if the caller has seen them already."""
        super().__init__(disk, folder, snapshots)
        self.expiration_ms = expiration_ms
        self.verifies_transactions = verifies_transactions
        self.producers: dict[int, Producer] = {}
        self.verifications: dict[int, Verification] = {}
        self.ongoing: OrderedDict[int, int] = OrderedDict()  # first offset -> producer id
        self.unreplicated: OrderedDict[int, int] = OrderedDict()  # first offset -> offset of the marker
        self.first_unstable_offset: int | None = None

    # -- before an append

    def check(self, header: BatchHeader, verification: object = None) -> BatchMetadata | None:
        """Whether a client's batch may be appended: None, or the same batch when it was appended before.

        ProducerRefused when it may not. `verification` is what `verify` gave when the coordinator was asked.
        """
        producer = self.producers.get(header.producer_id)
        if producer is not None and producer.epoch == header.producer_epoch:
            first = header.base_sequence
            for batch in producer.batches:
                if batch[0] == first and batch[1] == header.last_sequence:
                    return batch
        if header.attributes & TRANSACTIONAL:
            self._check_verified(header, producer, verification)
        if producer is not None and header.producer_epoch < producer.epoch:
            raise _old_epoch(header, producer)
        if self.verifications:
            self._check_waiting(header, is_first=producer is None or not producer.batches)
        if producer is not None:
            self._check_sequence(header, producer)
            if producer.transaction_first_offset >= 0:
                self._check_transaction(header, producer)
        return None

    def check_from_coordinator(self, header: BatchHeader, verification: object = None) -> None:
        """Whether a coordinator's data may be appended for a producer. It has no sequence that could be checked."""
        producer = self.producers.get(header.producer_id)
        if header.attributes & TRANSACTIONAL:
            self._check_verified(header, producer, verification)
        if producer is not None:
            self._check_epoch(header, producer)
            self._check_transaction(header, producer)

    def check_marker(self, header: BatchHeader, batch: Buffer, transaction_version: int = 0) -> bool:
        """Refuses the end of a transaction that may not be appended; whether it need not be, as the last thing that is known of
        the producer is this very end. Since version 2 it carries an epoch that was not used before."""
        if not header.record_count:  # compaction has taken the marker
            return False
        _, coordinator_epoch = read_end_marker(next(records(batch, 0, header)))
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return False
        epoch = header.producer_epoch
        if transaction_version < EPOCH_BUMPED_SINCE:
            self._check_epoch(header, producer)
        elif epoch <= producer.epoch:
            is_retry = epoch == producer.epoch and (not producer.has_transaction or epoch == EPOCH_MAX)
            if not is_retry:
                raise _old_epoch(header, producer)
        if coordinator_epoch < producer.coordinator_epoch:
            message = (
                f"the coordinator of producer {header.producer_id} has epoch {coordinator_epoch}, "
                f"and {producer.coordinator_epoch} was seen already"
            )
            raise ProducerRefused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)
        is_last = (producer.epoch, producer.coordinator_epoch) == (epoch, coordinator_epoch)
        return transaction_version >= EPOCH_BUMPED_SINCE and is_last and not producer.has_transaction

    def _check_epoch(self, header: BatchHeader, producer: Producer) -> None:
        if header.producer_epoch < producer.epoch:
            raise _old_epoch(header, producer)

    def _check_sequence(self, header: BatchHeader, producer: Producer) -> None:
        sequence = header.base_sequence
        if producer.epoch == NO_PRODUCER_EPOCH:
            return
        if header.producer_epoch != producer.epoch:
            if sequence != 0:
                message = (
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence {sequence}, "
                    f"where an epoch after {producer.epoch} begins with 0"
                )
                raise ProducerRefused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
            return
        last = producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE
        if sequence != last + 1 and not (sequence == 0 and last == SEQUENCE_MASK):
            message = f"producer {header.producer_id} sends sequence {sequence}, after {last}"
            raise ProducerRefused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)

    def _check_transaction(self, header: BatchHeader, producer: Producer) -> None:
        if producer.transaction_first_offset >= 0 and not header.attributes & TRANSACTIONAL:
            message = (
                f"producer {header.producer_id} sends a batch outside of the transaction that it began "
                f"at offset {producer.transaction_first_offset}"
            )
            raise ProducerRefused(ErrorCode.INVALID_TXN_STATE, message)

    def _check_verified(self, header: BatchHeader, producer: Producer | None, verification: object) -> None:
        if producer is not None:
            if producer.has_transaction and producer.epoch == header.producer_epoch:
                return
            self._check_epoch(header, producer)
        if self.verifies_transactions and (
            verification is None or self.verifications.get(header.producer_id) is not verification
        ):
            message = f"the transaction of producer {header.producer_id} is not known to be open"
            raise ProducerRefused(ErrorCode.INVALID_TXN_STATE, message)

    def _check_waiting(self, header: BatchHeader, *, is_first: bool) -> None:
        """A batch must not overtake one that waits for its transaction to be verified."""
        waiting = self.verifications.get(header.producer_id)
        if waiting is None:
            return
        sequence = header.base_sequence
        begins_late = is_first and waiting.supports_epoch_bump and sequence != 0
        if begins_late or sequence > waiting.lowest_sequence:
            due = 0 if begins_late else waiting.lowest_sequence
            message = f"producer {header.producer_id} sends sequence {sequence}, where {due} is due first"
            raise ProducerRefused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)

    def verify(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> Verification | None:
        """Begins to verify a transaction before its first append here; None when it is open here already."""
        producer = self.producers.get(producer_id)
        if producer is not None:
            if epoch < producer.epoch:
                message = f"producer {producer_id} has epoch {epoch}, and {producer.epoch} was seen already"
                raise ProducerRefused(ErrorCode.INVALID_PRODUCER_EPOCH, message)
            if producer.has_transaction and producer.epoch == epoch:
                return None
        waiting = self.verifications.get(producer_id)
        if waiting is None:
            waiting = self.verifications[producer_id] = Verification(sequence, epoch, supports_epoch_bump, now_ms)
        waiting.lower(sequence, epoch)
        return waiting

    # -- after an append

    def append(self, header: BatchHeader) -> None:
        """A batch of data was appended; the header has its offsets."""
        producer = self._producer(header)
        producer.add_batch(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
        if header.attributes & TRANSACTIONAL:
            if producer.transaction_first_offset < 0:
                producer.transaction_first_offset = header.base_offset
                self._open(header.base_offset, producer.producer_id)
            if self.verifications:
                self.verifications.pop(producer.producer_id, None)

    def append_marker(self, header: BatchHeader, batch: Buffer) -> CompletedTransaction | None:
        """The end of a transaction was appended. What it completed, if it had data here, is `complete`d by the caller."""
        marker = next(records(batch, 0, header), None)
        if marker is None:  # compaction has taken the marker, and so all data of the transaction
            return None
        control_type, coordinator_epoch = read_end_marker(marker)
        producer = self._producer(header)
        first_offset = producer.transaction_first_offset
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_first_offset = NO_OFFSET
        producer.heard(marker.timestamp)
        waiting = self.verifications.get(producer.producer_id)
        if waiting is not None and not (waiting.supports_epoch_bump and waiting.epoch == header.producer_epoch):
            del self.verifications[producer.producer_id]  # a marker of this epoch ends what was before the bump
        if first_offset < 0:
            return None
        is_aborted = control_type is ControlType.ABORT
        return CompletedTransaction(producer.producer_id, first_offset, header.base_offset, is_aborted)

    def _producer(self, header: BatchHeader) -> Producer:
        producer = self.producers.get(header.producer_id)
        if producer is None:
            assert header.producer_id >= 0
            producer = self.producers[header.producer_id] = Producer(header.producer_id)
        producer.set_epoch(header.producer_epoch)
        return producer

    def _open(self, first_offset: int, producer_id: int) -> None:
        assert not self.ongoing or next(reversed(self.ongoing)) < first_offset
        self.ongoing[first_offset] = producer_id
        if self.first_unstable_offset is None:
            self.first_unstable_offset = first_offset

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Where the last stable offset stands once this transaction is complete: what the transaction index keeps."""
        for first_offset, producer_id in self.ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        """The transaction is decided; its offsets are stable when the high watermark has passed its marker."""
        del self.ongoing[completed.first_offset]
        assert not self.unreplicated or self.unreplicated[next(reversed(self.unreplicated))] < completed.last_offset
        self.unreplicated[completed.first_offset] = completed.last_offset

    def keep_completed(self, completed: dict[int, int]) -> None:
        """Of transactions that were decided before a reload, first offsets and offsets of the markers: no snapshot has them."""
        found = completed | self.unreplicated
        self.unreplicated = OrderedDict(sorted(found.items(), key=itemgetter(1)))
        self._forget_completed(0)

    # -- as time goes by

    def on_high_watermark(self, high_watermark: int) -> None:
        unreplicated = self.unreplicated
        if unreplicated and unreplicated[next(iter(unreplicated))] < high_watermark:
            self._forget_completed(high_watermark)

    def on_start_moved(self, log_start: int) -> None:
        self._forget_completed(log_start)
        super().on_start_moved(log_start)

    def forget_transaction(self, first_offset: int) -> None:
        """One that is not open any more, whose end may not be there to be read."""
        producer = self.producers[self.ongoing.pop(first_offset)]
        producer.transaction_first_offset = NO_OFFSET
        self._forget_completed(0)

    def _forget_completed(self, offset: int) -> None:
        unreplicated = self.unreplicated
        while unreplicated and unreplicated[first := next(iter(unreplicated))] < offset:
            del unreplicated[first]
        firsts = [*unreplicated]
        if self.ongoing:
            firsts.append(next(iter(self.ongoing)))
        self.first_unstable_offset = min(firsts, default=None)

    def remove_expired(self, now_ms: int) -> None:
        """Forgets the producers that were silent for `producer.id.expiration.ms`: by the timestamps of their batches, and here,
        from one look to another. Timestamps alone are those of clients and of clocks that are set: who sends what is a day old
        would be forgotten between a batch and its retry, which would be appended twice."""
        for producer in [*self.producers.values()]:
            if producer.silent_since_ms is None:
                producer.silent_since_ms = now_ms
            elif now_ms - producer.silent_since_ms >= self.expiration_ms and self._is_expired(producer, now_ms):
                del self.producers[producer.producer_id]
        for producer_id, waiting in [*self.verifications.items()]:
            if now_ms - waiting.started_ms >= self.expiration_ms:
                del self.verifications[producer_id]

    def _is_expired(self, producer: Producer, now_ms: int) -> bool:
        return not producer.has_transaction and now_ms - producer.last_timestamp >= self.expiration_ms

    def has_late_transaction(self, now_ms: int, timeout_ms_max: int) -> bool:
        """Whether the oldest open transaction was silent for longer than any may be."""
        if not self.ongoing:
            return False
        producer = self.producers.get(self.ongoing[next(iter(self.ongoing))])
        last_timestamp = NO_OFFSET if producer is None else producer.last_timestamp
        return last_timestamp > 0 and now_ms - last_timestamp > timeout_ms_max + LATE_TRANSACTION_MS

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self.unreplicated

    # -- what the snapshots keep

    def _all(self) -> list[Producer]:
        return [self.producers[producer_id] for producer_id in sorted(self.producers)]

    def _clear(self) -> None:
        self.producers.clear()
        self.ongoing.clear()
        self.unreplicated.clear()
        self.first_unstable_offset = None

    def _load(self, producers: list[Producer], now_ms: int) -> None:
        """Leaves out who was silent for too long when the newest of them was heard: how long ago that was, a clock that may have
        been set does not tell."""
        by_ms = min([now_ms, max([producer.last_timestamp for producer in producers], default=now_ms)])
        kept = [producer for producer in producers if not self._is_expired(producer, by_ms)]
        self.producers.update((producer.producer_id, producer) for producer in kept)
        for producer in sorted(kept, key=lambda producer: producer.transaction_first_offset):
            if producer.has_transaction:
                self._open(producer.transaction_first_offset, producer.producer_id)


def _old_epoch(header: BatchHeader, producer: Producer) -> ProducerRefused:
    message = f"producer {header.producer_id} has epoch {header.producer_epoch}, and {producer.epoch} was seen already"
    return ProducerRefused(ErrorCode.INVALID_PRODUCER_EPOCH, message)
