"""The reading half of any consumer: positions, polls, and what to do when a partition is not what it was.

Invariants
 1. A position only moves by records that a poll gave, past what holds none, or by a move that the history is told.
 2. What was fetched for a partition that was taken away, or moved, meanwhile is thrown away.
 3. A position is in a topic, not in a name: in one that was made anew reading begins anew, where the era has ids.
 4. After every change of leader a position is checked against the new one's epochs, by OffsetForLeaderEpoch or by the fetch
    itself, where the era has epochs.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Literal

import msgspec

from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import FetchRequest, FetchResponse
from tests.checker import history
from tests.sim.clients.batches import take
from tests.sim.clients.connection import Lost
from tests.sim.clients.offsets import EARLIEST, LATEST, end_of_epoch, list_offset
from tests.sim.clients.program import Place, Program
from tests.sim.clients.session import Key, Session
from tests.sim.clients.view import View

ANSWER_SECONDS_MAX: Final = 4.0  # beyond the time that the node was asked to wait
FETCH_WITH_SESSIONS: Final = 7
FETCH_WITH_RACKS: Final = 11
FETCH_WITH_DIVERGENCE: Final = 12
FETCH_WITH_IDS: Final = 13
UNKNOWN: Final = history.UNKNOWN_OFFSET
SESSION_GONE: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Taste(msgspec.Struct, frozen=True):
    """How a consumer was configured."""

    has_sessions: bool = True
    max_wait_ms: int = 200
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    isolation: history.Isolation = "read_uncommitted"
    rack: str = ""
    sends_last_epoch: bool = False
    resets_to: Literal["earliest", "latest"] = "earliest"

    @classmethod
    def chosen(cls, chance: random.Random, rack: str = "") -> "Taste":
        isolation: history.Isolation = chance.choice(["read_uncommitted", "read_committed"])
        return cls(
            has_sessions=chance.random() < 0.7,
            max_wait_ms=chance.choice([0, 200, 1000]),
            min_bytes=chance.choice([1, 1, 500]),
            max_bytes=chance.choice([1000, 4096, 1 << 20]),
            isolation=isolation,
            rack=rack if chance.random() < 0.5 else "",
            sends_last_epoch=chance.random() < 0.5,
        )


class Position(msgspec.Struct):
    offset: int
    last_epoch: int = -1  # of the last batch that was read
    checked_epoch: int = -1  # of the leader that this position was checked with
    replica: int = -1  # where to read instead of from the leader
    topic_id: bytes = NIL_UUID  # of the topic that it is in, once that is known


Why = Literal["seek", "out of range", "diverged"]
Refusal = tuple[Place, Position, FetchResponse.PartitionData, FetchResponse]


class Fetcher:
    def __init__(self, program: Program, view: View, taste: Taste) -> None:
        self.program = program
        self.view = view
        self.taste = taste
        self.positions: dict[Place, Position] = {}
        self.records_read = 0
        self.transaction: Callable[[], int | None] = lambda: None  # the open one, if there is one: polls are a part of it
        self.on_records: Callable[[list[history.Record]], None] = lambda _: None  # is told what a poll gives, when it does
        self.follows_names = True  # or somebody else says what is read in place of a topic that was made anew
        self.corrupt = 0
        self._sessions: dict[int, Session] = {}

    # -- what is read

    def begin(self, place: Place, offset: int = UNKNOWN, epoch: int = -1, topic_id: bytes = NIL_UUID) -> None:
        self.positions[place] = Position(offset, epoch, topic_id=topic_id)

    def forget(self, place: Place) -> None:
        self.positions.pop(place, None)

    def seek(self, place: Place, offset: int, why: Why = "seek") -> None:
        topic_id = self.positions[place].topic_id if place in self.positions else NIL_UUID
        self.positions[place] = Position(offset, topic_id=topic_id)
        told = self.told_ids([place]).get(place.topic, "")
        self.program.tell(history.Moved(self.program.at_ms, self.program.name, place.topic, place.index, offset, why, told))

    def told_ids(self, places: Iterable[Place]) -> history.Ids:
        """Of the topics in which positions are, where they are read by their ids. One that has been made anew since some of its
        partitions were looked at has none."""
        found: dict[str, set[bytes]] = {}
        for place in places:
            found.setdefault(place.topic, set()).add(self.positions[place].topic_id)
        sure = {topic: next(iter(ids)).hex() for topic, ids in found.items() if len(ids) == 1 and NIL_UUID not in ids}
        return sure if self.program.era.has_ids("Fetch") else {}

    async def poll(self) -> int:
        """How many records there were: none also when nobody answered."""
        program = self.program
        program.tell(history.PollBegun(program.at_ms, program.name))
        transaction = self.transaction()
        fetches: dict[int, dict[Place, Position]] = {}
        for place, position in list(self.positions.items()):
            with suppress(Lost):
                node = await self._ready(place, position)
                if node is not None and self.positions.get(place) is position:
                    fetches.setdefault(node, {})[place] = position
        answers = await asyncio.gather(*(self._fetch(node, wanted) for node, wanted in fetches.items()))
        polled = history.Polled(0, program.name, isolation=self.taste.isolation)
        refused: list[Refusal] = []
        for answer, wanted in zip(answers, fetches.values()):
            if answer is not None:
                refused += self._take(answer, wanted, polled)
        polled.at_ms = program.at_ms
        polled.transaction = transaction if transaction == self.transaction() else None
        self.on_records(polled.records)
        program.tell(polled)  # before anything else is waited for, so that nobody knows a position that no poll has told
        self.records_read += len(polled.records)
        with suppress(Lost):
            for each in refused:
                await self._refused(*each)
            if not fetches or None in answers:
                await self.view.refresh(place.topic for place in self.positions)
        return len(polled.records)

    # -- before a fetch

    async def _ready(self, place: Place, position: Position) -> int | None:
        """The node to fetch from; None when the position has just been moved."""
        is_another = self._is_another(place, position)
        if is_another and not self.follows_names:
            return None
        if position.offset == UNKNOWN or is_another:
            await self._reset(place, position, "seek")
            return None
        led = await self.view.led(place)
        if position.checked_epoch < led.epoch:
            is_by_fetch = self.taste.sends_last_epoch
            if position.last_epoch >= 0 and position.checked_epoch >= 0 and not is_by_fetch:
                epoch, end_offset = await end_of_epoch(self.view, place, position.last_epoch)
                if self.positions.get(place) is not position:
                    return None
                if epoch < 0:
                    await self._reset(place, position, "diverged")
                    return None
                if end_offset < position.offset:
                    self.seek(place, end_offset, "diverged")
                    return None
            position.checked_epoch = led.epoch
            position.replica = -1
        return position.replica if position.replica in self.view.brokers else led.leader

    def _is_another(self, place: Place, position: Position) -> bool:
        """Whether the topic was made anew, as far as is known."""
        return NIL_UUID != self.view.topic_id(place.topic) != position.topic_id != NIL_UUID

    async def _reset(self, place: Place, position: Position, why: Why) -> None:
        """Begins anew, where the topic begins or ends, if nobody has moved the position meanwhile. That is asked by the name: the
        topic may be another by now, which is read only by who follows names. Who goes back because of what the log is like asks
        who has answered whether it is."""
        timestamp = EARLIEST if self.taste.resets_to == "earliest" else LATEST
        led = await self.view.led(place)
        offset = await list_offset(self.view, place, timestamp, is_committed=self.taste.isolation == "read_committed")
        if why != "seek" and position.topic_id != NIL_UUID:
            await self.view.look(led.leader, place.topic)
            if self.view.topic_id(place.topic) == NIL_UUID:
                return  # nobody can tell what the answer was of; the next poll asks again
        is_another = self._is_another(place, position)
        if self.positions.get(place) is position and (self.follows_names or not is_another):
            if is_another or position.topic_id == NIL_UUID:
                position.topic_id = self.view.topic_id(place.topic)
            self.seek(place, offset, "seek" if is_another else why)

    # -- the fetch

    async def _fetch(self, node: int, wanted: dict[Place, Position]) -> FetchResponse | None:
        taste = self.taste
        session = self._sessions.setdefault(node, Session(taste.has_sessions))
        try:
            connection = await self.view.connection(node, "fetch")
            version = self.view.version(FetchRequest, connection)
            request = FetchRequest(
                max_wait_ms=taste.max_wait_ms,
                min_bytes=taste.min_bytes,
                max_bytes=taste.max_bytes,
                isolation_level=int(taste.isolation == "read_committed"),
                rack_id=taste.rack,
            )
            if version < FETCH_WITH_SESSIONS:
                session = Session(is_used=False)
            session.fill(request, self._partitions(wanted, version))
            answer = await connection.ask(request, version, FetchResponse, taste.max_wait_ms / 1000 + ANSWER_SECONDS_MAX)
        except Lost:
            session.lost()
            for position in wanted.values():
                position.replica = -1
            return None
        if answer.error_code:
            assert ErrorCode(answer.error_code) in SESSION_GONE or ErrorCode(answer.error_code).retriable, answer.error_code
            session.lost()
            return None
        session.answered(answer.session_id)
        return answer

    def _partitions(self, wanted: dict[Place, Position], version: int) -> dict[Key, FetchRequest.FetchPartition]:
        found: dict[Key, FetchRequest.FetchPartition] = {}
        for place, position in sorted(wanted.items()):
            led = self.view.known(place)
            if position.topic_id == NIL_UUID:
                position.topic_id = self.view.topic_id(place.topic)
            sends_last = self.taste.sends_last_epoch and version >= FETCH_WITH_DIVERGENCE
            name, topic_id = ("", position.topic_id) if version >= FETCH_WITH_IDS else (place.topic, NIL_UUID)
            found[name, topic_id, place.index] = FetchRequest.FetchPartition(
                partition=place.index,
                current_leader_epoch=led.epoch if led else -1,
                fetch_offset=position.offset,
                last_fetched_epoch=position.last_epoch if sends_last else -1,
                partition_max_bytes=self.taste.max_bytes,
            )
        return found

    # -- the answer

    def _take(self, answer: FetchResponse, wanted: dict[Place, Position], polled: history.Polled) -> list[Refusal]:
        """Moves positions past what was given; gives what was refused."""
        refused: list[Refusal] = []
        for topic in answer.responses:
            name = topic.topic or self.view.topic_name(topic.topic_id)
            for told in topic.partitions:
                place = Place(name, told.partition_index)
                position = wanted.get(place)
                if position is None or self.positions.get(place) is not position:
                    continue
                if told.error_code:
                    refused.append((place, position, told, answer))
                elif told.diverging_epoch.epoch >= 0 or told.diverging_epoch.end_offset >= 0:
                    if position.replica >= 0:
                        position.replica = -1  # it may be behind, or part from its leader itself: that one is asked next
                        continue
                    self.seek(place, min(told.diverging_epoch.end_offset, position.offset), "diverged")
                    self.positions[place].last_epoch = told.diverging_epoch.epoch
                elif told.preferred_read_replica >= 0:
                    position.replica = told.preferred_read_replica
                else:
                    self._read(place, position, told, polled)
        return refused

    def _read(self, place: Place, position: Position, told: FetchResponse.PartitionData, polled: history.Polled) -> None:
        ids = self.told_ids([place])
        is_first = all(each.topic != place.topic for each in polled.positions)
        if not is_first and polled.ids.get(place.topic) != ids.get(place.topic):
            return  # a poll gives records of one topic of a name
        polled.ids |= ids
        aborted = told.aborted_transactions if self.taste.isolation == "read_committed" else None
        taken = take(told.records or b"", position.offset, position.last_epoch, aborted)
        self.corrupt += taken.is_corrupt
        for each in taken.records:
            key, value = history.text(each.key), history.text(each.value)
            polled.records.append(history.Record(place.topic, place.index, each.offset, key, value))
        if taken.offset != position.offset:
            position.offset, position.last_epoch = taken.offset, taken.last_epoch
            polled.positions.append(history.Position(place.topic, place.index, taken.offset))

    async def _refused(self, place: Place, position: Position, told: FetchResponse.PartitionData, answer: FetchResponse) -> None:
        code = ErrorCode(told.error_code)
        if position.replica >= 0:
            position.replica = -1  # whatever it is: the leader knows better
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._reset(place, position, "out of range")
        else:
            self.view.heard(place, told.current_leader, answer.node_endpoints)
            await self.view.refresh()
