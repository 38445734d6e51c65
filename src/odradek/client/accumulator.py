"""All records on their way, in lanes by partition, within a bound of memory. Sans-IO.

Invariants
 1. What is on its way takes `buffer_memory` at most, unless one record alone is larger; who has no room waits for it.
 2. A batch leaves when it is full, when it has lingered, when somebody waits for everything or for room, or when it goes again.
 3. `held_bytes` is what the batches that have not ended take.
"""

from collections.abc import Callable, Iterator
from typing import Final

from odradek.client.batches import Batch, Delivery, Entry
from odradek.client.errors import KafkaError
from odradek.client.lane import Lane
from odradek.client.records import TopicPartition
from odradek.wire.batch import HEADER_SIZE

NEVER_S: Final = float("inf")
UNSEEN_MAX: Final = 100  # failures that are kept for who asks: one is told


class Accumulator:
    def __init__(
        self, *, batch_size: int, buffer_memory: int, linger_s: float, delivery_timeout_s: float, is_idempotent: bool
    ) -> None:
        self.batch_size = batch_size
        self.buffer_memory = buffer_memory
        self.linger_s = linger_s
        self.delivery_timeout_s = delivery_timeout_s
        self.is_idempotent = is_idempotent
        self.lanes: dict[TopicPartition, Lane] = {}
        self.active: dict[TopicPartition, Lane] = {}  # that have something on its way
        self.held_bytes = 0
        self.is_urgent = False  # somebody waits for everything, or for room: nothing lingers
        self.on_failed: Callable[[TopicPartition, KafkaError], None] = lambda _place, _error: None  # told of each batch
        self.unseen: list[Batch] = []  # that failed, and nobody has heard of it yet

    def lane(self, place: TopicPartition) -> Lane:
        found = self.lanes.get(place)
        if found is None:
            found = self.lanes[place] = Lane(place, is_idempotent=self.is_idempotent)
        return found

    def has_room(self, size: int) -> bool:
        return self.held_bytes + size <= self.buffer_memory or not self.held_bytes

    def append(self, lane: Lane, entry: Entry, size: int, now_s: float) -> tuple[Delivery, bool]:
        """Takes a record, for which there is room. The second is whether a batch became full with it, or is a new one."""
        batch = lane.open
        is_news = False
        if batch is None or batch.size + size > self.batch_size:
            batch = lane.open = Batch(lane.place, now_s)
            lane.queue.append(batch)
            self.active[lane.place] = lane
            self.held_bytes += HEADER_SIZE
            is_news = True
        entries = batch.entries
        delivery = Delivery(batch, len(entries))
        entries.append(entry)
        batch.size += size
        self.held_bytes += size
        return delivery, is_news

    def append_built(self, lane: Lane, data: bytearray, count: int, now_s: float) -> Batch:
        """Takes a batch whose records are encoded, for which there is room."""
        batch = Batch.built(lane.place, now_s, data, count)
        lane.open = None
        lane.queue.append(batch)
        self.active[lane.place] = lane
        self.held_bytes += batch.size
        return batch

    # -- what is to leave

    def due_s(self, lane: Lane) -> float:
        """When its first batch is to leave, as far as the lane lets it."""
        first = lane.queue[0]
        if self.is_urgent or first.attempts or first is not lane.open or first.size >= self.batch_size:
            return lane.not_before_s
        return max(first.begun_s + self.linger_s, lane.not_before_s)

    def waiting(self) -> Iterator[tuple[Lane, float]]:
        """The lanes of which a batch may leave, and when it is to."""
        for lane in self.active.values():
            if lane.may_send():
                yield lane, self.due_s(lane)

    # -- what became of it

    def succeed(self, lane: Lane, batch: Batch, base_offset: int, timestamp_ms: int) -> None:
        lane.succeed(batch, base_offset, timestamp_ms)
        self._ended(lane, batch)

    def fail(self, lane: Lane, batch: Batch, error: KafkaError) -> None:
        lane.fail(batch, error)
        self._ended(lane, batch)
        self.on_failed(lane.place, error)

    def fail_expired(self, now_s: float) -> float:
        """Gives up what has waited for too long; gives when the next is due."""
        next_s = NEVER_S
        for lane in [*self.active.values()]:
            for batch, error in lane.expired(now_s, self.delivery_timeout_s):
                self.fail(lane, batch, error)
            for batch in lane.queue:
                next_s = min(next_s, batch.begun_s + self.delivery_timeout_s)
        return next_s

    def drop_unsent(self, error: KafkaError) -> None:
        """Fails everything that is not under way."""
        for lane in [*self.active.values()]:
            for batch in [*lane.queue]:
                self.fail(lane, batch, error)

    def _ended(self, lane: Lane, batch: Batch) -> None:
        self.held_bytes -= batch.size
        if lane.is_idle:
            self.active.pop(lane.place, None)
        whole = batch
        while whole.parent is not None:
            whole = whole.parent
        if whole.is_done and whole.error is not None:
            if len(self.unseen) >= UNSEEN_MAX:
                self.unseen = [each for each in self.unseen if not each.was_seen]
            if len(self.unseen) < UNSEEN_MAX:
                self.unseen.append(whole)

    def split(self, lane: Lane, batch: Batch) -> None:
        lane.split(batch)
        assert batch.parts is not None
        self.held_bytes += sum(part.size for part in batch.parts) - batch.size

    def take_unseen(self) -> KafkaError | None:
        """The first failure that nobody has heard of; then all count as heard of."""
        unseen, self.unseen = self.unseen, []
        for batch in unseen:
            if not batch.was_seen and batch.error is not None:
                return batch.error
        return None
