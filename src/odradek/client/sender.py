"""Sends the batches of an accumulator to the leaders of their partitions, and acts on the answers.

Invariants
 1. REQUESTS_MAX requests are under way to a broker at most; a request has one batch of a partition.
 2. What may have been written is said to be uncertain; what a broker refused before it wrote is not.
 3. Nothing here raises into the program: a batch succeeds, goes again, or fails with a KafkaError.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from odradek.client.accumulator import NEVER_S, Accumulator
from odradek.client.backoff import Backoff
from odradek.client.batches import Batch, Compression
from odradek.client.cluster import Cluster
from odradek.client.errors import KafkaError, Refused, Unreachable, refused
from odradek.client.identity import NAMES_UNTIL, Identity
from odradek.client.lane import NOBODY, Fate, Lane
from odradek.client.metadata import Broker
from odradek.client.records import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ProduceRequest, ProduceResponse

REQUESTS_MAX: Final = 5
MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Sender:
    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        identity: Identity | None,
        compression: Callable[[str], Compression],
        *,
        acks: int,
        request_bytes_max: int,
        on_room: Callable[[], None],
    ) -> None:
        """`on_room` is called when batches have ended."""
        self.cluster = cluster
        self.accumulator = accumulator
        self.identity = identity
        self.compression = compression
        self.acks = acks
        self.request_bytes_max = request_bytes_max
        self.on_room = on_room
        self.loop = cluster.loop
        self.is_closed = False
        self._under_way: dict[int, int] = {}  # requests by broker
        self._connecting: set[int] = set()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._backoffs: dict[TopicPartition, Backoff] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_woken = False
        self._waiters: list[asyncio.Future[None]] = []  # for any answer
        cluster.on_metadata.append(self.wake)
        if identity is not None:
            accumulator.on_failed = identity.failed

    def wake(self) -> None:
        """Something may be ready to leave."""
        if not self._is_woken and not self.is_closed:
            self._is_woken = True
            self.loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_woken = False
        if self.is_closed:
            return
        now_s = self.loop.time()
        next_s = self.accumulator.fail_expired(now_s)
        by_leader: dict[int, list[Lane]] = {}
        is_leader_missing = False
        for lane, due_s in [*self.accumulator.waiting()]:
            if due_s > now_s:
                next_s = min(next_s, due_s)
                continue
            leader = self.cluster.metadata.leader(*lane.place)
            if leader is None:
                is_leader_missing = True
                self._look_again(lane, now_s)
                next_s = min(next_s, lane.not_before_s)
            elif lane.leads(leader) and self._is_admitted(lane):
                by_leader.setdefault(leader, []).append(lane)
        if is_leader_missing:
            self.cluster.refresh_soon()
        for leader, lanes in by_leader.items():
            self._send_to(leader, lanes)
        self._set_timer(next_s)
        self.on_room()

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s < NEVER_S:
            self._timer = self.loop.call_at(at_s, self.wake)

    def _look_again(self, lane: Lane, now_s: float) -> None:
        """Its leader is not known: later."""
        error = self.cluster.metadata.errors.get(lane.place.topic, ErrorCode.LEADER_NOT_AVAILABLE)
        lane.last_error = refused(error, topic=lane.place.topic, partition=lane.place.partition)
        lane.not_before_s = now_s + self._backoff(lane.place)

    def _backoff(self, place: TopicPartition) -> float:
        """Seconds."""
        timing = self.cluster.timing
        found = self._backoffs.get(place)
        if found is None:
            found = Backoff(timing.retry_backoff_ms, timing.retry_backoff_max_ms, self.cluster.machine.random)
            self._backoffs[place] = found
        return found.next_ms() / 1000

    def _is_admitted(self, lane: Lane) -> bool:
        """Whether its first batch may leave, as far as it matters who sends it."""
        identity = self.identity
        if identity is None:
            return True
        owner = identity.owner
        if owner is None or not identity.admits(lane.place):
            return False
        is_another = lane.owner != owner and identity.transactional_id is not None
        if lane.owner == NOBODY or is_another:
            if lane.in_flight:
                return False
            lane.begin_epoch(*owner)
        elif lane.needs_epoch:
            next_owner = identity.next_epoch()
            if next_owner is None:
                return False
            lane.begin_epoch(*next_owner)
        return True

    # -- sending

    def _send_to(self, leader: int, lanes: list[Lane]) -> None:
        connection = self.cluster.connected(leader)
        if connection is None:
            if leader not in self._connecting:
                self._connecting.add(leader)
                self._spawn(self._connect(leader, lanes))
            return
        while lanes and self._under_way.get(leader, 0) < REQUESTS_MAX:
            batches, lanes = self._fill(leader, lanes)
            request = self._request(batches)
            if not self.acks:
                self._send_unanswered(leader, request, batches)
                continue
            answer = connection.post(request, ProduceResponse, self.cluster.timing.request_timeout_ms, self._version_max)
            self._under_way[leader] = self._under_way.get(leader, 0) + 1
            answer.add_done_callback(partial(self._answered, leader, batches))

    @property
    def _version_max(self) -> int:
        return self.identity.produce_version_max if self.identity is not None else NAMES_UNTIL

    def _fill(self, leader: int, lanes: list[Lane]) -> tuple[list[tuple[Lane, Batch]], list[Lane]]:
        """A batch of each lane, as many as fit into a request, and the lanes that are left."""
        identity, taken, size = self.identity, [], 0
        for place, lane in enumerate(lanes):
            batch = lane.take(leader)
            if batch.data is None or batch.identity[0] != -1:
                is_transactional = identity is not None and identity.transactional_id is not None
                batch.stamp(*batch.identity, self.compression(lane.place.topic), is_transactional=is_transactional)
            assert batch.data is not None
            taken.append((lane, batch))
            size += len(batch.data)
            if size >= self.request_bytes_max:
                return taken, lanes[place + 1 :]
        return taken, []

    def _request(self, batches: list[tuple[Lane, Batch]]) -> ProduceRequest:
        topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
        for lane, batch in batches:
            data = ProduceRequest.PartitionProduceData(index=lane.place.partition, records=batch.data)
            topics.setdefault(lane.place.topic, []).append(data)
        return ProduceRequest(
            transactional_id=self.identity.transactional_id if self.identity is not None else None,
            acks=self.acks,
            timeout_ms=self.cluster.timing.request_timeout_ms,
            topic_data=[ProduceRequest.TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )

    def _send_unanswered(self, leader: int, request: ProduceRequest, batches: list[tuple[Lane, Batch]]) -> None:
        connection = self.cluster.connected(leader)
        try:
            if connection is None:
                raise Unreachable(f"the connection to broker {leader} is closed", was_sent=False)
            connection.post_unanswered(request, self._version_max)
        except KafkaError as error:
            self._unanswered(batches, error)
            return
        for lane, batch in batches:
            self.accumulator.succeed(lane, batch, NO_OFFSET, NO_TIMESTAMP)
        self.wake()

    async def _connect(self, leader: int, lanes: list[Lane]) -> None:
        try:
            await self.cluster.connection(leader)
        except KafkaError as error:
            for lane in lanes:
                lane.last_error = error
                lane.not_before_s = self.loop.time() + self._backoff(lane.place)
            self.cluster.refresh_soon()
        finally:
            self._connecting.discard(leader)
            self.wake()

    def _spawn(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))

    # -- answers

    def _answered(self, leader: int, batches: list[tuple[Lane, Batch]], answer: "asyncio.Future[ProduceResponse]") -> None:
        self._under_way[leader] -= 1
        batches = [each for each in batches if not each[1].is_done]  # others were given up when the producer was closed
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        error = answer.exception() if not answer.cancelled() else Unreachable("the request was given up")
        if error is not None:
            assert isinstance(error, KafkaError)
            self._unanswered(batches, error)
            self.cluster.refresh_soon()
            self.wake()
            return
        response = answer.result()
        brokers = [Broker(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
        found = {
            TopicPartition(topic.name, partition.index): partition
            for topic in response.responses
            for partition in topic.partition_responses
        }
        for lane, batch in batches:
            told = found.get(lane.place)
            if told is None:
                self._retry(lane, batch, refused(ErrorCode.UNKNOWN_SERVER_ERROR), is_uncertain=True)
            elif told.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._backoffs.pop(lane.place, None)
                self.accumulator.succeed(lane, batch, told.base_offset, told.log_append_time_ms)
            else:
                if told.current_leader.leader_id >= 0:
                    leads = told.current_leader
                    self.cluster.learn_leader(*lane.place, leads.leader_id, leads.leader_epoch, brokers)
                self._refused(lane, batch, told)
        self.wake()

    def _unanswered(self, batches: list[tuple[Lane, Batch]], error: KafkaError) -> None:
        """The connection is lost; or there was no way to say it to this broker, and there is none if it is tried again."""
        for lane, batch in batches:
            if isinstance(error, Unreachable):
                self._retry(lane, batch, error, is_uncertain=error.was_sent)
            else:
                self.accumulator.fail(lane, batch, error)

    def _refused(self, lane: Lane, batch: Batch, told: ProduceResponse.PartitionProduceResponse) -> None:
        error = refused(told.error_code, told.error_message, topic=lane.place.topic, partition=lane.place.partition)
        if told.record_errors:
            reasons = "; ".join(f"record {each.batch_index}: {each.batch_index_error_message}" for each in told.record_errors)
            error = Refused(error.code, reasons, topic=lane.place.topic, partition=lane.place.partition)
        identity = self.identity
        if error.code in MOVED:
            self.cluster.refresh_soon()
        match lane.refused(batch, error.code, may_renumber=identity is not None and identity.transactional_id is None):
            case Fate.AGAIN:
                self._retry(lane, batch, error, is_uncertain=False)
            case Fate.IN_PARTS:
                self.accumulator.split(lane, batch)
            case Fate.RENUMBERED:
                lane.renumber(batch, error)
            case Fate.GIVEN_UP:
                self.accumulator.fail(lane, batch, identity.judged(error) if identity is not None else error)

    def _retry(self, lane: Lane, batch: Batch, error: KafkaError, *, is_uncertain: bool) -> None:
        if self.is_closed:
            self.accumulator.fail(lane, batch, error)
            return
        not_before_s = self.loop.time() + self._backoff(lane.place)
        lane.retry(batch, error, is_uncertain=is_uncertain, not_before_s=not_before_s)

    # -- the end

    async def quiet(self) -> None:
        """Until no request is under way."""
        while any(self._under_way.values()):
            waiter = self.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    async def close(self) -> None:
        self.is_closed = True
        self._set_timer(NEVER_S)
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
