"""The end of a run: everything that was begun ends, groups have read and committed all there is, and all of it is read once more.

Invariants
 1. Each step has its time, a group since it last came nearer to the end; what does not happen in it is said in `stuck`, and the
    next step is taken.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchRequest, FetchResponse, MetadataRequest, MetadataResponse
from tests.checker import history
from tests.sim.clients.batches import take
from tests.sim.clients.commits import Identity, committed
from tests.sim.clients.connection import Lost
from tests.sim.clients.offsets import EARLIEST, LATEST, list_offset
from tests.sim.clients.program import Place, Program
from tests.sim.clients.view import View
from tests.sim.workloads.stage import Stage

STEP_SECONDS_MAX: Final = 90.0
AGAIN_SECONDS: Final = 0.5
LAG_SECONDS: Final = 2.0  # of the metadata of a node, when nothing is wrong
FETCH_BYTES: Final = 1 << 22
FETCH_SECONDS_MAX: Final = 5.0
INTERNAL: Final = "__"
ISOLATIONS: Final[tuple[history.Isolation, ...]] = ("read_uncommitted", "read_committed")


async def finish(program: Program, stage: Stage) -> None:
    await stage.until(lambda: stage.is_finishing)
    if not await stage.until(lambda: not any(stage.writing.values()), STEP_SECONDS_MAX):
        stage.stuck.append(f"writers do not flush: {[name for name, is_left in stage.writing.items() if is_left]}")
    if not await stage.until(lambda: stage.is_settled, STEP_SECONDS_MAX):
        stage.stuck.append("the administrator is not answered")
    end = End(program, stage)
    topics = await end.step("no node tells which topics there are", end.list_topics)
    stage.is_known = True
    places = [Place(name, index) for name, count in (topics or {}).items() for index in range(count)]
    for place in places:
        await end.step(f"a transaction in {place.topic}-{place.index} hangs", partial(end.is_stable, place))
    for group in stage.plan.groups:
        wanted = [place for place in places if place.topic in group.topics]
        await end.step(f"{group.name} does not read on", partial(end.has_caught_up, group.name, wanted))
    for place in places:
        for isolation in ISOLATIONS:
            await end.step(f"{place.topic}-{place.index} cannot be read", partial(end.read, place, isolation))
    await end.step("the nodes do not tell the same topics", end.tell_topics)
    end.view.close()
    stage.is_over = True


class End:
    def __init__(self, program: Program, stage: Stage) -> None:
        self.program = program
        self.stage = stage
        self.view = View(program)
        self.last = ""  # why it is not so yet
        self.behind_least = inf  # records that a group had left
        self.end_s = 0.0  # of a step

    async def step(self, trouble: str, attempt: Callable[[], Awaitable[dict[str, int] | bool]]) -> dict[str, int] | None:
        """Attempts, until one succeeds or the time is over."""
        self.behind_least, self.end_s = inf, self.program.loop.time() + STEP_SECONDS_MAX
        while True:
            try:
                if found := await attempt():
                    return found if isinstance(found, dict) else None
            except Lost as error:
                self.last = str(error)
                with suppress(Lost):
                    await self.view.refresh()
            if self.program.loop.time() > self.end_s:
                self.stage.stuck.append(f"{trouble}: {self.last}")
                return None
            await self.stage.until(lambda: False, AGAIN_SECONDS)

    async def list_topics(self) -> dict[str, int]:
        """As all nodes tell them: one that lags behind may still have what was deleted."""
        await asyncio.sleep(LAG_SECONDS)
        await self.view.refresh()
        found = [await self._topics_of(node) for node in sorted(self.view.brokers)]
        if any(each != found[0] for each in found):
            raise Lost("the nodes do not tell the same topics yet")
        return {name: count for name, (_, count) in found[0].items()}

    async def _topics_of(self, node: int) -> dict[str, tuple[str, int]]:
        """Id and number of partitions of each topic that a node knows."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = await self.view.ask(node, "metadata", request, MetadataResponse)
        topics = [(each.name, each) for each in answer.topics if each.name and not each.name.startswith(INTERNAL)]
        return {name: (each.topic_id.hex(), len(each.partitions)) for name, each in topics}

    async def has_caught_up(self, group: str, places: list[Place]) -> bool:
        ends = {place: await list_offset(self.view, place, LATEST) for place in places}
        await self.view.refresh(place.topic for place in places)
        found = await committed(self.program, self.view, Identity(group), places)
        behind = {place: end - max(found[place].offset, 0) for place, end in ends.items()}  # of an empty one nothing is committed
        late = [place for place, count in behind.items() if count > 0]
        self.last = ", ".join(f"{place.topic}-{place.index} {found[place].offset} of {ends[place]}" for place in late)
        count = sum(behind[place] for place in late)
        if count < self.behind_least:  # some take little at a time
            self.behind_least, self.end_s = count, self.program.loop.time() + STEP_SECONDS_MAX
        return not late

    async def is_stable(self, place: Place) -> bool:
        """Whether no transaction is open in a partition."""
        log_end = await list_offset(self.view, place, LATEST)
        stable = await list_offset(self.view, place, LATEST, is_committed=True)
        self.last = f"it ends at {log_end}, and is stable up to {stable}"
        return stable >= log_end

    async def read(self, place: Place, isolation: history.Isolation = "read_uncommitted") -> bool:
        """All of a partition. Whether it was all: retention may have taken something meanwhile, or who had stalled written it."""
        log_start = offset = await list_offset(self.view, place, EARLIEST)
        topic_id = self.view.told_id(place.topic)
        log_end = await list_offset(self.view, place, LATEST)
        records: list[history.Record] = []
        while offset < log_end:
            told = await self._fetch(place, offset, isolation)
            aborted = told.aborted_transactions if isolation == "read_committed" else None
            taken = take(told.records or b"", offset, -1, aborted)
            if taken.offset == offset:
                raise Lost(f"nothing is read at {offset}, and it ends at {log_end}; corrupt: {taken.is_corrupt}")
            offset = taken.offset
            for each in taken.records:
                key, value = history.text(each.key), history.text(each.value)
                records.append(history.Record(place.topic, place.index, each.offset, key, value))
        if await list_offset(self.view, place, EARLIEST) != log_start or self.view.told_id(place.topic) != topic_id:
            return False
        program = self.program
        program.tell(history.PollBegun(program.at_ms, program.name))
        if await list_offset(self.view, place, LATEST) != log_end:
            return False
        found = history.FinalRead(program.at_ms, program.name, place.topic, place.index, log_start, log_end, records, isolation)
        found.topic_id = topic_id
        program.tell(found)
        self.stage.count("records in the end", len(records))
        return True

    async def _fetch(self, place: Place, offset: int, isolation: history.Isolation) -> FetchResponse.PartitionData:
        led = await self.view.led(place)
        kind = FetchRequest
        partition = kind.FetchPartition(
            partition=place.index, current_leader_epoch=led.epoch, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        topic = kind.FetchTopic(topic_id=self.view.topic_id(place.topic), partitions=[partition])
        request = kind(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=int(isolation == "read_committed"),
            topics=[topic],
        )
        answer = await self.view.ask(led.leader, "fetch", request, FetchResponse, FETCH_SECONDS_MAX)
        if answer.error_code or not answer.responses or answer.responses[0].partitions[0].error_code:
            codes = [part.error_code for each in answer.responses for part in each.partitions]
            raise Lost(f"Fetch: {[ErrorCode(code).name for code in (answer.error_code, *codes)]}")
        return answer.responses[0].partitions[0]

    async def tell_topics(self) -> bool:
        """Whether every node knows the same topics. One whose creation was given up may have come since they were listed."""
        await self.view.refresh()
        nodes = sorted(self.view.brokers)
        found = {node: dict(sorted((await self._topics_of(node)).items())) for node in nodes}
        if len(nodes) < len(self.program.bootstrap) or any(topics != found[nodes[0]] for topics in found.values()):
            self.last = f"{found}"
            return False
        for node, topics in found.items():
            ids = {name: topic_id for name, (topic_id, _) in topics.items()}
            self.program.tell(
                history.TopicsSeen(self.program.at_ms, self.program.name, str(node), list(topics), is_final=True, ids=ids)
            )
        return True
