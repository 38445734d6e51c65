"""Writes records to topics.

    async with Producer("127.0.0.1:9092") as producer:
        await producer.send("orders", b"a book", key=b"alice")        # waits for room, if there is none
        where = await producer.deliver("orders", b"a pen")            # until it is written
        print(where.partition, where.offset)

    async with Producer(transactional_id="transfers") as producer:
        async with producer.transaction():
            await producer.send("debits", b"1")
            await producer.send("credits", b"1")                      # both are visible, or none

Leaving `async with` writes everything that was sent.

Invariants
 1. Nothing is lost in silence: a record is written, or its delivery, the next `flush`, or the end of `async with` raises.
 2. Records of one partition are written in the order in which they were sent, once each (unless `idempotent` is off).
 3. Cancelling whoever waits, anywhere, leaves all that was sent on its way, and the producer usable.
"""

import asyncio
import operator
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from odradek.client.accumulator import Accumulator
from odradek.client.batches import RECORD_OVERHEAD, Compression, Delivery, TableDelivery
from odradek.client.cluster import Cluster
from odradek.client.errors import Closed, InvalidOption, KafkaError, Refused, TimedOut, TransactionFailed
from odradek.client.identity import Idempotent
from odradek.client.lane import Lane
from odradek.client.machine import Machine
from odradek.client.partitioner import Partitioner
from odradek.client.producer_options import PROPERTIES, Options
from odradek.client.properties import options
from odradek.client.records import Committed, Delivered, GroupMetadata, Headers, SharedTransaction, TopicPartition
from odradek.client.sender import Sender
from odradek.client.transaction import State, Transactions
from odradek.wire.errors import ErrorCode
from odradek.wire.records import encode_headers

if TYPE_CHECKING:
    import pyarrow as pa

TIMESTAMP_MAX_MS: Final = 2**62  # so that the difference of two has room in a batch

HeadersGiven = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]


class Topic:
    """A topic that is written to: its lanes, and how its records find them."""

    def __init__(self, partitioner: Partitioner, lanes: dict[int, Lane]) -> None:
        self.partitioner = partitioner
        self.lanes = lanes
        self.keyless_rows = 0  # of tables, so far


class Producer:
    def __init__(
        self,
        bootstrap: str | list[str] = "127.0.0.1:9092",
        *,
        client_id: str = "odradek",
        acks: Literal["all"] | int = "all",
        idempotent: bool | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        compression: str = "auto",
        compression_level: int | None = None,
        linger_ms: float = 5,
        batch_size: int = 128 * 1024,
        buffer_memory: int = 32 * 1024 * 1024,
        request_bytes_max: int = 1024 * 1024,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        default_timeout_ms: int = 60_000,
        connect_timeout_ms: int = 10_000,
        retry_backoff_ms: int = 50,
        retry_backoff_max_ms: int = 1_000,
        metadata_max_age_ms: int = 300_000,
        machine: Machine | None = None,
    ) -> None:
        """`compression`: none, gzip, snappy, lz4, zstd, or auto: lz4 for batches that it makes smaller.

        `linger_ms`: how long a record waits for others to go with it, unless a batch is full before that. `delivery_timeout_ms`:
        how long a record may take, tries and waits included; of one that took longer nobody knows whether it was written.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        self.options = chosen = Options(**given)
        chosen.check()
        self.accumulator = Accumulator(
            batch_size=batch_size,
            buffer_memory=buffer_memory,
            linger_s=linger_ms / 1000,
            delivery_timeout_s=delivery_timeout_ms / 1000,
            is_idempotent=chosen.is_idempotent,
        )
        self.transactions: Transactions | None = None
        self.identity: Transactions | Idempotent | None = None
        self._sender: Sender
        self._cluster: Cluster | None = None
        self._topics: dict[str, Topic] = {}
        self._compressions: dict[str, Compression] = {}
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()  # for room
        self._flushing = 0
        self.is_closed = False

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Self:
        """One with properties as librdkafka and Java name them: `Producer.of({"bootstrap.servers": "…", "linger.ms": 5})`."""
        return cls(**options(properties, PROPERTIES))

    async def start(self) -> None:
        """Connects to the cluster; `async with` does it. KafkaError when nobody is there."""
        assert self._cluster is None, "it has been started"
        chosen = self.options
        cluster = self._cluster = Cluster(
            chosen.bootstrap, client_id=chosen.client_id, timing=chosen.timing(), machine=chosen.machine, auto_creates=True
        )
        self.wall_ms, self.now_s = cluster.machine.wall_ms, cluster.loop.time
        if chosen.transactional_id is not None:
            self.transactions = Transactions(
                cluster,
                chosen.transactional_id,
                chosen.transaction_timeout_ms,
                self._wake,
                self.accumulator.drop_unsent,
            )
        identity = self.transactions or (
            Idempotent(cluster, self._wake, self.accumulator.drop_unsent) if chosen.is_idempotent else None
        )
        self.identity = identity
        self._sender = Sender(
            cluster,
            self.accumulator,
            identity,
            self._compression,
            acks=chosen.acks_number,
            request_bytes_max=chosen.request_bytes_max,
            on_room=self._let_in,
        )
        cluster.on_metadata.append(self._learn)
        try:
            await cluster.insist("to connect", cluster.refresh)
        except BaseException:
            self._cluster = None
            await cluster.close()
            raise

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.close(is_hasty=error is not None)

    # -- sending

    async def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Takes a record on its way, once there is room for it. What it gives can be awaited: where the record is."""
        transactions, number = self.transactions, self._check()
        found = self._topics.get(topic) or await self._topic_for(topic, number)
        if type(value) is not bytes and value is not None:
            value = bytes_of(value)
        if type(key) is not bytes and key is not None:
            key = bytes_of(key)
        partitioner = found.partitioner
        if partition is None:
            partition = partitioner.current if key is None else partitioner.of_key(key)
        lane = found.lanes.get(partition)
        if lane is None:
            lane = await self._lane(found, topic, partition, number)
        given: Headers = ()
        size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
        if headers:
            given = headers_of(headers)
            size += len(encode_headers(given))
        accumulator = self.accumulator
        if accumulator.held_bytes + size > accumulator.buffer_memory or self._waiters:
            await self._room(size)
        if self.is_closed:  # meanwhile
            raise Closed("the producer was closed")
        if transactions is not None:
            transactions.check_same(number)
        entry = (key, value, self.wall_ms() if timestamp_ms is None else moment_of(timestamp_ms), given)
        delivery, is_news = accumulator.append(lane, entry, size, self.now_s())
        if is_news:
            self._sender.wake()
            if key is None and len(lane.queue) > 1:
                partitioner.move_on()
        return delivery

    async def deliver(
        self,
        topic: str,
        value: bytes | str | None = None,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivered:
        """Sends a record, and waits until it is written."""
        sent = await self.send(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
        return await sent

    async def send_arrow(self, topic: str, table: "pa.Table | pa.RecordBatch") -> TableDelivery:
        """Takes the rows of an Arrow table on their way, once there is room for them: without a Python object for any of them.

        The table has a column `value`, and may have `key`, `headers` (a list of structs of key and value), `timestamp` and
        `partition`. What this gives can be awaited: where the rows are. Needs `odradek[arrow]`."""
        from odradek.client.arrow.encode import codec_that_pays, encode

        number = self._check()
        found = self._topics.get(topic) or await self._topic_for(topic, number)
        partitioner = found.partitioner
        encoded = encode(
            table,
            partitioner.count,
            now_ms=self.wall_ms(),
            codec=codec_that_pays(table, partitioner.count, self._compression(topic)),
            level=self.options.compression_level,
            turns=partitioner.candidates,
            keyless_rows=found.keyless_rows,
        )
        found.keyless_rows = encoded.keyless_rows
        return await self._send_built(found, topic, encoded.batches, number)

    async def send_batches(self, topic: str, batches: Iterable[tuple[int, int, bytearray]]) -> TableDelivery:
        """Takes record batches on their way that were built elsewhere (`odradek.client.arrow.encode`): the partition of each,
        its number of records, and its bytes, which are changed here."""
        number = self._check()
        found = self._topics.get(topic) or await self._topic_for(topic, number)
        return await self._send_built(found, topic, batches, number)

    async def _send_built(
        self, topic: Topic, name: str, batches: Iterable[tuple[int, int, bytearray]], number: int
    ) -> TableDelivery:
        transactions, accumulator = self.transactions, self.accumulator
        taken = []
        for partition, count, data in batches:
            lane = topic.lanes.get(partition) or await self._lane(topic, name, partition, number)
            if not accumulator.has_room(len(data)) or self._waiters:
                await self._room(len(data))
            if self.is_closed:  # meanwhile
                raise Closed("the producer was closed")
            if transactions is not None:
                transactions.check_same(number)
            taken.append(accumulator.append_built(lane, data, count, self.now_s()))
            self._sender.wake()
        return TableDelivery(taken)

    def _check(self) -> int:
        """Raises when nothing may be sent now; gives which transaction it would be in."""
        if self.is_closed:
            raise Closed("the producer was closed")
        return 0 if self.transactions is None else self.transactions.check()

    @contextmanager
    def _taking(self, number: int) -> Iterator[None]:
        """A record into a transaction: when that fails, it is not to be committed without."""
        try:
            yield
        except KafkaError as error:
            if self.transactions is not None:
                self.transactions.left_out(number, error)
            raise

    async def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic."""
        return sorted((await self._topic(topic)).partitioner.topic.partitions)

    async def _topic_for(self, name: str, number: int) -> Topic:
        with self._taking(number):
            return await self._topic(name)

    async def _topic(self, name: str) -> Topic:
        info = await self._running.topic(name)
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = Topic(Partitioner(info, self._running.machine.random), {})
            self._learn_lanes(name, found)
        return found

    def _learn_lanes(self, name: str, topic: Topic) -> None:
        for index in topic.partitioner.topic.partitions:
            if index not in topic.lanes:
                topic.lanes[index] = self.accumulator.lane(TopicPartition(name, index))

    def _learn(self) -> None:
        """There are news of the cluster."""
        topics = self._running.metadata.topics
        for name, found in self._topics.items():
            info = topics.get(name)
            if info is not None and info is not found.partitioner.topic:
                found.partitioner.learn(info)
                self._learn_lanes(name, found)

    async def _lane(self, found: Topic, name: str, partition: int, number: int) -> Lane:
        """Of a partition that is not known: it may be new."""
        cluster = self._running

        async def attempt() -> Lane:
            await cluster.refresh()
            lane = found.lanes.get(partition)
            if lane is None:
                there = f"the topic has {found.partitioner.count} partitions"
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, there, topic=name, partition=partition)
            return lane

        with self._taking(number):
            return await cluster.insist(f"to find partition {partition} of {name}", attempt)

    async def _room(self, size: int) -> None:
        """Waits until there is room, after those who wait already."""
        accumulator = self.accumulator
        waiter = self._running.loop.create_future()
        self._waiters.append((size, waiter))
        accumulator.is_urgent = True
        self._sender.wake()
        try:
            await waiter
        except BaseException:
            self._waiters = deque(each for each in self._waiters if each[1] is not waiter)
            self._let_in()
            raise

    def _let_in(self) -> None:
        """Some of those who wait, as far as there is room: what each takes is there for it until it has its turn."""
        waiters, accumulator = self._waiters, self.accumulator
        expected = accumulator.held_bytes
        while waiters and (expected + waiters[0][0] <= accumulator.buffer_memory or not expected):
            size, waiter = waiters.popleft()
            expected += size
            if not waiter.done():
                waiter.set_result(None)
        accumulator.is_urgent = bool(waiters or self._flushing)

    # -- the end of what was sent

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Until everything that was sent before has been written. Raises what became of the first record that was not, unless
        somebody has heard of that by its delivery."""
        await self._drain(timeout_ms)
        error = self.accumulator.take_unseen()
        if error is not None:
            raise error

    async def _drain(self, timeout_ms: float | None = None) -> None:
        accumulator = self.accumulator
        self._flushing += 1
        accumulator.is_urgent = True
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                for lane in [*accumulator.active.values()]:
                    lane.open = None
                    for batch in [*lane.in_flight, *lane.queue]:
                        self._sender.wake()
                        await batch.wait()
        except TimeoutError:
            raise TimedOut(f"not everything was written within {timeout_ms:.0f} ms; it is still on its way") from None
        finally:
            self._flushing -= 1
            self._let_in()

    # -- transactions

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["Producer"]:
        """What is sent within it is visible to others together, when it is left, or not at all, when that is by an exception."""
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            await self.abort_transaction()
            raise

    async def begin_transaction(self) -> None:
        """For who cannot use `async with producer.transaction()`: it has to be committed or aborted."""
        await self._transactional.begin()

    def share_transaction(self) -> SharedTransaction:
        """The transaction that is open, for producers of other processes: each writes to other partitions than all the rest.
        What they had has to be written before it is committed here."""
        return self._transactional.share()

    def join_transaction(self, shared: SharedTransaction) -> None:
        """Sends in a transaction that another producer has begun, until the next is joined; `flush` tells whether all of it is
        written."""
        if self.accumulator.active:
            raise InvalidOption("what was sent in the last transaction is not written yet: flush first")
        self._transactional.join(shared)

    async def commit_transaction(self) -> None:
        """TransactionFailed when it has to be aborted instead."""
        transactions = self._transactional
        with transactions.ending():
            await self._drain()
            self.accumulator.take_unseen()
            await transactions.end(is_commit=True)

    async def abort_transaction(self) -> None:
        """As far as that is possible: whoever was fenced has nothing to abort."""
        transactions = self._transactional
        given_up = TransactionFailed("the transaction was aborted", transactional_id=self.options.transactional_id)
        with transactions.ending():
            while self.accumulator.active:
                self.accumulator.drop_unsent(given_up)
                await self._sender.quiet()
            self.accumulator.take_unseen()
            if transactions.state in (State.OPEN, State.FAILED):
                await transactions.end(is_commit=False)

    @property
    def _transactional(self) -> Transactions:
        if self.transactions is None:
            raise InvalidOption("transactions need a producer that was started with a transactional_id")
        return self.transactions

    async def send_offsets(self, offsets: Mapping[TopicPartition, Committed | int], group: GroupMetadata | str) -> None:
        """How far a group has read, within the transaction: `consumer.group_metadata()` says who reads."""
        given = {
            TopicPartition(*place): each if isinstance(each, Committed) else Committed(each) for place, each in offsets.items()
        }
        await self._transactional.send_offsets(given, GroupMetadata(group) if isinstance(group, str) else group)

    # -- inside

    @property
    def _running(self) -> Cluster:
        if self._cluster is None or self.is_closed:
            raise Closed("the producer was closed" if self.is_closed else "the producer was not started: use `async with`")
        return self._cluster

    def _wake(self) -> None:
        self._sender.wake()

    def _compression(self, topic: str) -> Compression:
        found = self._compressions.get(topic)
        if found is None:
            found = self._compressions[topic] = Compression(self.options.codec, self.options.compression_level)
        return found

    async def close(self, *, is_hasty: bool = False) -> None:
        """Writes what was sent, and leaves. With `is_hasty`, what is not written yet is given up."""
        if self.is_closed or self._cluster is None:
            return
        failed: KafkaError | None = None
        try:
            if not is_hasty:
                await self.flush()
        except KafkaError as error:
            failed = error
        finally:
            self.is_closed = True
            try:
                await self._sender.close()
                if self.identity is not None:
                    await self.identity.close()
                await self._cluster.close()
            finally:
                self._give_up()
        if failed is not None:
            raise failed

    def _give_up(self) -> None:
        """What is not written, and who waits to send more."""
        self.accumulator.drop_unsent(Closed("the producer was closed before the record was written"))
        for lane in [*self.accumulator.active.values()]:
            for batch in [*lane.in_flight]:
                self.accumulator.fail(lane, batch, Closed("the producer was closed before the record was acknowledged"))
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(Closed("the producer was closed"))


def bytes_of(given: bytes | str) -> bytes:
    """A key or a value. What is none is refused here: in a batch it would spoil it for others."""
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"a key or a value is bytes or str, not {type(given).__name__}")


def moment_of(timestamp_ms: int) -> int:
    moment = operator.index(timestamp_ms)
    if abs(moment) > TIMESTAMP_MAX_MS:
        raise InvalidOption(f"timestamp_ms={moment} is no time")
    return moment


def headers_of(given: HeadersGiven) -> Headers:
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)
