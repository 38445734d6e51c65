"""A fetcher of a follower, against a leader that holds requests back, or has another log."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock

import pytest

from odradek.core.metadata.brokers import Endpoint
from odradek.core.partition.fetcher import FetcherSettings, Work
from odradek.core.partition.follower import TAKE_WATERMARKS, Action, Follower, Step
from odradek.log.log import Log
from odradek.log.segment import CorruptSegment
from odradek.node.machine import Machine
from odradek.node.readable import Readable
from odradek.node.replication import EARLIEST, Replication, Source, begin_within_batch
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import decode_request, encode_response
from odradek.wire.message import Message
from odradek.wire.messages import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from tests.core.partition.test_fetcher import follower_of, named, topic_id
from tests.log.partition import NOW_MS, new_log, sent
from tests.node.inside import until
from tests.node.test_peers import Reader, Writer, other_side

HELD_BACK_MS = 600_000


def replication_from(port: int, logs: dict[Follower, Log]) -> Replication:
    replication = SimpleNamespace(
        node_id=2,
        settings=FetcherSettings(wait_max_ms=HELD_BACK_MS),
        timeout_ms=HELD_BACK_MS,
        broker_epoch=lambda: 55,
        now_ms=lambda: 0,
        endpoint_of=lambda _: Endpoint("127.0.0.1", port, 0),
        partitions=SimpleNamespace(now_ms=lambda: 0, machine=Machine(), note_starts=AsyncMock()),
        quota=None,
        logs=logs,
    )
    return cast("Replication", replication)


class CutLog:
    """Remembers to where it was cut."""

    def __init__(self) -> None:
        self.folder, self.end_offset, self.high_watermark = "t1-0", 2, 0
        self.start_offset = self.lasting_start = 0
        self.cuts: list[int] = []
        self.is_being_written = False

    def truncate_to(self, offset: int, _: int) -> None:
        self.cuts.append(offset)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_log_is_not_cut_for_a_leader_that_is_no_longer_followed_when_it_answers(is_stopped: bool) -> None:
    async def story() -> None:
        follower, log = follower_of(1), CutLog()
        logs = {follower: cast("Log", log)}
        asked: list[Message] = []

        def begin_earlier(request: Message) -> Message | None:
            asked.append(request)
            if is_stopped and isinstance(request, ListOffsetsRequest):
                logs.pop(follower, None)
            return answer_to(request)

        async with other_side(answering(begin_earlier)) as port:
            source = Source(replication_from(port, logs), 9, 0)
            source.add(follower)
            await until(lambda: sum(isinstance(request, FetchRequest) for request in asked) == 2)
            await source.close()
        assert log.cuts == ([] if is_stopped else [1])

    asyncio.run(story())


def test_who_could_not_ask_where_the_log_of_its_leader_begins_asks_again() -> None:
    """A thread still writes what this node was sent when it led: nothing is cut or begun anew meanwhile."""

    async def story() -> None:
        follower, log = follower_of(1), CutLog()
        replication = replication_from(0, {follower: cast("Log", log)})
        log.is_being_written = True

        async def idle(_: Log) -> None:
            log.is_being_written = False

        replication.partitions.writing_of = lambda _: SimpleNamespace(idle=idle)  # type: ignore[assignment,method-assign,return-value]
        source = Source(replication, 9, 0)
        asked = follower.wanted(1)
        refused = FetchResponse.PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        step = follower.answered(asked, refused, 0, 1000)
        assert step.action is Action.ASK_OFFSETS
        await source._take(Work(follower, step, refused))
        assert follower.is_ready(0)
        await source.close()

    asyncio.run(story())


@pytest.mark.parametrize("change", ["nothing", "stopped", "begun anew"])
def test_a_watermark_that_comes_while_a_thread_writes_is_taken_afterwards(change: str) -> None:
    """The leader counts it as told: on a partition where nothing happens it would not come again."""

    async def story() -> None:
        follower, log, moved = follower_of(1), CutLog(), list[int]()
        log.is_being_written = True
        log.move_high_watermark = moved.append  # type: ignore[attr-defined]
        replication = replication_from(0, {follower: cast("Log", log)})
        replication.read, replication.partitions.copied_anew = {}, {}
        replication.take_watermarks = partial(Replication.take_watermarks, replication)  # type: ignore[method-assign]

        async def idle(_: Log) -> None:
            log.is_being_written = False
            if change == "stopped":
                del replication.logs[follower]
            elif change == "begun anew":
                log.end_offset = 0

        replication.partitions.writing_of = lambda _: SimpleNamespace(idle=idle)  # type: ignore[assignment,method-assign,return-value]
        source = Source(replication, 9, 0)
        await source._take(Work(follower, TAKE_WATERMARKS, FetchResponse.PartitionData(high_watermark=2)))
        assert moved == ([2] if change == "nothing" else [])
        await source.close()

    asyncio.run(story())


def test_a_fault_in_what_is_done_with_an_answer_is_told_and_stops_nobody_from_following() -> None:
    async def story() -> None:
        follower, log, told = follower_of(1), CutLog(), list[str]()
        cuts = iter([ValueError("broken")])

        def truncate_to(offset: int, _: int) -> None:
            for error in cuts:
                raise error
            log.cuts.append(offset)

        log.truncate_to = truncate_to  # type: ignore[method-assign]
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(f"{context['message']}"))

        def begin_earlier(request: Message) -> Message:
            if isinstance(request, FetchRequest):
                request.session_epoch = 0  # every fetch is out of range, not the first alone
            answer = answer_to(request)
            assert answer is not None
            return answer

        async with other_side(answering(begin_earlier)) as port:
            replication = replication_from(port, {follower: cast("Log", log)})
            replication.now_ms = lambda: int(time.monotonic() * 1000)
            source = Source(replication, 9, 0)
            source.add(follower)
            await until(lambda: bool(log.cuts))
            await source.close()
        assert [each for each in told if "sent" in each] == ["what node 9 has sent cannot be taken"]  # and not of connections

    asyncio.run(story())


def test_a_log_that_cannot_be_read_where_it_is_to_be_cut_is_damaged() -> None:
    """It would be tried for ever: it has to be copied anew."""

    async def story() -> None:
        follower, log, told = follower_of(1), CutLog(), list[str]()

        def cannot(offset: int, _: int) -> None:
            raise CorruptSegment("magic 3", "t1-0/0.log", offset)

        log.truncate_to = cannot  # type: ignore[method-assign]
        replication = replication_from(0, {follower: cast("Log", log)})

        def damaged(readable: Readable, _offset: int, reason: str) -> None:
            assert readable.topic_id == follower.topic_id
            told.append(reason)

        replication.partitions.damaged = damaged  # type: ignore[assignment,method-assign]
        source = Source(replication, 9, 0)
        await source._take(Work(follower, Step(Action.TRUNCATE, 1), FetchResponse.PartitionData()))
        assert told == ["t1-0/0.log at byte 1: magic 3"]
        assert not follower.is_ready(0)
        await source.close()

    asyncio.run(story())


def test_a_log_that_is_copied_anew_counts_again_when_it_has_what_its_leader_had() -> None:
    """And not when it has what its leader knows to be committed: one that was just elected knows less than there is."""

    async def story() -> None:
        follower, log, counted, asked = follower_of(1), CutLog(), list[object](), list[Message]()
        key = (follower.topic_id, follower.index)

        def end_at_three(request: Message) -> Message:
            asked.append(request)
            found = ListOffsetsResponse.ListOffsetsPartitionResponse(offset=3)
            return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t1", partitions=[found])])

        async with other_side(answering(end_at_three)) as port:
            replication = replication_from(port, {follower: cast("Log", log)})
            replication.partitions.copied_anew = {key: None}
            replication.partitions.caught_up = counted.append  # type: ignore[assignment,method-assign]
            replication.take_watermarks = partial(Replication.take_watermarks, replication)  # type: ignore[method-assign]
            source = Source(replication, 9, 0)
            for end in (2, 2, 3):
                log.end_offset = end
                await source._take(Work(follower, TAKE_WATERMARKS, FetchResponse.PartitionData(high_watermark=0)))
                assert counted == ([key] if end == 3 else [])
            await source.close()
        assert len(asked) == 1

    asyncio.run(story())


def answering(answer_to: Callable[[Message], Message | None]) -> Callable[[Reader, Writer], Awaitable[None]]:
    """A leader that answers each request, or holds it back."""

    async def serve(reader: Reader, writer: Writer) -> None:
        while frame := await reader.read(4):
            header, request = decode_request(await reader.readexactly(int.from_bytes(frame, "big")))
            answer = answer_to(request)
            if answer is not None:
                writer.writelines(encode_response(answer, header.request_api_version, header.correlation_id))  # type: ignore[arg-type]

    return serve


def answer_to(request: Message) -> Message | None:
    """The first fetch is out of range; the next is held back. The leader's log ends at 1, before the follower's."""
    if isinstance(request, ListOffsetsRequest):
        found = ListOffsetsResponse.ListOffsetsPartitionResponse(offset=0 if is_earliest(request) else 1)
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t1", partitions=[found])])
    assert isinstance(request, FetchRequest)
    if request.session_epoch:
        return None
    refused = FetchResponse.PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    topic = FetchResponse.FetchableTopicResponse(topic_id=topic_id(1), partitions=[refused])
    return FetchResponse(session_id=7, responses=[topic])


def is_earliest(request: ListOffsetsRequest) -> bool:
    return request.topics[0].partitions[0].timestamp == EARLIEST


def test_a_partition_that_is_added_does_not_wait_for_a_request_that_is_held_back() -> None:
    async def story() -> None:
        asked: list[FetchRequest] = []

        async def hold_back(reader: Reader, _: Writer) -> None:
            size = int.from_bytes(await reader.readexactly(4), "big")
            request = decode_request(await reader.readexactly(size))[1]
            assert isinstance(request, FetchRequest)
            asked.append(request)

        async with other_side(hold_back) as port:
            source = Source(replication_from(port, {}), 9, 0)
            source.add(follower_of(1))
            await until(lambda: len(asked) == 1)
            source.add(follower_of(2))
            await until(lambda: len(asked) == 2)
            source.add(follower_of(3))
            await until(lambda: len(asked) == 3)
            await source.close()
        keys = [(topic_id(number), 0) for number in (1, 2, 3)]
        assert [named(request) for request in asked] == [keys[:1], keys[:2], keys]

    asyncio.run(story())


def test_a_log_that_begins_where_records_were_deleted_takes_the_whole_batch_that_they_were_in() -> None:
    batch = sent(53, 5)
    log = new_log()
    log.reset_to(56, NOW_MS)
    begin_within_batch(log, batch, NOW_MS)
    log.append_as_follower(batch, now_ms=NOW_MS)
    assert (log.start_offset, log.end_offset) == (53, 58)
    begin_within_batch(log, sent(58), NOW_MS)
    assert log.end_offset == 58  # nothing is thrown away where there are records


def test_what_is_not_the_batch_that_a_log_begins_in_changes_nothing() -> None:
    log = new_log()
    log.reset_to(56, NOW_MS)
    for records in (sent(50, 5), sent(56), sent(60), b"", sent(53, 5)[:20]):
        begin_within_batch(log, records, NOW_MS)
        assert (log.start_offset, log.end_offset) == (56, 56)
