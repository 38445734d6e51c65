"""Reads records of topics, for programs with threads: `odradek.Consumer`, without async and await.

    with Consumer("orders", bootstrap="127.0.0.1:9092", group="billing") as consumer:
        for record in consumer:
            ...

Iterating takes CHUNK_RECORDS at a time over from the loop's thread.

Invariants
 1. What was taken over and not given to the program is not done with: it is neither committed, nor lost to another member. So is
    what comes when somebody who waits for it is interrupted.
"""

from collections.abc import Mapping
from typing import Any, Final, Self

from odradek.client.consumer import Consumer as AsyncConsumer
from odradek.client.consumer import Place
from odradek.client.errors import Closed
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
        if self._taken:
            assigned = self._original.assignment()
            for place, offset in self._not_given().items():
                if place in assigned:
                    self._original.seek(place, offset)
            self._taken = []

    def _not_given(self) -> dict[TopicPartition, int]:
        """The first offsets, by partition."""
        return {TopicPartition(each.topic, each.partition): each.offset for each in self._taken}

    # -- commits

    def commit(self, offsets: Mapping[Place, int | Committed] | None = None, timeout_ms: float | None = None) -> None:
        """These, or without any what the program has got: it is done with all of it."""

        async def work() -> None:
            await self._original.commit(self._given() if offsets is None else offsets, timeout_ms)

        self._background.run(work())

    def _given(self) -> dict[Place, int | Committed] | None:
        """What the program has got, where that is less than what was taken over."""
        if not self._taken:
            return None
        found: dict[Place, int | Committed] = {place: each for place, each in self._original.positions().items()}  # noqa: C416
        return {**found, **{place: offset for place, offset in self._not_given().items() if place in found}}

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
