"""Groups whose members come, leave and are killed while records are written, seen through the members' own eyes.

What each member was told, and when, stands in the journals of tests/clients/crew.py. From them:
 1. no partition has two owners at a time;
 2. none is forgotten: in the end each has one;
 3. every record is read at least once;
 4. committed offsets never go back.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.confluent import Sender, create, patiently
from tests.clients.waiting import SECONDS_MAX, until
from tests.kafka.broker import Broker

SETTINGS = {
    "group_min_session_timeout_ms": "3000",
    "group_consumer_min_session_timeout_ms": "3000",
    "group_consumer_session_timeout_ms": "5000",
    "group_consumer_heartbeat_interval_ms": "300",
    "group_consumer_min_heartbeat_interval_ms": "300",
}
PARTITIONS = 60
CREW = 4
UNSENT_MAX = 100
CLASSIC = {"session.timeout.ms": 5000, "heartbeat.interval.ms": 300}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {**CLASSIC, "partition.assignment.strategy": "range"},
    "cooperative": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "new": {"group.protocol": "consumer"},
}


class Event(NamedTuple):
    when: float
    who: str
    what: str
    of: list[Any]


class Crew:
    """A process with some members."""

    def __init__(self, path: Path, label: str, count: int, topic: str, settings: dict[str, Any]) -> None:
        self.label = label
        command = [sys.executable, "-m", "tests.clients.crew", str(path), label, str(count), topic, json.dumps(settings)]
        self.process = subprocess.Popen(command)

    def end(self, how: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait()


class Churn:
    """A group, its crews, somebody who writes, and somebody who watches the committed offsets."""

    def __init__(self, server: Broker, name: str, folder: Path, settings: dict[str, Any]) -> None:
        self.server = server
        self.name = name
        self.folder = folder
        base = {"bootstrap.servers": server.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
        self.settings = {**base, "enable.auto.commit": False, **settings}
        self.crews: dict[str, Crew] = {}
        self.ended: dict[str, float] = {}  # when a crew was gone for certain
        self.sender = Sender(server.bootstrap, enable_idempotence=True)
        self.sent = 0
        self.watcher = Consumer({"bootstrap.servers": server.bootstrap, "group.id": name})
        self.committed: dict[int, int] = {}
        create(server.bootstrap, name, PARTITIONS)

    def begin(self, label: str, count: int = CREW, **more: Any) -> None:
        settings = {**self.settings, **{key.replace("_", "."): value for key, value in more.items()}}
        self.crews[label] = Crew(self.folder / f"{label}.journal", label, count, self.name, settings)

    def end(self, label: str, how: signal.Signals = signal.SIGTERM) -> None:
        self.crews.pop(label).end(how)
        self.ended[label] = time.monotonic()

    def close(self) -> None:
        self.watcher.close()
        for crew in self.crews.values():
            crew.end(signal.SIGKILL)

    def events(self) -> list[Event]:
        found = []
        for path in self.folder.glob("*.journal"):
            lines = path.read_text().split("\n")[:-1]  # the last may be half a line
            found += [Event(*json.loads(line)) for line in lines]
        return sorted(found)

    def owned(self) -> dict[str, set[int]]:
        """What each living member has now, by its own word."""
        owned: dict[str, set[int]] = {}
        for _, who, what, of in self.events():
            if what == "assigned":
                owned[who] = owned.get(who, set()) | set(of)
            elif what in ("revoked", "lost"):
                owned[who] = owned.get(who, set()) - set(of)
        return {who: has for who, has in owned.items() if who[:-1] in self.crews}

    def go_on(self) -> None:
        """Writes some more, and looks at what is committed."""
        while len(self.sender.producer) < UNSENT_MAX:
            self.sender.send(self.name, b"%d" % self.sent, partition=self.sent % PARTITIONS)
            self.sent += 1
        self.sender.producer.poll(0.02)
        before, self.committed = self.committed, self.look()
        assert all(self.committed[index] >= offset for index, offset in before.items()), "a committed offset went back"

    def look(self) -> dict[int, int]:
        """What is committed now."""
        partitions = [TopicPartition(self.name, index) for index in range(PARTITIONS)]
        found = patiently(lambda: self.watcher.committed(partitions, timeout=SECONDS_MAX))
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def settle(self, members: int) -> None:
        """Until so many members have equal shares, and together everything."""
        share = PARTITIONS // members

        def look() -> bool:
            self.go_on()
            owned = [has for has in self.owned().values() if has]
            everything = sorted(index for has in owned for index in has) == list(range(PARTITIONS))
            return len(owned) == members and everything and max(map(len, owned)) <= share + 1

        until(look, f"shares of {share} for {members} members")

    def finish(self) -> None:
        """Until every record is read and committed."""
        self.sender.all_delivered()
        wanted = {(each.partition, each.offset) for each in self.sender.delivered}
        ends = {index: 1 + max(offset for at, offset in wanted if at == index) for index in range(PARTITIONS)}

        def look() -> bool:
            read = {tuple(each) for event in self.events() if event.what == "read" for each in event.of}
            return wanted <= read

        until(look, "every record at some member")
        until(lambda: self.look() == ends, "the commits of everything")


def check_owners(events: list[Event], ended: dict[str, float]) -> None:
    """No partition has two owners at a time. A member that was thrown out learns of it late, and has lost what it had before."""
    lost = {(who, index) for _, who, what, of in events if what == "lost" for index in of}
    owner: dict[int, tuple[str, float]] = {}
    for when, who, what, of in events:
        for index in of if what in ("assigned", "revoked", "lost") else ():
            if what == "assigned":
                other, since = owner.get(index, ("", 0.0))
                is_over = other in ("", who) or ended.get(other[:-1], when) < when or (other, index) in lost
                assert is_over, f"{who} is given {index} at {when}, which {other} has since {since}"
                owner[index] = (who, when)
            elif owner.get(index, ("", 0.0))[0] == who:
                del owner[index]


@pytest.fixture(params=PROTOCOLS)
def churn(request: pytest.FixtureRequest, server: Broker, name: str, tmp_path: Path) -> Iterator[Churn]:
    group = Churn(server, name, tmp_path, PROTOCOLS[request.param])
    yield group
    group.close()


def test_members_join_leave_and_die_while_records_are_written(churn: Churn) -> None:
    churn.begin("a")
    churn.settle(4)
    for label in "bcde":
        churn.begin(label)
    churn.settle(20)
    churn.end("c", signal.SIGKILL)
    churn.end("d")
    churn.settle(12)
    churn.begin("f")
    churn.settle(16)
    churn.end("a", signal.SIGKILL)
    churn.begin("g", 8)
    churn.settle(20)
    churn.finish()
    for label in list(churn.crews):
        churn.end(label)
    check_owners(churn.events(), churn.ended)


def test_static_members_come_back_to_what_they_had(churn: Churn) -> None:
    is_new = "group.protocol" in churn.settings
    churn.begin("a")
    churn.begin("s", group_instance_id="static")
    churn.settle(2 * CREW)
    had = {who[1:]: has for who, has in churn.owned().items() if who.startswith("s")}
    others = [event for event in churn.events() if event.who.startswith("a")]
    # Of the new protocol another one of its name is let in when a static member has said that it will be back.
    churn.end("s", signal.SIGTERM if is_new else signal.SIGKILL)
    churn.begin("t", group_instance_id="static")
    churn.settle(2 * CREW)
    assert {who[1:]: has for who, has in churn.owned().items() if who.startswith("t")} == had
    told = [event.what for event in churn.events() if event.who.startswith("a") and event not in others]
    assert not {"assigned", "revoked", "lost"} & set(told)
    churn.finish()
    check_owners(churn.events(), churn.ended)


def test_two_owners_at_a_time_would_be_seen() -> None:
    given = [Event(1.0, "a0", "assigned", [1, 2]), Event(2.0, "b0", "assigned", [2])]
    with pytest.raises(AssertionError, match=r"b0 is given 2 at 2\.0, which a0 has since 1\.0"):
        check_owners(given, {})
    check_owners(given, {"a": 1.5})
    check_owners([given[0], Event(1.5, "a0", "revoked", [2]), given[1]], {})
