"""Odradek and Apache Kafka take turns with one data folder.

A broker makes topics and is stopped. Odradek opens its folder, appends all kinds of batches, and closes it, or is killed. The
broker starts again and has to serve all of it, to know the producers, and to go on. Then Odradek looks at it once more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from odradek.log.names import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.records import Record, build
from tests.kafka import turn
from tests.kafka.broker import Broker
from tests.kafka.dump import check_dump
from tests.kafka.folders import now, opened
from tests.kafka.oracle import Oracle
from tests.kafka.partitions import Seen, seen_by_kafka, seen_by_odradek
from tests.kafka.produce import produce

BATCH_RECORDS = 5  # in the last batch that a turn appends for the idempotent producer
ENDINGS = ("close", "kill")


class Answers(NamedTuple):
    """What Kafka said to a producer whose last batch Odradek took: to that batch once more, to the next one, to that one once
    more, and to one that leaves some out."""

    last_again: tuple[ErrorCode, int]
    next_one: tuple[ErrorCode, int]
    next_again: tuple[ErrorCode, int]
    gap: tuple[ErrorCode, int]


@dataclass
class Round:
    """One turn of Odradek's, and what Kafka made of it; `appended` is all that was ever appended by then."""

    report: turn.Report
    dumped: dict[str, str]
    appended: dict[str, list[Record]]
    served: dict[str, Seen]
    answers: Answers
    survivor_offset: int


class Story:
    def __init__(self, broker: Broker, oracle: Oracle) -> None:
        self.broker = broker
        self.oracle = oracle
        self.appended: dict[str, list[Record]] = {}
        self.aborted: set[int] = set()
        self.rounds: dict[str, Round] = {}
        self.reread: dict[str, Seen] = {}

    def run(self) -> None:
        with self.broker.running():
            for topic, settings in turn.TOPICS.items():
                self.make(topic, dict(settings))
            self.survivor_sends()
        for number, ending in enumerate(ENDINGS, start=1):
            self.rounds[ending] = self.round(number, ending)
        with opened(self.broker.data, turn.TOPICS) as folder:
            self.reread = {topic: seen_by_odradek(folder.logs[TopicPartition(topic, 0)]) for topic in turn.TOPICS}

    def make(self, topic: str, settings: dict[str, str]) -> None:
        to = {"bootstrap": self.broker.bootstrap, "topic": topic}
        self.oracle.call("Clients.create", **to, partitions=1, configs=settings)
        self.oracle.call("Clients.produce", **to, partition=0, rows=[[now(), "6b", None], [now(), None, "ff"]])
        self.appended[topic] = self.seen(topic).records
        assert len(self.appended[topic]) == 2

    def seen(self, topic: str) -> Seen:
        return seen_by_kafka(self.oracle, self.broker.bootstrap, TopicPartition(topic, 0))

    def survivor_sends(self) -> int:
        """One record of a Java producer that lives through all restarts."""
        to = {"bootstrap": self.broker.bootstrap, "topic": "plain", "partition": 0, "producer": "survivor"}
        timestamp = now()
        (offset,) = self.oracle.call("Partitions.send", **to, rows=[[timestamp, None, "aa"]])
        self.appended["plain"].append(Record(offset, timestamp, None, b"\xaa"))
        return int(offset)

    def round(self, number: int, ending: str) -> Round:
        report = turn.run(self.broker.data, number, ending)
        dumped = {topic: check_dump(self.oracle, self.broker.data / f"{topic}-0") for topic in turn.TOPICS}
        for topic, records in report.records.items():
            self.appended[topic] += records
        self.aborted |= {*report.aborted}
        appended = {topic: [*records] for topic, records in self.appended.items()}
        with self.broker.running():
            served = {topic: self.seen(topic) for topic in turn.TOPICS}
            return Round(report, dumped, appended, served, self.idempotent_goes_on(), self.survivor_sends())

    def start_of(self, topic: str) -> int:
        """Where a log begins since Odradek's first turn, when it deleted some records."""
        return self.rounds["close"].report.seen[topic].start

    def idempotent_goes_on(self) -> Answers:
        partition, history = TopicPartition("idempotent", 0), self.appended["idempotent"]
        sequence, timestamp = len(history) - 2, now()  # the first two are not this producer's

        def send(base_sequence: int, count: int) -> tuple[ErrorCode, int]:
            rows = [Record(at, timestamp, None, b"next") for at in range(count)]
            batch = build(rows, producer_id=turn.PRODUCER, producer_epoch=0, base_sequence=base_sequence)
            return produce(self.broker.port, partition, batch)

        last_again = send(sequence - BATCH_RECORDS, BATCH_RECORDS)
        answers = Answers(last_again, send(sequence, 2), send(sequence, 2), send(sequence + 9, 2))
        history += [Record(len(history) + at, timestamp, None, b"next") for at in range(2)]
        return answers


def since(start: int, records: list[Record]) -> list[Record]:
    return [record for record in records if record.offset >= start]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, oracle: Oracle) -> Iterator[Story]:
    told = Story(Broker(tmp_path_factory.mktemp("turns")), oracle)
    told.run()
    yield told
    oracle.call("Partitions.forget", producer="survivor")


@pytest.mark.parametrize("topic", turn.TOPICS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_kafka_serves_every_record_that_odradek_appended(story: Story, ending: str, topic: str) -> None:
    """All of offset, timestamp, key, value and headers; after a kill it finds them by its own recovery."""
    told = story.rounds[ending]
    assert told.served[topic].records == since(story.start_of(topic), told.appended[topic])
    assert len(told.report.records[topic]) >= 15


@pytest.mark.parametrize("ending", ENDINGS)
def test_kafka_shows_no_record_of_a_transaction_that_odradek_aborted_or_left_open(story: Story, ending: str) -> None:
    told = story.rounds[ending]
    served, first_open = told.served["transactions"], told.report.aborted[-BATCH_RECORDS]
    assert served.stable == first_open
    stable = [record for record in told.appended["transactions"] if record.offset < first_open]
    assert served.committed == [record for record in stable if record.offset not in story.aborted]
    assert len(served.committed) < len(stable) < len(served.records)


@pytest.mark.parametrize("topic", turn.TOPICS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_kafka_finds_in_the_log_what_odradek_finds(story: Story, ending: str, topic: str) -> None:
    """Where it starts and ends, what is stable, the first record at or past a time, and the one with the greatest."""
    told = story.rounds[ending]
    assert told.served[topic] == told.report.seen[topic]


def test_kafkas_tool_finds_no_fault_with_the_files(story: Story) -> None:
    for ending in ENDINGS:
        for topic, printed in story.rounds[ending].dumped.items():
            assert printed.count("baseOffset:") >= 6, topic
        assert story.rounds[ending].dumped["segments"].count(".log\n") >= 4
        assert "lastStableOffset:" in story.rounds[ending].dumped["transactions"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_kafka_goes_on_with_the_producers_that_odradek_knew(story: Story, ending: str) -> None:
    told = story.rounds[ending]
    end = told.report.seen["idempotent"].end
    assert told.answers.last_again == (ErrorCode.NONE, end - BATCH_RECORDS)
    assert told.answers.next_one == told.answers.next_again == (ErrorCode.NONE, end)
    assert told.answers.gap == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_producer_of_kafkas_that_lives_through_odradeks_turn_goes_on(story: Story, ending: str) -> None:
    told = story.rounds[ending]
    assert told.survivor_offset == told.report.seen["plain"].end


@pytest.mark.parametrize("topic", turn.TOPICS)
def test_odradek_reads_what_both_have_appended(story: Story, topic: str) -> None:
    assert story.reread[topic].records == since(story.start_of(topic), story.appended[topic])


def test_kafka_shows_no_record_that_odradek_deleted(story: Story) -> None:
    start = story.start_of("segments")
    assert start > 0
    assert [story.rounds[ending].served["segments"].start for ending in ENDINGS] == [start, start]
