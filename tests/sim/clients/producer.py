"""A producer: any acks, idempotent or plain, in the versions of its era.

Invariants
 1. What is sent to a partition leaves on one connection in the order of its lane (lane.py), which says what is sent again.
 2. An idempotent producer has one id; its epoch is bumped when a batch failed for good.
 3. Without acks nothing is waited for, and nothing is known.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from typing import Final, NamedTuple

import msgspec

from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse
from odradek.wire.records import Record, build
from tests.checker.history import SendBegun, Source, text
from tests.sim.clients.connection import Connection, Lost
from tests.sim.clients.lane import Batch, Lane
from tests.sim.clients.program import Place, Program
from tests.sim.clients.tasks import Tasks
from tests.sim.clients.view import View

IN_FLIGHT_MAX: Final = 5
EPOCH_MAX: Final = 0x7FFF
PRODUCE_WITH_ZSTD: Final = 7
PRODUCE_WITH_IDS: Final = 13
LOOK_SECONDS: Final = 0.05  # how often a lane looks whether a deadline has passed
MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Manner(msgspec.Struct, frozen=True):
    """How a producer was configured."""

    acks: int = -1
    is_idempotent: bool = True
    codec: Codec = Codec.NONE
    in_flight_max: int = IN_FLIGHT_MAX
    delivery_seconds_max: float = 30.0
    request_seconds_max: float = 4.0

    @classmethod
    def chosen(cls, chance: random.Random, **fixed: float) -> "Manner":
        is_idempotent = chance.random() < 0.5
        acks = -1 if is_idempotent else chance.choice([-1, -1, 1, 0])
        codec = chance.choice([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
        in_flight_max = chance.randint(1, IN_FLIGHT_MAX) if is_idempotent else 1  # a plain one keeps its order that way
        made = cls(acks, is_idempotent, codec, in_flight_max)
        return msgspec.structs.replace(made, **fixed) if fixed else made


class Sent(NamedTuple):
    """An attempt."""

    at_s: float
    is_late: bool  # nothing of it may be taken
    seconds: float = 0.0  # until the answer


class Producer:
    def __init__(self, program: Program, manner: Manner) -> None:
        self.program = program
        self.manner = manner
        self.view = View(program)
        self.lanes: dict[Place, Lane] = {}
        self.producer_id = -1
        self.epoch = -1
        self.transactional_id: str | None = None
        self.transaction: int | None = None  # the open one, by the name that the history has for it
        self._identifying = asyncio.Lock()
        self._changed: dict[Place, asyncio.Event] = {}
        self._tasks = Tasks(program)

    # -- for those who produce

    def send(
        self, place: Place, entries: Sequence[tuple[bytes | None, bytes | None]], sources: Sequence[Source] | None = None
    ) -> None:
        """One batch, which ends as acknowledged, refused or unknown in the history."""
        program, manner = self.program, self.manner
        ids = [program.history.next_id() for _ in entries]
        for send, (key, value), source in zip(ids, entries, sources or repeat(None)):
            program.tell(
                SendBegun(
                    program.at_ms,
                    program.name,
                    send,
                    place.topic,
                    place.index,
                    text(key),
                    text(value),
                    program.name,
                    manner.acks,  # type: ignore[arg-type]
                    manner.is_idempotent,
                    self.transaction,
                    source,
                )
            )
        deadline_s = program.loop.time() + manner.delivery_seconds_max
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = Lane(program, place, manner.in_flight_max, manner.is_idempotent)
            self._changed[place] = asyncio.Event()
            self._tasks.start(self._pump(lane, self._changed[place]))
        lane.batches.append(Batch(ids, list(entries), deadline_s, program.machine.wall_ms()))
        self._changed[place].set()

    @property
    def unfinished(self) -> int:
        return sum(len(lane.batches) for lane in self.lanes.values())

    @property
    def acknowledged(self) -> int:
        return sum(lane.outcomes["acknowledged"] for lane in self.lanes.values())

    async def flush(self) -> None:
        """Until every send has ended: each does, at its deadline at the latest."""
        while self.unfinished:  # noqa: ASYNC110 - of many lanes
            await asyncio.sleep(LOOK_SECONDS)

    async def close(self) -> None:
        """Ends without a word, like a program that is killed: what has not ended is unknown."""
        await self._tasks.cancel()
        self.view.close()

    # -- how it is done

    async def _pump(self, lane: Lane, changed: asyncio.Event) -> None:
        while True:
            batch = lane.next()
            if batch is None:
                changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(lane.wake_s):
                        await changed.wait()
                continue
            try:
                await self._attempt(lane, batch, changed)
            except Lost as error:
                batch.error = str(error)
                lane.back_off()
                with suppress(Lost):
                    await self.view.refresh([lane.place.topic])

    async def _attempt(self, lane: Lane, batch: Batch, changed: asyncio.Event) -> None:
        led = await self.view.led(lane.place)
        await self._prepare(lane.place)
        connection = await self.view.connection(led.leader, "produce")
        if batch is not lane.next():
            return  # it ended meanwhile, or another one has to go first
        topic_id = self.view.topic_id(lane.place.topic)
        if not lane.send_to(led.leader, topic_id):
            changed.clear()
            await changed.wait()
            return
        if self.manner.is_idempotent:
            if lane.is_bumped and lane.epoch == self.epoch:
                self._bump()
            lane.number(batch, self.epoch)
        version = self._version(connection)
        request = self._request(lane.place, batch, version)
        batch.attempts += 1
        if version >= PRODUCE_WITH_IDS and topic_id != NIL_UUID:
            batch.topic_ids.append(topic_id.hex())
        if self.manner.acks == 0:
            if connection.post_unanswered(request, version):
                lane.end(batch, "unknown")
            return
        batch.is_under_way = True
        sent = Sent(self.program.loop.time(), self.is_overtaken)
        answer = connection.post(request, version, ProduceResponse, self.manner.request_seconds_max)
        self._tasks.start(self._settle(lane, batch, sent, answer, changed))

    @property
    def is_overtaken(self) -> bool:
        """Whether another producer has its id in a newer epoch, so that nothing of what is sent now may be taken."""
        return False

    def _check_answer(self, batch: Batch, sent: Sent, told: ProduceResponse.PartitionProduceResponse) -> None:
        """What must not be answered to this producer."""

    async def _settle(
        self, lane: Lane, batch: Batch, sent: Sent, answer: "asyncio.Future[ProduceResponse]", changed: asyncio.Event
    ) -> None:
        try:
            found = await answer
        except Lost as error:
            lane.lost(batch, str(error))
            changed.set()
            with suppress(Lost):
                await self.view.refresh()
            return
        sent = sent._replace(seconds=self.program.loop.time() - sent.at_s)
        (told,) = found.responses[0].partition_responses
        code = ErrorCode(told.error_code)
        if code == ErrorCode.NONE:
            lane.end(batch, "acknowledged", base_offset=told.base_offset)
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and batch.sequence >= 0:
            lane.end(batch, "acknowledged", code.name)  # it is there, and nobody remembers where
        else:
            self.view.heard(lane.place, told.current_leader, found.node_endpoints)
            lane.refused(batch, code)
            if code in MOVED and told.current_leader.leader_id < 0:
                with suppress(Lost):
                    await self.view.refresh()
        changed.set()
        self._check_answer(batch, sent, told)

    def _version(self, connection: Connection) -> int:
        version = self.view.version(ProduceRequest, connection)
        return max(version, PRODUCE_WITH_ZSTD) if self.manner.codec == Codec.ZSTD else version

    def _request(self, place: Place, batch: Batch, version: int) -> ProduceRequest:
        entries = [Record(number, batch.timestamp_ms, key, value) for number, (key, value) in enumerate(batch.entries)]
        producer_id = self.producer_id if batch.sequence >= 0 else -1
        data = build(
            entries,
            codec=self.manner.codec,
            producer_id=producer_id,
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
            transactional=self.transactional_id is not None,
        )
        topic = ProduceRequest.TopicProduceData(
            name=place.topic if version < PRODUCE_WITH_IDS else "",
            topic_id=self.view.topic_id(place.topic),
            partition_data=[ProduceRequest.PartitionProduceData(index=place.index, records=data)],
        )
        timeout_ms = int(self.manner.request_seconds_max * 750)
        return ProduceRequest(
            transactional_id=self.transactional_id, acks=self.manner.acks, timeout_ms=timeout_ms, topic_data=[topic]
        )

    # -- who it is

    async def _prepare(self, place: Place) -> None:
        """What has to be so before a batch is sent there."""
        del place
        if self.manner.is_idempotent:
            await self._identify()

    async def _identify(self) -> None:
        async with self._identifying:
            if self.producer_id >= 0:
                return
            node = await self.view.any_broker()
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
            answer = await self.view.ask(node, "identity", request, InitProducerIdResponse)
            if answer.error_code:
                raise Lost(f"InitProducerId: {ErrorCode(answer.error_code).name}")
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def _bump(self) -> None:
        assert self.epoch < EPOCH_MAX, "a run has far fewer failures than there are epochs"
        self.epoch += 1
