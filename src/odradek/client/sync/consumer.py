"""Reads records of topics, for programs with threads: `odradek.Consumer`, without async and await.

    with Consumer("orders", bootstrap="127.0.0.1:9092", group="billing") as consumer:
        for record in consumer:
            ...

Iterating takes CHUNK_RECORDS at a time over from the loop's thread.

Invariants
 1. What was taken over and not given to the program is not done with: it is neither committed, nor lost to another member. So is
    what comes when somebody who waits for it is interrupted.
 2. Positions are those of the program, not of what was taken over. Whatever has it read something else, or in another way, comes
    after what was taken over went back: nothing of before is given then.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

from odradek.client.consumer import Consumer as AsyncConsumer
from odradek.client.consumer import Place
from odradek.client.errors import Closed, Refused
from odradek.client.records import Committed, Record, TopicPartition
from odradek.client.sync.background import Background
from odradek.client.sync.mirrored import ConsumerCalls

CHUNK_RECORDS: Final = 500
POLL_MS: Final = 1_000


class Consumer(ConsumerCalls):
    def __init__(self, *topics: str, **options: Any) -> None:
        """The options are those of `odradek.Consumer`. It connects here: KafkaError when nobody is there. Callbacks of
        rebalances are called in the loop's thread, and must not ask the consumer for anything."""
        self._begin(AsyncConsumer(*topics, **options))

    @classmethod
    def of(cls, properties: Mapping[str, Any], *topics: str, **more: Any) -> Self:
        """One with properties as librdkafka and Java name them."""
        made = cls.__new__(cls)
        made._begin(AsyncConsumer.of(properties, *topics, **more))
        return made

    def _begin(self, original: AsyncConsumer) -> None:
        self._original = original
        self._background = Background("odradek-consumer")
        self._taken: list[Record] = []  # the next ones of an iteration, the last first
        try:
            self._background.run(original.start())
        except BaseException:
            self._background.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._close(is_done=error is None)

    # -- reading

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        while not self._taken:
            if not self._background.is_open:
                raise StopIteration
            try:
                self._background.run(self._take(CHUNK_RECORDS, POLL_MS))
            except Closed:
                raise StopIteration from None
        return self._taken.pop()

    def poll(self, max_records: int | None = None, timeout_ms: float = POLL_MS) -> list[Record]:
        """As many records as are there, as soon as there are any; none when time is up."""

        async def work() -> None:
            self._give_back()
            await self._take(max_records, timeout_ms)

        self._background.run(work())
        found, self._taken = self._taken[::-1], []
        return found

    async def _take(self, max_records: int | None, timeout_ms: float) -> None:
        """In the loop's thread, so that nothing is between two hands."""
        if not self._taken:
            self._taken = (await self._original.poll(max_records, timeout_ms))[::-1]

    def _give_back(self) -> None:
        """What an iteration has taken over and not given is read again."""
        for place, offset in self._not_given().items():
            self._original.seek(place, offset)
        self._taken = []

    def _not_given(self) -> dict[TopicPartition, int]:
        """The first offsets, by partition, of those that are still ours."""
        if not self._taken:
            return {}
        first = {TopicPartition(each.topic, each.partition): each.offset for each in self._taken}
        return self._original._running.handing.still_held(first)

    # -- positions

    def position(self, partition: Place, timeout_ms: float | None = None) -> int:
        """The offset of what is given next; waits until that is known."""

        async def work() -> int:
            found = self._not_given().get(TopicPartition(*partition))
            return found if found is not None else await self._original.position(partition, timeout_ms)

        return self._background.run(work())

    def positions(self) -> dict[TopicPartition, Committed]:
        """What `commit` would commit, of all that is assigned: for a producer that commits it in a transaction.

        Refused, until the next step, when the group took something away of which the program has records in hand."""

        async def work() -> dict[TopicPartition, Committed]:
            return self._positions()

        return self._background.run(work())

    def _positions(self) -> dict[TopicPartition, Committed]:
        try:
            found = self._original.positions()
        except Refused:
            self._give_back()  # of what was lost nothing more is given
            raise
        return {**found, **{place: Committed(offset) for place, offset in self._not_given().items() if place in found}}

    def lag(self, partition: Place) -> int | None:
        """How many offsets are ahead of the position, as of the last fetch; None before that."""

        async def work() -> int | None:
            found = self._original.lag(partition)
            offset = self._not_given().get(TopicPartition(*partition))
            if found is None or offset is None:
                return found
            return found + self._original._running.reading(TopicPartition(*partition)).given - offset

        return self._background.run(work())

    # -- commits

    def commit(self, offsets: Mapping[Place, int | Committed] | None = None, timeout_ms: float | None = None) -> None:
        """These, or without any what the program has got: it is done with all of it."""

        async def work() -> None:
            wanted = offsets
            if offsets is None and self._taken:
                wanted = dict(self._positions().items())
            await self._original.commit(wanted, timeout_ms)

        self._background.run(work())

    def close(self) -> None:
        """What the program has got counts as done with: commits, where that goes by itself, and leaves the group."""
        self._close(is_done=True)

    def _close(self, *, is_done: bool) -> None:
        if not self._background.is_open:
            return

        async def work() -> None:
            if is_done and self._taken:
                self._original._running.handing.finish(self._not_given())
            await self._original._close(is_done=is_done and not self._taken)

        try:
            self._background.run(work())
        finally:
            self._background.close()
