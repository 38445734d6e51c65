"""Simulated clients against a real node, on real sockets: each kind does real work, in old and in new versions."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.node.machine import Machine
from odradek.node.node import Node
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import FetchResponse, MetadataRequest, MetadataResponse
from tests.checker.check import check
from tests.checker.history import Assigned, CommitEnded, FinalRead, History, Moved, Polled
from tests.node.inside import connected, new_node, port_of, running, until
from tests.sim.clients.administrator import Administrator
from tests.sim.clients.batches import Taken
from tests.sim.clients.classic import ClassicMember
from tests.sim.clients.commits import Committed, Identity, commit, committed
from tests.sim.clients.connection import Lost
from tests.sim.clients.eras import Era
from tests.sim.clients.fetcher import FETCH_WITH_IDS, UNKNOWN, Fetcher, Taste
from tests.sim.clients.lane import Batch, Lane
from tests.sim.clients.member import Member, Terms
from tests.sim.clients.modern import ModernMember
from tests.sim.clients.offsets import EARLIEST
from tests.sim.clients.producer import Manner, Producer
from tests.sim.clients.program import Place, Program
from tests.sim.clients.reader import Reader
from tests.sim.clients.view import Led, Topic, View
from tests.sim.clients.voters import Voters
from tests.sim.workloads.finishing import End
from tests.sim.workloads.plan import Plan
from tests.sim.workloads.profile import PROFILES
from tests.sim.workloads.stage import Stage

KINDS = ["oldest", "any", "newest"]
BATCHES = 12
SETTINGS = {
    "group_min_session_timeout_ms": "500",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_session_timeout_ms": "1000",
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_heartbeat_interval_ms": "100",
    "offsets_topic_num_partitions": "1",
}


class Scene:
    """A node, and a history of everything that is done to it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.history = History()
        self.programs: list[Program] = []

    def program(self, name: str, kind: str = "newest") -> Program:
        chance = random.Random(name)
        address = ("127.0.0.1", port_of(self.node))
        made = Program(name, Machine(), [address], self.history, chance, Era.chosen(chance, kind))
        self.programs.append(made)
        return made

    async def judge(self, *topics: str) -> None:
        """All of it is read once more, and no rule is broken."""
        end = End(self.program("end"), Stage(PROFILES["calm"], Plan([], [], 1.0, is_fragile=False)))
        await end.view.refresh(topics)
        for topic in topics:
            for index in end.view.topics[topic].partitions:
                assert await end.read(Place(topic, index))
        end.view.close()
        assert [program.failures for program in self.programs if program.failures] == []
        report = check(self.history)
        assert report.is_well, str(report)

    @property
    def records_polled(self) -> int:
        return sum(len(event.records) for event in self.history.events if isinstance(event, Polled))


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    async with running(new_node(folder, **SETTINGS)) as node, connected(node) as client:
        assert not await client.create("orders", 3)
        yield Scene(node)


def write(producer: Producer) -> None:
    for number in range(BATCHES):
        entries = [(None, f"{producer.program.name} {number} {index}".encode()) for index in range(2)]
        producer.send(Place("orders", number % 3), entries)


@pytest.mark.parametrize("kind", KINDS)
def test_every_producer_writes_and_a_reader_reads_it_all(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            manners = [
                Manner(),
                Manner(codec=Codec.GZIP, in_flight_max=1),
                Manner(acks=1, is_idempotent=False, in_flight_max=1, codec=Codec.ZSTD),
                Manner(acks=-1, is_idempotent=False, in_flight_max=1, codec=Codec.LZ4),
                Manner(acks=0, is_idempotent=False, in_flight_max=1),
            ]
            producers = [Producer(here.program(f"writer-{number}", kind), each) for number, each in enumerate(manners)]
            for producer in producers:
                write(producer)
            for producer in producers:
                await producer.flush()
            assert [producer.acknowledged for producer in producers] == [2 * BATCHES] * 4 + [0]
            for has_sessions in (True, False):
                await read_all(here, kind, has_sessions, records=5 * 2 * BATCHES)
            await here.judge("orders")
            for producer in producers:
                await producer.close()
            assert sum(len(each.records) for each in here.history.events if isinstance(each, FinalRead)) == 5 * 2 * BATCHES

    asyncio.run(main())


async def read_all(here: Scene, kind: str, has_sessions: bool, records: int) -> None:
    taste = Taste(has_sessions=has_sessions, max_bytes=600, max_wait_ms=50, sends_last_epoch=True)
    reader = Reader(here.program(f"reader {has_sessions}", kind), taste)
    reader.assign(*(Place("orders", index) for index in range(3)))
    async with asyncio.timeout(20):
        while reader.fetcher.records_read < records:
            await reader.poll()
    reader.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "consumer"])
def test_a_group_reads_and_commits_all_while_members_crash_stall_and_leave(tmp_path: Path, protocol: str, kind: str) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            terms = Terms("group", ("orders",), protocol, None, 1000, 2000, heartbeat_seconds=0.1, commit_seconds=0.05)
            new: Callable[..., Member] = ModernMember if protocol == "consumer" else ClassicMember
            members = [new(here.program(f"member-{number}", kind), Taste(max_wait_ms=50), terms) for number in range(3)]
            for member in members:
                member.start()
            producer = Producer(here.program("writer", kind), Manner())
            await until(lambda: all(member.owned for member in members))
            write(producer)
            await until(lambda: all(member.commits for member in members))
            await members[0].crash()
            members[1].stall(2.5)
            await until(lambda: len(members[2].owned) == 3)
            again = Producer(producer.program.renamed("writer again"), Manner())
            write(again)
            await until(lambda: here.records_polled >= 4 * BATCHES)
            await until(lambda: bool(members[1].owned) and len(members[1].owned) + len(members[2].owned) == 3)
            await members[2].leave()
            await until(lambda: len(members[1].owned) == 3)
            await members[1].leave()
            await producer.close()
            await again.close()
            await here.judge("orders")
            assert len([each for each in here.history.events if isinstance(each, CommitEnded) and each.acknowledged]) >= 4

    asyncio.run(main())


def test_a_static_member_that_comes_back_has_its_share_without_a_rebalance(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:

            def member(name: str, instance: str) -> ClassicMember:
                terms = Terms("group", ("orders",), "range", instance, 5000, 5000, heartbeat_seconds=0.1)
                made = ClassicMember(here.program(name), Taste(max_wait_ms=50), terms)
                made.start()
                return made

            first, second = member("first", "a"), member("second", "b")
            await until(lambda: len(first.owned) + len(second.owned) == 3 and bool(first.owned and second.owned))
            owned, generation = second.owned, second.generation
            await second.crash()
            again = member("second again", "b")
            await until(lambda: again.owned == owned)
            assert again.generation == generation == first.generation
            await first.leave()
            await again.leave()
            await here.judge()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [ClassicMember, ModernMember])
def test_a_member_whose_life_is_over_does_not_begin_another_when_it_falls_out_of_its_group(kind: type[Member]) -> None:
    async def fall_out() -> None:
        program = Program("member", Machine(), [], History(), random.Random(0))
        member = kind(program, Taste(), Terms("group", ("orders",)))
        member.is_fenced = True
        member._refused(ErrorCode.UNKNOWN_MEMBER_ID)
        assert member.is_fenced

    asyncio.run(fall_out())


@pytest.mark.parametrize("refused", ["commit", "committed"])  # of what it gives up, or meanwhile
def test_a_member_that_falls_out_of_a_generation_does_not_take_its_share_of_it(
    refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        program, share = Program("member", Machine(), [], History(), random.Random(0)), Place("orders", 0)
        member = ClassicMember(program, Taste(), Terms("group", ("orders",), "cooperative-sticky"))

        async def join_and_sync() -> list[Place]:
            member.generation = 3
            return [share]

        async def refuse(*_: object) -> ErrorCode:
            return ErrorCode.ILLEGAL_GENERATION

        async def tell(*_: object) -> dict[Place, Committed]:
            if refused == "committed":
                member._refused(ErrorCode.ILLEGAL_GENERATION)
            return {share: Committed(0, -1)}

        monkeypatch.setattr(member, "_join_and_sync", join_and_sync)
        monkeypatch.setattr("tests.sim.clients.member.commit", refuse)
        monkeypatch.setattr("tests.sim.clients.member.committed", tell)
        if refused == "commit":
            member.fetcher.begin(Place("orders", 1), 5)  # which is another's
        with suppress(Lost):
            await member._join()
        assert (member.owned, member.generation, member.must_join) == ([], -1, True)
        assert not any(isinstance(event, Assigned) for event in program.history.events)

    asyncio.run(main())


@pytest.mark.parametrize("is_joining", [False, True])
def test_who_leaves_while_it_joins_commits_in_no_generation(is_joining: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        program = Program("member", Machine(), [], History(), random.Random(0))
        member = ClassicMember(program, Taste(), Terms("group", ("orders",)))
        member.generation, member._is_joining = 19, is_joining  # which it has heard of
        member.fetcher.begin(Place("orders", 0), 5)

        async def acknowledge(*_: object) -> ErrorCode:
            return ErrorCode.NONE

        monkeypatch.setattr("tests.sim.clients.member.commit", acknowledge)
        await member.revoke(member.owned)
        assert member.commits == (0 if is_joining else 1)

    asyncio.run(main())


def test_a_member_that_falls_out_while_it_asks_for_names_of_topics_has_nothing_to_get_to(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        member = ModernMember(Program("member", Machine(), [], History(), random.Random(0)), Taste(), Terms("group", ("orders",)))
        member.target = [(b"i" * 16, 0)]

        async def tell_nothing(_view: View, _request: MetadataRequest) -> MetadataResponse:
            member._refused(ErrorCode.UNKNOWN_MEMBER_ID)
            return MetadataResponse()

        monkeypatch.setattr(View, "_ask_any", tell_nothing)
        assert not await member._reconcile()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [ClassicMember, ModernMember])
def test_a_member_that_joins_again_commits_all_that_it_has_read_once_more(
    kind: type[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        program, place = Program("member", Machine(), [], History(), random.Random(0)), Place("orders", 0)
        member = kind(program, Taste(), Terms("group", ("orders",)))
        member.fetcher.begin(place, 5)

        async def acknowledge(*_: object) -> ErrorCode:
            if member.commits == 1:
                member.rejoin()  # what is under way then may have been taken for another topic's
            return ErrorCode.NONE

        async def commit() -> int:
            member._note_read()
            await member.commit(dict(member._unsent))
            return member.commits

        monkeypatch.setattr("tests.sim.clients.member.commit", acknowledge)
        assert [await commit(), await commit()] == [1, 1]
        member.rejoin()
        assert [await commit(), await commit(), await commit()] == [2, 3, 3]

    asyncio.run(main())


@pytest.mark.parametrize(
    "ask", [lambda program: Administrator(program).elect(Place("orders", 0)), lambda program: Voters(program)._voters()]
)
def test_who_is_told_of_no_broker_asks_again_later(
    ask: Callable[[Program], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell_none(_view: View, _request: MetadataRequest) -> MetadataResponse:
        return MetadataResponse()

    async def main() -> None:
        monkeypatch.setattr(View, "_ask_any", tell_none)
        with pytest.raises(Lost, match="no broker is let into the cluster yet"):
            await ask(Program("somebody", Machine(), [], History(), random.Random(0)))

    asyncio.run(main())


def test_a_reader_asks_the_leader_when_a_follower_says_that_their_logs_part() -> None:
    async def main() -> None:
        program = Program("reader", Machine(), [], History(), random.Random(0))
        fetcher, place = Fetcher(program, View(program), Taste(sends_last_epoch=True)), Place("orders", 0)
        parting = FetchResponse.EpochEndOffset(epoch=1, end_offset=3)
        told = FetchResponse.PartitionData(partition_index=0, diverging_epoch=parting)
        answer = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="orders", partitions=[told])])
        fetcher.begin(place, 5, 2)
        fetcher.positions[place].replica = 2
        for offset, last_epoch in ((5, 2), (3, 1)):  # of the follower, and then of the leader
            fetcher._take(answer, dict(fetcher.positions), Polled(0, "reader"))
            position = fetcher.positions[place]
            assert (position.offset, position.last_epoch, position.replica) == (offset, last_epoch, -1)

    asyncio.run(main())


def test_who_reads_by_names_does_not_forget_a_partition_for_the_id_that_its_topic_had() -> None:
    async def run() -> None:
        program = Program("reader", Machine(), [], History(), random.Random(0))
        fetcher, place = Fetcher(program, View(program), Taste()), Place("orders", 0)
        asked = []
        for topic_id in (b"a" * 16, b"b" * 16):
            fetcher.begin(place, 0, topic_id=topic_id)
            asked.append([*fetcher._partitions(fetcher.positions, FETCH_WITH_IDS - 1)])
        assert asked[0] == asked[1] == [("orders", NIL_UUID, 0)]
        assert [*fetcher._partitions(fetcher.positions, FETCH_WITH_IDS)] == [("", b"b" * 16, 0)]

    asyncio.run(run())


class LeaderOfOrders:
    """Where the topic has been made anew, which the view has not heard of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, view: View) -> None:
        self.view = view
        self.is_in_view = False  # by the time that the answer comes
        self.topic_id = b"b" * 16
        view.brokers, view.topics["orders"] = {1: ("", 0)}, Topic(b"a" * 16, {0: Led(1, 0, [1], [1])})
        view._refreshed_s = view.program.loop.time()
        monkeypatch.setattr("tests.sim.clients.fetcher.list_offset", self.list_offset)
        monkeypatch.setattr(view, "ask", self.ask)

    async def list_offset(self, *_: object, **__: object) -> int:
        if self.is_in_view:
            self.view.topics["orders"] = Topic(self.topic_id, {})
        return 7

    async def ask(self, *_: object) -> MetadataResponse:
        kind = MetadataResponse.MetadataResponseTopic
        code = ErrorCode.NONE if self.topic_id != NIL_UUID else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponse(topics=[kind(error_code=code, name="orders", topic_id=self.topic_id)])


@pytest.mark.parametrize(("topic_id", "moves"), [(b"a" * 16, ["out of range"]), (b"b" * 16, ["seek"]), (NIL_UUID, [])])
def test_who_is_out_of_range_does_not_take_the_beginning_of_the_next_topic_for_that_of_its_own(
    monkeypatch: pytest.MonkeyPatch, topic_id: bytes, moves: list[str]
) -> None:
    async def main() -> None:
        program = Program("reader", Machine(), [], History(), random.Random(0))
        fetcher, place = Fetcher(program, View(program), Taste()), Place("orders", 0)
        LeaderOfOrders(monkeypatch, fetcher.view).topic_id = topic_id
        fetcher.begin(place, 9, topic_id=b"a" * 16)
        told = FetchResponse.PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        await fetcher._refused(place, fetcher.positions[place], told, FetchResponse())
        assert [event.why for event in program.history.events if isinstance(event, Moved)] == moves
        found = fetcher.positions[place]
        assert (found.offset, found.topic_id) == ((7, topic_id) if moves else (9, b"a" * 16))

    asyncio.run(main())


@pytest.mark.parametrize("follows_names", [True, False])
@pytest.mark.parametrize("offset", [UNKNOWN, 3])  # of which the node says that it is out of range
def test_who_is_given_topics_by_their_ids_does_not_begin_in_one_that_was_made_anew_meanwhile(
    monkeypatch: pytest.MonkeyPatch, follows_names: bool, offset: int
) -> None:
    async def main() -> None:
        program = Program("reader", Machine(), [], History(), random.Random(0))
        fetcher, place = Fetcher(program, View(program), Taste()), Place("orders", 0)
        fetcher.follows_names = follows_names
        told = LeaderOfOrders(monkeypatch, fetcher.view)
        fetcher.begin(place, offset, topic_id=b"a" * 16)
        told.is_in_view = True
        position = fetcher.positions[place]
        if offset == UNKNOWN:
            assert await fetcher._ready(place, position) is None
        else:
            refusal = FetchResponse.PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
            await fetcher._refused(place, position, refusal, FetchResponse())
        found = fetcher.positions[place]
        assert (found.offset, found.topic_id) == ((7, b"b" * 16) if follows_names else (offset, b"a" * 16))
        assert [event.why for event in program.history.events if isinstance(event, Moved)] == ["seek"] * follows_names

    asyncio.run(main())


def test_a_log_that_grows_while_it_is_read_in_the_end_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        program = Program("finisher", Machine(), [], History(), random.Random(0))
        end, told = End(program, Stage(PROFILES["calm"], Plan([], [], 1.0, is_fragile=False))), [7, 8, 8, 8]

        async def tell(_view: View, _place: Place, timestamp: int) -> int:
            return 7 if timestamp == EARLIEST else told.pop(0)

        async def fetch(*_: object) -> FetchResponse.PartitionData:
            return FetchResponse.PartitionData()

        monkeypatch.setattr("tests.sim.workloads.finishing.list_offset", tell)
        monkeypatch.setattr("tests.sim.workloads.finishing.take", lambda _, offset, *__: Taken([], offset + 1, 0))
        monkeypatch.setattr(end, "_fetch", fetch)
        assert [await end.read(Place("orders", 0)), await end.read(Place("orders", 0))] == [False, True]
        assert [event.log_end for event in program.history.events if isinstance(event, FinalRead)] == [8]

    asyncio.run(main())


@pytest.mark.parametrize(("rate", "is_stuck"), [(1, False), (0, True)])
def test_a_group_that_takes_little_at_a_time_is_not_stuck(monkeypatch: pytest.MonkeyPatch, rate: int, is_stuck: bool) -> None:
    """Of seed 160684: a thousand bytes a second, behind which there was more than the time of a step."""

    async def main() -> None:
        program = Program("finisher", Machine(), [], History(), random.Random(0))
        stage, place, taken = Stage(PROFILES["calm"], Plan([], [], 1.0, is_fragile=False)), Place("orders", 0), 0
        end, now = End(program, stage), program.loop.time()

        async def ends(*_: object) -> int:
            return 300

        async def taken_so_far(*_: object) -> dict[Place, Committed]:
            nonlocal taken
            taken += rate
            return {place: Committed(taken, -1)}

        async def pass_time(*_: object) -> bool:
            nonlocal now
            now += 1.0
            return True

        monkeypatch.setattr("tests.sim.workloads.finishing.list_offset", ends)
        monkeypatch.setattr("tests.sim.workloads.finishing.committed", taken_so_far)
        monkeypatch.setattr(end.view, "refresh", pass_time)
        monkeypatch.setattr(stage, "until", pass_time)
        monkeypatch.setattr(program.loop, "time", lambda: now)
        await end.step("group does not read on", partial(end.has_caught_up, "group", [place]))
        assert stage.stuck == (["group does not read on: orders-0 0 of 300"] if is_stuck else [])

    asyncio.run(main())


def test_an_answer_is_for_the_topics_that_were_asked_for_though_they_are_forgotten_since(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as here:
            program, who, place = here.program("member"), Identity("group"), Place("orders", 1)
            view = View(program)
            await until_told(view)
            connection = await view.connection(await view.coordinator("group"), "group group")
            ask = connection.ask

            async def ask_and_forget(*arguments: Any) -> Any:
                view.topics.clear()
                return await ask(*arguments)

            connection.ask = ask_and_forget  # type: ignore[method-assign, assignment]
            assert await commit(program, view, who, {place: Committed(5, -1)}) == ErrorCode.NONE
            await view.refresh(["orders"])
            topic_id = view.topic_id("orders")
            assert await committed(program, view, who, [place]) == {place: Committed(5, -1, topic_id)}
            assert await commit(program, view, who, {place: Committed(6, -1)}) == ErrorCode.NETWORK_EXCEPTION
            with pytest.raises(Lost, match="are not all known"):
                await committed(program, view, who, [place])
            view.close()

    async def until_told(view: View) -> None:
        """Until there is a coordinator."""
        async with asyncio.timeout(20):
            await view.refresh(["orders"])
            while "group" not in view.coordinators:
                with suppress(Lost):
                    await view.coordinator("group")
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_a_member_says_what_it_has_though_its_view_has_forgotten_the_topic() -> None:
    async def main() -> None:
        program = Program("member", Machine(), [], History(), random.Random(0))
        member = ModernMember(program, Taste(), Terms("group", ("orders",)))
        member.view.topics["orders"] = Topic(b"i" * 16, {})
        member.fetcher.begin(Place("orders", 0), 0)
        member.target = [(b"i" * 16, 0)]
        assert not await member._reconcile()
        member.view.topics.clear()
        (told,) = member._request().topic_partitions or []
        assert (told.topic_id, told.partitions) == (b"i" * 16, [0])

    asyncio.run(main())


def test_a_member_gives_up_what_it_had_of_a_topic_that_was_made_anew() -> None:
    async def main() -> None:
        program = Program("member", Machine(), [], History(), random.Random(0))
        member = ModernMember(program, Taste(), Terms("group", ("orders",)))
        for topic_id, owned in ((b"i" * 16, [Place("orders", 0)]), (b"j" * 16, [])):
            member.view.topics["orders"] = Topic(topic_id, {})
            if owned:
                member.fetcher.begin(Place("orders", 0), 0)
            member.target = [(topic_id, 0)]
            await member._reconcile()
            assert member.owned == owned

    asyncio.run(main())


class Topics:
    """What a broker tells of topics to whoever asks for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **partitions: int) -> None:
        self.partitions = partitions

        async def tell(_view: View, request: MetadataRequest) -> MetadataResponse:
            return MetadataResponse(topics=[self._told(each.name or "") for each in request.topics or []])

        monkeypatch.setattr(View, "_ask_any", tell)

    def _told(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        kind = MetadataResponse.MetadataResponsePartition
        parts = [kind(partition_index=index) for index in range(self.partitions.get(name, 0))]
        code = ErrorCode.NONE if parts else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponse.MetadataResponseTopic(error_code=code, name=name, partitions=parts)


def leader(*topics: str) -> ClassicMember:
    """Of a group that it has shared out, when there was one partition of the first topic."""
    program = Program("member", Machine(), [], History(), random.Random(0))
    member = ClassicMember(program, Taste(), Terms("group", topics))
    member.must_join, member._shared_out = False, {topics[0]: 1}
    return member


def test_who_leads_shares_out_anew_when_a_topic_that_was_gone_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        told = Topics(monkeypatch, kept=1)
        member = leader("kept", "orders")
        await member.view.refresh(member.terms.topics)
        member._look_for_partitions()
        assert not member.must_join
        told.partitions["orders"] = 2
        await member.view.refresh(["kept"])  # as whoever reads it does
        member._look_for_partitions()
        assert member.must_join

    asyncio.run(main())


def test_who_leads_and_has_nothing_to_read_hears_of_new_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        Topics(monkeypatch, orders=2)
        member = leader("orders")
        reading = asyncio.create_task(member._read())
        await until(lambda: member.view.refreshed > 0)
        reading.cancel()
        member._look_for_partitions()
        assert member.must_join

    asyncio.run(main())


def test_a_producer_waits_for_what_is_under_way_before_it_writes_to_a_topic_that_was_made_anew() -> None:
    async def main() -> None:
        lane = Lane(Program("writer", Machine(), [], History(), random.Random(0)), Place("orders", 0), 5, is_idempotent=True)
        assert lane.send_to(1, b"i" * 16)
        lane.is_known = True
        lane.batches.append(Batch([1], [(None, b"a")], 1e9, 0, is_under_way=True))
        assert not lane.send_to(1, b"j" * 16)
        lane.batches.clear()
        assert lane.send_to(1, b"j" * 16)
        assert not lane.is_known

    asyncio.run(main())
