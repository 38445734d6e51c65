"""A consumer: reads records of topics, alone or as a member of a group.

    async with Consumer("orders", bootstrap="127.0.0.1:9092", group="billing") as consumer:
        async for record in consumer:
            ...

What differs from other clients' defaults: where a group has committed nothing, it begins with the earliest record, for reading
too much is noticed and skipping is not; and it reads what is committed (`isolation="read_committed"`), for records of
transactions that were aborted are nobody's wish.

Invariants
 1. A record is done with when the program comes back for more: asks for the next, polls again, or closes the consumer without
    an error. What is done with is what is committed by itself.
 2. A step that is cancelled has taken nothing: the next one gives what it would have given.
 3. One task of a program reads. Any other may pause, seek, commit and look.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from odradek.client.consumer_options import PROPERTIES, Options
from odradek.client.errors import Closed, Corrupt, InvalidOption
from odradek.client.group.choice import Protocol
from odradek.client.group.member import Wanted
from odradek.client.holding import Callback
from odradek.client.lookup import offsets_of_times
from odradek.client.machine import Machine
from odradek.client.properties import options
from odradek.client.reader import Reader
from odradek.client.reading import EARLIEST, LATEST
from odradek.client.records import Batches, Committed, GroupMetadata, Record, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

Place = TopicPartition | tuple[str, int]
Pattern = str | re.Pattern[str]


class Consumer:
    def __init__(
        self,
        *topics: str,
        bootstrap: str | Sequence[str] = "127.0.0.1:9092",
        client_id: str = "odradek",
        pattern: Pattern | None = None,
        group: str | None = None,
        group_instance_id: str | None = None,
        group_protocol: Protocol = "auto",
        assignor: str | Sequence[str] | None = None,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "earliest",
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        max_poll_records: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        max_partition_fetch_bytes: int = 1024 * 1024,
        prefetch_bytes: int = 32 * 1024 * 1024,
        rack: str = "",
        check_crcs: bool = True,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        request_timeout_ms: int = 30_000,
        default_timeout_ms: int = 60_000,
        connect_timeout_ms: int = 10_000,
        retry_backoff_ms: int = 50,
        retry_backoff_max_ms: int = 1_000,
        metadata_max_age_ms: int = 300_000,
        machine: Machine | None = None,
    ) -> None:
        """Without a group, all partitions of the topics are read; with neither topics nor a pattern, what is assigned by hand.

        `prefetch_bytes` bounds the memory of what was fetched and not read. `session_timeout_ms` and `heartbeat_interval_ms`
        are for classic groups: in those of the new protocol the brokers decide. Without `on_lost`, `on_revoked` hears of what
        was lost as well. `default_timeout_ms` is for calls that have no time-out of their own."""
        given = {name: value for name, value in locals().items() if name not in ("self", "topics")}
        self._options = Options(**given)
        self._options.check()
        self._wanted = wanted_of(topics, pattern) if topics or pattern is not None else None
        self._reader: Reader | None = None
        self._is_closed = False

    @classmethod
    def of(cls, properties: Mapping[str, Any], *topics: str, **more: Any) -> Self:
        """With the names that librdkafka and Java have for options."""
        return cls(*topics, **{**options(properties, PROPERTIES), **more})

    # -- its life

    async def start(self) -> None:
        """Reaches the cluster, and joins the group in the background. Whatever comes first does this, if nobody has."""
        if self._is_closed:
            raise Closed("the consumer was closed")
        if self._reader is not None:
            return
        self._reader = reader = Reader(self._options)
        try:
            await reader.start()
            if self._wanted is not None:
                await reader.subscribe(self._wanted)
        except BaseException:
            self._reader = None
            await reader.close(is_done=False)
            raise

    async def close(self) -> None:
        """What the program has got counts as done with: commits, where that goes by itself, and leaves the group."""
        await self._close(is_done=True)

    async def _close(self, *, is_done: bool) -> None:
        reader = self._reader
        if reader is not None:
            reader.holding.check_not_called_back()
        try:
            if reader is not None:
                await reader.close(is_done=is_done)
        finally:
            self._is_closed = True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close(is_done=kind is None)

    async def _started(self) -> Reader:
        if self._reader is None or self._is_closed:
            await self.start()
        assert self._reader is not None
        return self._reader

    @property
    def _running(self) -> Reader:
        if self._reader is None or self._is_closed:
            raise Closed("the consumer is not started" if self._reader is None else "the consumer was closed")
        return self._reader

    # -- reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        reader = self._reader
        if reader is not None:
            for record in reader.handing.coming:
                return record
        if self._is_closed:
            raise StopAsyncIteration
        try:
            return await (await self._started()).next()
        except Closed:
            raise StopAsyncIteration from None

    async def poll(self, max_records: int | None = None, timeout_ms: float = 1_000) -> list[Record]:
        """As many records as are there, as soon as there are any; none when time is up."""
        reader = await self._started()
        count = max_records or self._options.max_poll_records
        return await reader.step(is_iterating=False, take=lambda: reader.handing.give(count), timeout_ms=timeout_ms)

    async def poll_batches(self, max_bytes: int = 1024 * 1024, timeout_ms: float = 1_000) -> list[Batches]:
        """The same, as the brokers sent it, for who decodes whole batches at once: at least one partition's part of an answer,
        more as long as they are fewer bytes than that. Positions are after them then."""
        reader = await self._started()
        return await reader.step(is_iterating=False, take=lambda: reader.handing.give_batches(max_bytes), timeout_ms=timeout_ms)

    async def poll_arrow(
        self, max_bytes: int = 8 * 1024 * 1024, timeout_ms: float = 1_000, columns: Sequence[str] | None = None
    ) -> "pa.Table":
        """The same as a table, without a Python object for any record: key, value, topic, partition, offset, timestamp and
        timestampType, with headers if `columns` names them; fewer columns cost less. Empty when time is up. Needs
        `odradek[arrow]`."""
        from odradek.client.arrow.tables import table_of

        found = await self.poll_batches(max_bytes, timeout_ms)
        try:
            return table_of(found, columns, is_committed=self._options.isolation == "read_committed")
        except Corrupt:
            for each in reversed(found):
                self.seek(each.partition, each.offset)
            raise

    # -- what is read

    async def subscribe(self, *topics: str, pattern: Pattern | None = None) -> None:
        """To these instead of what was subscribed to, or assigned. A pattern matches whole names."""
        self._wanted = wanted_of(topics, pattern)
        if self._reader is None:
            await self.start()
        else:
            await self._running.subscribe(self._wanted)

    async def assign(
        self,
        partitions: Iterable[Place] | Mapping[Place, int | None],
        until: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] = MappingProxyType({}),
    ) -> None:
        """Reads these instead of anything else, from the given offsets, or from what the group has committed, on; and, where
        `until` has an offset, up to that, which nothing is fetched from.

        What the program has got before counts as done with."""
        wanted = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        self._wanted = None
        await (await self._started()).assign(
            {TopicPartition(*place): offset for place, offset in wanted.items()},
            {TopicPartition(*place): offset for place, offset in until.items()},
        )

    async def unsubscribe(self) -> None:
        """Gives all up, done with what the program has got, and leaves the group."""
        self._wanted = None
        self._running.handing.finish()
        await self._running.stop_reading()

    def assignment(self) -> list[TopicPartition]:
        return self._running.holding.places

    def pause(self, *partitions: Place) -> None:
        """Gives nothing of these until they are resumed; without any, nothing of what is assigned now."""
        self._set_paused(partitions, is_paused=True)

    def resume(self, *partitions: Place) -> None:
        self._set_paused(partitions, is_paused=False)

    def paused(self) -> list[TopicPartition]:
        readings = self._running.fetcher.readings
        return sorted(place for place, reading in readings.items() if reading.is_paused)

    def _set_paused(self, partitions: Iterable[Place], *, is_paused: bool) -> None:
        reader = self._running
        reader.handing.interrupt()
        for reading in [reader.reading(place) for place in self._places(partitions)]:
            reading.is_paused = is_paused
        reader.fetching.go_on()
        reader.news.set()

    def _places(self, partitions: Iterable[Place]) -> list[TopicPartition]:
        return [TopicPartition(*place) for place in partitions] or self._running.holding.places

    # -- positions

    def seek(self, partition: Place, offset: int) -> None:
        """Goes on there. What was fetched is dropped; what was given is not taken back."""
        if offset < 0:
            raise InvalidOption(f"there is no offset {offset}")
        fetcher = self._running.fetcher
        self._running.move([TopicPartition(*partition)], lambda reading: fetcher.seek(reading, offset))

    def seek_to_beginning(self, *partitions: Place) -> None:
        self.seek_to_time(EARLIEST, *partitions)

    def seek_to_end(self, *partitions: Place) -> None:
        self.seek_to_time(LATEST, *partitions)

    def seek_to_time(self, timestamp_ms: int, *partitions: Place) -> None:
        """To the first record that is as late or later, or to the end; without partitions, of all that are assigned."""
        fetcher = self._running.fetcher
        self._running.move(self._places(partitions), lambda reading: fetcher.aim(reading, timestamp_ms))

    async def position(self, partition: Place, timeout_ms: float | None = None) -> int:
        """The offset of what is given next; waits until that is known."""
        return await (await self._started()).position(TopicPartition(*partition), timeout_ms)

    def positions(self) -> dict[TopicPartition, Committed]:
        """What `commit` would commit, of all that is assigned: for a producer that commits it in a transaction.

        Refused, until the next step, when the group took something away of which the program has records in hand."""
        return self._running.positions()

    def lag(self, partition: Place) -> int | None:
        """How many offsets are ahead of the position, as of the last fetch; None before that."""
        reader = self._running
        reading = reader.reading(TopicPartition(*partition))
        end = reading.last_stable_offset if reader.fetcher.taste.is_committed else reading.high_watermark
        return max(end - reading.given, 0) if end >= 0 and reading.given >= 0 else None

    async def beginning_offsets(self, *partitions: Place, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        return await self._offsets(dict.fromkeys(partitions, EARLIEST), timeout_ms)

    async def end_offsets(self, *partitions: Place, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """After the last record that can be read."""
        return await self._offsets(dict.fromkeys(partitions, LATEST), timeout_ms)

    async def offsets_for_times(
        self, times: Mapping[Place, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Of the first record that is as late or later; None where there is none."""
        found = await self._offsets(times, timeout_ms)
        return {place: offset if offset >= 0 else None for place, offset in found.items()}

    async def _offsets(self, times: Mapping[Place, int], timeout_ms: float | None) -> dict[TopicPartition, int]:
        reader = await self._started()
        wanted = {TopicPartition(*place): timestamp for place, timestamp in times.items()}
        found = await offsets_of_times(
            reader.cluster, wanted, is_committed=reader.fetcher.taste.is_committed, timeout_ms=timeout_ms
        )
        return {place: each.offset for place, each in found.items()}

    # -- commits

    async def commit(self, offsets: Mapping[Place, int | Committed] | None = None, timeout_ms: float | None = None) -> None:
        """These, or without any what the program has got: it is done with all of it."""
        await (await self._started()).commit(offsets, timeout_ms)

    async def committed(self, *partitions: Place, timeout_ms: float | None = None) -> dict[TopicPartition, Committed]:
        """How far the group is; without what it has committed nothing of. Without partitions, of all that are assigned."""
        reader = await self._started()
        if reader.offsets is None:
            raise InvalidOption("a consumer without a group commits nothing")
        return await reader.offsets.committed(self._places(partitions), timeout_ms)

    def group_metadata(self) -> GroupMetadata:
        """Who speaks for the group, for a producer that commits its offsets in a transaction."""
        if self._options.group is None:
            raise InvalidOption("a consumer without a group speaks for none")
        return self._running.group_metadata()


def wanted_of(topics: Sequence[str], pattern: Pattern | None) -> Wanted:
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if bool(topics) == (text is not None):
        raise InvalidOption("a subscription is to topics by their names, or to a pattern")
    for topic in topics:
        if not isinstance(topic, str) or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic):
            raise InvalidOption(f"{topic!r} is no topic's name; a regular expression is given as pattern=")
    try:
        re.compile(text or "")
    except re.error as error:
        raise InvalidOption(f"pattern={text!r}: {error}") from error
    return Wanted(tuple(dict.fromkeys(topics)), text)
