"""The fetcher against a cluster in memory, through everything that can happen to both in any order."""

from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.commits import Commits
from odradek.client.fetcher import Fetch, Fetcher, Taste
from odradek.client.handing import Handing
from odradek.client.offsets import Offsets
from odradek.client.reading import EARLIEST, Reading
from odradek.client.records import NO_EPOCH, NO_OFFSET, Record, TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchResponse
from tests.client.model_cluster import NODES, TOPIC, ModelCluster

PARTITIONS = 4
BATCH_BYTES_MAX = 400
PREFETCH_BYTES = 2000
QUIET_ROUNDS = 5  # in which a leader that has another log is heard
ROUNDS_MAX = 2000


class Story:
    """A program, a fetcher, and a cluster; requests that are under way are answered, or not, when the story says."""

    def __init__(self, version: int, *, has_ids: bool = True, rack: str = "", prefetch_bytes: int = PREFETCH_BYTES) -> None:
        self.cluster = ModelCluster(PARTITIONS, version, has_ids=has_ids)
        self.fetcher = Fetcher(Taste(rack=rack, prefetch_bytes=prefetch_bytes, partition_bytes_max=700, backoff_s=0.1))
        self.handing = Handing(self.fetcher)
        self.now_s = 0.0
        self.rounds = 0
        self.under_way: list[Fetch] = []
        self.said: dict[int, FetchResponse] = {}  # answers that nobody has heard yet, by broker
        self.given: dict[TopicPartition, dict[int, bytes | None]] = {}  # since the last jump
        self.jumps: dict[TopicPartition, int] = {}
        self.known: dict[TopicPartition, tuple[int, int]] = {}  # positions, as they were last, and jumps
        self.places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        for place in self.places:
            self.fetcher.begin(place)
            self.given[place] = {}
        self.fetcher.learn(self.cluster.metadata())

    def reading(self, choice: int) -> Reading:
        return self.fetcher.readings[self.places[choice % PARTITIONS]]

    # -- what can happen

    def produce(self, choice: int, count: int) -> None:
        self.cluster.logs[choice % PARTITIONS].append(1 + count % 4)

    def ask(self) -> None:
        """Everything that is to be done is begun; questions about offsets are answered at once."""
        for asked, timestamp in self.fetcher.lookups(self.now_s):
            self.fetcher.found(asked, self.cluster.offset_of(asked.reading.place, timestamp), NO_EPOCH, self.now_s)
        for asked, epoch in self.fetcher.checks(self.now_s):
            log = self.cluster.logs[asked.reading.place.partition]
            if asked.leader_epoch != log.epoch:
                self.fetcher.refused(asked, ErrorCode.FENCED_LEADER_EPOCH, self.now_s)
            else:
                self.fetcher.checked(asked, *log.end_of_epoch(epoch))
        idle = self.fetcher.idle_nodes(self.now_s)
        for node in idle:
            assert node not in {each.node for each in self.under_way}, "one fetch is under way to a broker"
            self.fetcher.reserve(node)
            fetch = self.fetcher.begin_fetch(node, self.cluster.version, self.now_s, len(idle))
            if fetch is None:
                self.fetcher.release(node)
            else:
                self.under_way.append(fetch)

    def say(self, choice: int) -> None:
        """A broker answers, and is heard later."""
        if self.under_way:
            fetch = self.under_way[choice % len(self.under_way)]
            if fetch.node not in self.said:
                self.said[fetch.node] = self.cluster.answer(fetch.node, fetch.request)

    def answer(self, choice: int) -> None:
        if self.under_way:
            fetch = self.under_way.pop(choice % len(self.under_way))
            said = self.said.pop(fetch.node, None) or self.cluster.answer(fetch.node, fetch.request)
            self.fetcher.fetched(fetch, said, self.now_s)

    def lose(self, choice: int) -> None:
        """The broker may have answered, and nobody heard it."""
        if self.under_way:
            fetch = self.under_way.pop(choice % len(self.under_way))
            if self.said.pop(fetch.node, None) is None and choice % 2:
                self.cluster.answer(fetch.node, fetch.request)
            self.fetcher.lost(fetch, self.now_s)

    def refuse(self, choice: int) -> None:
        if self.under_way:
            fetch = self.under_way.pop(choice % len(self.under_way))
            self.said.pop(fetch.node, None)
            codes = [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID]
            self.fetcher.fetched(fetch, FetchResponse(error_code=codes[choice % 3]), self.now_s)

    def lead(self, choice: int) -> None:
        """Another leader, that has it all."""
        log = self.cluster.logs[choice % PARTITIONS]
        log.leader, log.epoch = (log.leader + 1) % NODES, log.epoch + 1

    def cut(self, choice: int, count: int) -> None:
        """Another leader, that has less: what was read beyond that is no more."""
        log = self.cluster.logs[choice % PARTITIONS]
        log.cut(1 + count % 3)
        log.leader = (log.leader + 1) % NODES

    def delete(self, choice: int) -> None:
        self.cluster.logs[choice % PARTITIONS].move_start()

    def learn(self) -> None:
        self.fetcher.must_refresh = False
        self.fetcher.learn(self.cluster.metadata())

    def follow(self, choice: int) -> None:
        self.cluster.follower = [None, 0, 1, 2][choice % 4]

    def step(self, count: int) -> None:
        """As an iteration does it, or a poll."""
        if count % 2 == 0 and self.handing.left:
            before = self.positions()
            self.take(before, [next(self.handing.coming)])
            return
        self.handing.come_back(is_iterating=count % 2 == 0)
        before = self.positions()
        if count % 2:
            self.take(before, self.handing.give(1 + count))
        elif self.handing.prepare(1 + count):
            self.take(before, [next(self.handing.coming)])

    def positions(self) -> dict[TopicPartition, int]:
        self.handing.look()
        return {place: reading.given for place, reading in self.fetcher.readings.items()}

    def take(self, before: dict[TopicPartition, int], records: list[Record]) -> None:
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            reading = self.fetcher.readings[place]
            assert record.offset == before[place], "nothing is left out, nothing is given twice"
            before[place] += 1
            if reading.jumps != self.jumps.get(place):
                self.jumps[place], self.given[place] = reading.jumps, {}
            assert not reading.is_paused
            self.given[place][record.offset] = record.value
            self.known[place] = record.offset + 1, reading.jumps

    def seek(self, choice: int, count: int) -> None:
        reading = self.reading(choice)
        log = self.cluster.logs[choice % PARTITIONS]
        self.handing.interrupt()
        if count % 3:
            self.fetcher.seek(reading, log.start + count % (log.end - log.start + 2))
        else:
            self.fetcher.aim(reading, EARLIEST)
        self.known.pop(reading.place, None)

    def pause(self, choice: int) -> None:
        self.handing.interrupt()
        self.reading(choice).is_paused = not self.reading(choice).is_paused

    def wait(self) -> None:
        self.now_s += 0.3

    # -- what always holds

    def check(self) -> None:
        held = self.fetcher.buffer.bytes_held
        reserved = sum(fetch.request.max_bytes for fetch in self.under_way)
        assert held + reserved <= self.fetcher.taste.prefetch_bytes + NODES * BATCH_BYTES_MAX
        for place, reading in self.fetcher.readings.items():
            if reading.offset != NO_OFFSET:
                assert reading.done <= reading.given <= reading.offset
                known, jumps = self.known.get(place, (reading.given, reading.jumps))
                if jumps != reading.jumps:
                    assert reading.given <= max(known, self.cluster.logs[place.partition].start), "nobody jumps ahead"
                    known = reading.given
                self.known[place] = max(known, reading.given), reading.jumps
            assert reading.pieces >= 0

    def end(self) -> None:
        """Everybody does what there is to do, until all was read."""
        for reading in self.fetcher.readings.values():
            reading.is_paused = False
        quiet = 0
        while quiet < QUIET_ROUNDS:
            self.learn()
            self.ask()
            while self.under_way:
                self.answer(0)
            self.step(9)
            self.check()
            self.wait()
            self.rounds += 1
            assert self.rounds < ROUNDS_MAX, "it comes to an end"
            ends = {TopicPartition(TOPIC, log.index): log.end for log in self.cluster.logs}
            is_quiet = all(self.fetcher.readings[place].given == end for place, end in ends.items())
            quiet = quiet + 1 if is_quiet else 0
        self.handing.finish()
        for log in self.cluster.logs:
            place = TopicPartition(TOPIC, log.index)
            assert self.fetcher.readings[place].done == log.end
            given = self.given[place]
            values = log.values()
            if given and self.jumps[place] == self.fetcher.readings[place].jumps:
                kept = {offset: value for offset, value in given.items() if offset >= log.start}
                assert kept == {offset: value for offset, value in values.items() if offset >= min(given)}
        assert self.fetcher.buffer.bytes_held == 0
        assert not self.fetcher.failures


ACTIONS = [
    "produce", "produce", "produce", "ask", "ask", "ask", "say", "answer", "answer", "answer", "step", "step", "lose", "refuse",
    "lead", "cut", "delete", "learn", "learn", "seek", "pause", "wait", "wait",
]  # fmt: skip
WITHOUT_COUNT = {"say", "answer", "lose", "refuse", "lead", "delete", "pause", "follow"}
BARE = {"ask", "learn", "wait"}


def act(story: Story, action: str, choice: int, count: int) -> None:
    do = getattr(story, action)
    if action in BARE:
        do()
    elif action in WITHOUT_COUNT:
        do(choice)
    elif action == "step":
        do(count)
    else:
        do(choice, count)
    story.check()


@given(
    st.sampled_from([4, 8, 11, 12, 13, 17]),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from([*ACTIONS, "follow"]), st.integers(0, 11), st.integers(0, 11)), min_size=60, max_size=120),
)
@settings(max_examples=150)
def test_whatever_happens_every_record_is_given_once_and_in_order(
    version: int, has_ids: bool, has_rack: bool, actions: list[tuple[str, int, int]]
) -> None:
    story = Story(version, has_ids=has_ids, rack="r" if has_rack and version >= 11 else "")
    for action, choice, count in actions:
        if action == "follow" and not story.fetcher.taste.rack:
            continue
        act(story, action, choice, count)
    story.end()


def fetched(story: Story) -> list[str]:
    """All that is under way is answered; of whom something came."""
    nodes = [f"{each.node}" for each in story.under_way]
    while story.under_way:
        story.answer(0)
    return nodes


def test_what_is_told_in_a_session_is_not_told_again() -> None:
    story = Story(17)
    story.ask()
    story.ask()
    (first, *_) = story.under_way
    assert first.request.session_epoch == 0
    assert [len(topic.partitions) for topic in first.request.topics] == [2]
    fetched(story)
    story.ask()
    (again, *_) = (each for each in story.under_way if each.node == first.node)
    assert (again.request.session_epoch, again.request.topics) == (1, [])
    fetched(story)
    story.produce(0, 1)
    story.ask()
    fetched(story)
    story.ask()
    (after, *_) = (each for each in story.under_way if each.node == 0)
    told = [partition.fetch_offset for topic in after.request.topics for partition in topic.partitions]
    assert told == [2]


def test_a_reader_goes_where_the_leader_sends_it_and_back_when_that_refuses() -> None:
    story = Story(17, rack="r")
    story.produce(0, 3)
    story.cluster.follower = 2
    story.ask()
    story.ask()
    fetched(story)
    reading = story.reading(0)
    assert reading.source(story.now_s) == 2
    story.ask()
    fetched(story)
    assert reading.offset == 4
    story.cluster.follower = None  # it is no replica any more
    story.ask()
    fetched(story)
    assert reading.source(story.now_s) == reading.leader
    assert not story.fetcher.failures


@pytest.mark.parametrize("is_another_elected", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        FetchResponse.PartitionData(diverging_epoch=FetchResponse.EpochEndOffset(epoch=0, end_offset=1)),
        FetchResponse.PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_follower_that_is_behind_moves_nobody(said: FetchResponse.PartitionData, is_another_elected: bool) -> None:
    """Of Apache Kafka one says that the logs part where its own ends. It follows also when somebody else leads meanwhile."""
    story = Story(17, rack="r")
    story.produce(0, 3)
    story.cluster.follower = 2
    for _ in range(3):
        story.ask()
        fetched(story)
    reading = story.reading(0)
    assert (reading.offset, reading.source(story.now_s)) == (4, 2)
    story.ask()
    (fetch,) = (each for each in story.under_way if each.node == 2)
    (spot,) = (each for each, asked in fetch.asked.items() if asked.reading is reading)
    if is_another_elected:
        story.lead(0)
        story.learn()
    told = msgspec.structs.replace(said, partition_index=spot.partition)
    topic = FetchResponse.FetchableTopicResponse(topic_id=spot.topic_id, partitions=[told])
    story.fetcher.fetched(fetch, FetchResponse(responses=[topic]), story.now_s)
    assert (reading.offset, reading.source(story.now_s)) == (4, reading.leader)
    assert (reading.not_before_s > story.now_s) is not is_another_elected, "the leader may send it there again"


def test_without_a_policy_a_log_that_was_cut_is_an_error_with_its_place() -> None:
    story = Story(17)
    story.fetcher.taste = Taste(resets_to=None)
    story.produce(0, 3)
    story.fetcher.seek(story.reading(0), 4, epoch=0)
    story.cut(0, 0)
    story.learn()
    story.ask()
    fetched(story)
    (failed,) = story.fetcher.failures
    assert (failed.topic, failed.partition, failed.code) == (TOPIC, 0, ErrorCode.OFFSET_OUT_OF_RANGE)


def test_nobody_waits_at_a_broker_for_one_partition_while_another_may_be_wanted() -> None:
    story = Story(17, prefetch_bytes=10_000)
    for _ in range(40):
        story.produce(0, 3)
    story.ask()
    while story.reading(0).pieces < 2:
        story.ask()
        fetched(story)
    story.ask()
    (fetch,) = (each for each in story.under_way if each.node == 0)
    assert fetch.request.max_wait_ms == 0
    fetched(story)
    assert 0 not in story.fetcher.idle_nodes(story.now_s)  # it rests, there was nothing
    story.handing.come_back(is_iterating=False)
    while story.reading(0).pieces == 2:
        story.handing.give(1)
    assert 0 in story.fetcher.idle_nodes(story.now_s)


def test_what_is_paused_gives_its_room_to_others() -> None:
    story = Story(17, prefetch_bytes=300)
    for choice in (0, 3) * 5:
        story.produce(choice, 3)
    for _ in range(4):
        story.ask()
        fetched(story)
    story.produce(1, 3)
    assert story.fetcher.idle_nodes(story.now_s) == []  # no room
    story.pause(0)
    story.pause(3)
    assert 1 in story.fetcher.idle_nodes(story.now_s)
    story.ask()
    fetched(story)
    story.handing.come_back(is_iterating=False)
    assert {record.partition for record in story.handing.give(100)} == {1}
    story.pause(0)
    story.ask()
    fetched(story)
    assert [record.offset for record in story.handing.give(2)] == [0, 1]


def test_what_was_given_in_earlier_steps_is_done_with_and_nothing_else() -> None:
    story = Story(17)
    story.produce(0, 3)
    for _ in range(2):
        story.ask()
        fetched(story)
    handing, reading = story.handing, story.reading(0)

    def done() -> int:
        handing.look()
        return reading.done

    handing.come_back(is_iterating=True)
    assert handing.prepare(10)
    for number in range(4):
        assert next(handing.coming).offset == number
        assert done() == number
        assert handing.holds([reading])
    handing.come_back(is_iterating=True)
    assert done() == 4
    assert not handing.holds([reading])
    story.seek(0, 3)
    story.ask()
    for _ in range(2):
        story.ask()
        fetched(story)
    handing.come_back(is_iterating=False)
    assert [each.offset for each in handing.give(3)] == [0, 1, 2]
    assert done() == 0
    handing.come_back(is_iterating=False)
    assert done() == 3


def test_an_answer_to_what_was_asked_before_a_seek_is_worth_nothing() -> None:
    story = Story(17)
    for _ in range(3):
        story.produce(0, 3)
    story.fetcher.seek(story.reading(0), 8)
    story.ask()
    story.fetcher.seek(story.reading(0), 2)
    fetched(story)
    story.ask()
    fetched(story)
    assert [record.offset for record in story.handing.give(3)] == [2, 3, 4]


def test_where_a_log_was_cut_reading_goes_on_with_what_was_not_given() -> None:
    """And what is ready to be given, of the log as it was, is not."""
    story = Story(17)
    for _ in range(4):
        story.produce(0, 0)
    for _ in range(2):
        story.ask()
        fetched(story)
    story.handing.come_back(is_iterating=True)
    assert story.handing.prepare(10)
    assert next(story.handing.coming).offset == 0
    story.cut(0, 0)  # the fourth is no more
    story.learn()
    story.ask()
    fetched(story)
    assert story.handing.left == 0
    assert story.reading(0).given == 1
    story.ask()
    fetched(story)
    assert [record.offset for record in story.handing.give(10)] == [1, 2]


def test_what_a_leader_of_the_past_has_answered_is_worth_nothing_where_the_next_one_was_heard_before_it() -> None:
    story = Story(17)
    story.produce(0, 1)
    story.ask()
    story.say(0)  # the first two, and then it leads no more
    old, *others = story.under_way
    assert old.node == 0
    for _ in others:
        story.answer(1)
    story.lead(0)
    story.produce(0, 1)
    story.learn()
    story.ask()
    story.answer([each.node for each in story.under_way].index(1))
    reading = story.reading(0)
    assert (reading.offset, reading.last_epoch) == (4, 1)
    assert len(story.handing.give(10)) == 4
    jumps = reading.jumps
    fetched(story)
    story.ask()
    fetched(story)
    assert (reading.given, reading.jumps) == (4, jumps), "nothing is read again"


def test_a_question_that_a_leader_of_the_past_refuses_goes_to_the_next_one() -> None:
    story = Story(17)
    story.fetcher.aim(story.reading(0), EARLIEST)
    (asked,) = (each for each, _ in story.fetcher.lookups(story.now_s) if each.reading is story.reading(0))
    story.lead(0)
    story.learn()
    story.fetcher.refused(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER, story.now_s)
    assert [each.node for each, _ in story.fetcher.lookups(story.now_s)] == [story.reading(0).leader]


def in_hand(version: int) -> tuple[Story, Commits]:
    """The first of four records was given in an earlier step, the next two are in hand."""
    story = Story(version)
    for _ in range(4):
        story.produce(0, 0)
    for _ in range(2):
        story.ask()
        fetched(story)
    for count in (1, 2):
        story.handing.come_back(is_iterating=False)
        assert len(story.handing.give(count)) == count
    offsets = SimpleNamespace(cluster=SimpleNamespace(metadata=story.cluster.metadata()))
    commits = Commits(cast("Offsets", offsets), story.fetcher, story.handing)
    assert unsent(story, commits) == 1
    return story, commits


def unsent(story: Story, commits: Commits) -> int | None:
    found = commits.unsent().get(story.places[0])
    return found.offset if found is not None else None


@pytest.mark.parametrize(("batches_cut", "left"), [(1, 3), (2, 2), (3, 1)])
@pytest.mark.parametrize("version", [11, 17])
def test_what_is_in_hand_when_a_log_is_cut_is_not_committed(version: int, batches_cut: int, left: int) -> None:
    """Behind what is in hand, or among it."""
    story, commits = in_hand(version)
    story.cut(0, batches_cut - 1)
    for _ in range(3):
        story.learn()
        story.ask()
        fetched(story)
    assert story.reading(0).given == left
    assert unsent(story, commits) is None
    story.handing.come_back(is_iterating=False)
    assert unsent(story, commits) == left


def test_what_is_in_hand_when_a_position_is_reset_is_not_committed() -> None:
    """Retention has been as far as we are."""
    story, commits = in_hand(17)
    for _ in range(3):
        story.delete(0)
    story.fetcher.reset(story.reading(0), ErrorCode.OFFSET_OUT_OF_RANGE)
    assert unsent(story, commits) is None
    story.ask()
    assert story.reading(0).given == 3
    assert unsent(story, commits) is None
    story.handing.come_back(is_iterating=False)
    assert unsent(story, commits) == 3


def test_what_somebody_has_not_passed_on_when_a_log_is_cut_is_not_done_with() -> None:
    story, commits = in_hand(17)
    story.cut(0, 0)
    for _ in range(3):
        story.learn()
        story.ask()
        fetched(story)
    story.handing.finish({story.places[0]: 2})
    assert unsent(story, commits) == 2
