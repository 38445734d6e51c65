"""Kafka Streams with `exactly_once_v2` over three nodes: words are counted while the application and the nodes are killed.

Each word that is counted makes a record with the count so far. Exactly once means that a reader of what is committed finds 1, 2,
3 and so on for each word, as often as it was written, and nothing else.
"""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from confluent_kafka import TopicPartition

from tests.clients.confluent import Sender, consuming, create
from tests.clients.server import IS_KAFKA
from tests.clients.transactions import SETTINGS, KafkaCluster
from tests.clients.waiting import until
from tests.clients.word_count import Application
from tests.cluster.cluster import Cluster, running

PARTITIONS = 2
WORDS = [f"word-{number}" for number in range(12)]
LINE_WORDS = 4
PACE_SECONDS = 0.01
COUNTED_PER_FAULT = 300
SECONDS_MAX = 120.0
PATIENT = {"enable_idempotence": True, "message_timeout_ms": 120_000, "reconnect_backoff_max_ms": 200}
OF_GROUPS = {"group_min_session_timeout_ms": "1000", "group_initial_rebalance_delay_ms": "0"}


class Author(threading.Thread):
    """Writes lines of words until it is told that it is enough."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self.sender = Sender(bootstrap, **PATIENT)
        self.topic = topic
        self.written: Counter[str] = Counter()
        self.is_enough = threading.Event()

    def run(self) -> None:
        chance = Random(0)
        while not self.is_enough.wait(PACE_SECONDS):
            words = chance.choices(WORDS, k=LINE_WORDS)
            self.sender.send(self.topic, " ".join(words).encode(), partition=chance.randrange(PARTITIONS))
            self.sender.producer.poll(0)
            self.written.update(words)


class Reader:
    """What it was told of each word, in order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.counts: dict[str, list[int]] = {}
        self.reading = consuming(bootstrap, isolation_level="read_committed", reconnect_backoff_max_ms=200)
        self.consumer = self.reading.__enter__()
        self.consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])

    def close(self) -> None:
        self.reading.__exit__(None, None, None)

    @property
    def total(self) -> int:
        for message in self.consumer.consume(500, 0.05):
            if message.error() is None:
                counts = self.counts.setdefault((message.key() or b"").decode(), [])
                counts.append(int.from_bytes(message.value() or b"", "big"))
        return sum(map(len, self.counts.values()))


@contextmanager
def counting(application: Application, author: Author) -> Iterator[None]:
    application.start()
    author.start()
    try:
        yield
    except BaseException as error:
        error.add_note(application.log.read_text()[-4000:])
        raise
    finally:
        author.is_enough.set()
        author.join()
        application.end(signal.SIGKILL)


def test_every_word_is_counted_once_while_nodes_and_the_application_are_killed(tmp_path: Path) -> None:
    kind = KafkaCluster if IS_KAFKA else Cluster
    with running(tmp_path, None, kind, **SETTINGS | OF_GROUPS) as cluster, cluster.explaining():
        for topic in ("lines", "counts"):
            create(cluster.bootstrap, topic, PARTITIONS)
        application = Application(cluster.bootstrap, tmp_path, "lines", "counts", group="counting", protocol="classic")
        author, reader = Author(cluster.bootstrap, "lines"), Reader(cluster.bootstrap, "counts")
        with counting(application, author):
            counted(reader, COUNTED_PER_FAULT)
            for number in cluster.brokers:
                cluster.kill(number)
                counted(reader, COUNTED_PER_FAULT)
                cluster.start(number)
                application.end(signal.SIGKILL if number < 3 else signal.SIGTERM)
                application.start()
                counted(reader, COUNTED_PER_FAULT)
                cluster.heal()
            author.is_enough.set()
            author.join()
            author.sender.all_delivered()
            until(lambda: reader.total >= author.written.total(), "all words", SECONDS_MAX)
        reader.close()
    assert reader.counts == {word: list(range(1, count + 1)) for word, count in author.written.items()}


def counted(reader: Reader, count: int) -> None:
    """Until the reader has heard of so many more."""
    goal = reader.total + count
    until(lambda: reader.total >= goal, f"{goal} counted words", SECONDS_MAX)
