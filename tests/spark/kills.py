"""Kills a program that writes exactly once (`transformer.py`), its workers and the brokers, at random points and again and again;
then everything that it should have written must be there, and nothing twice.

    python -m tests.spark.kills --seconds 600 --seed 17

Invariants
 1. Every record of the source is copied once.
 2. The counts of a key grow with each record of it that is committed, and end at as many as there are in the source.
 3. The groups are at the end of the source.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from odradek import sync
from odradek.client.admin.offsets import Isolation, Offset
from odradek.client.records import TopicPartition
from tests.clients.transactions import SETTINGS
from tests.cluster.cluster import Cluster, running
from tests.spark.topics import made, messages
from tests.spark.transformer import GROUP

FAULTS: Final = ("driver", "python", "worker", "worker", "broker")
PARTITIONS: Final = 3
KEYS: Final = 5
CHUNK_RECORDS: Final = 2
WAITING_MAX: Final = 500  # records that are not read yet
WAIT_SECONDS_MAX: Final = 240.0
POLL_SECONDS: Final = 0.05
COPIED, COUNTED = "copies", "counts"
MARK: Final = "ODRADEK_KILLS"


class Program:
    """The transformer, and all processes that come of it: they have a mark in their environment."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.folder = folder
        self.command = [sys.executable, "-m", "tests.spark.transformer", bootstrap, str(folder), "source", COPIED, COUNTED]
        self.process: subprocess.Popen[bytes] | None = None
        self.name = str(uuid.uuid4())
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        environment = {**os.environ, MARK: f"{self.name}/{self.starts}"}
        with open(self.folder / "transformer.log", "ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output, env=environment)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill_all(self) -> None:
        assert self.process is not None
        for pid, _ in marked(f"{self.name}/{self.starts}"):
            killed(pid)
        self.process.wait()

    def kill_python(self) -> None:
        """The driver's Python alone: what it had going in the JVM goes on for a while, with nobody to tell."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill_worker(self, chance: random.Random) -> None:
        """Whatever does Python's part of tasks, or of the source, or makes such processes."""
        assert self.process is not None
        found = [pid for pid, command in marked(f"{self.name}/{self.starts}") if b"java" not in command]
        others = sorted(pid for pid in found if pid != self.process.pid)
        if others:
            killed(chance.choice(others))

    def end(self) -> None:
        """Whoever is left, of all that were started."""
        for pid, _ in marked(self.name):
            killed(pid)
        if self.process is not None:
            self.process.wait()

    def said(self) -> str:
        return "\n".join((self.folder / "transformer.log").read_text(errors="replace").splitlines()[-60:])


def marked(name: str) -> list[tuple[int, bytes]]:
    """The processes that were started here as this, by their environment, and their command lines."""
    wanted, found = f"{MARK}={name}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if wanted in (entry / "environ").read_bytes():
                    found.append((int(entry.name), (entry / "cmdline").read_bytes()))
            except OSError:
                continue
    return found


def killed(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class Trial:
    """What goes in, how far what comes out is, and what happens to whom."""

    def __init__(self, cluster: Cluster, folder: Path, seed: int, say: Callable[[str], object] = lambda _: None) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.program = Program(cluster.bootstrap, folder)
        self.say = say
        self.sent = 0
        self.kills: dict[str, int] = {}
        self.producer = sync.Producer(cluster.bootstrap)
        self.admin = sync.Admin(cluster.bootstrap)
        for topic in ("source", COPIED, COUNTED):
            made(cluster.bootstrap, topic, PARTITIONS, 3, min_insync_replicas="2")

    def feed(self) -> None:
        """Unless there is enough to do."""
        if self.sent - self.read(COPIED) > WAITING_MAX:
            return
        for _ in range(CHUNK_RECORDS):
            self.producer.send("source", str(self.sent), key=str(self.sent % KEYS))
            self.sent += 1

    def read(self, name: str) -> int:
        """How many records of the source a query has committed."""
        group = f"{GROUP}-{name}"
        return sum(each.offset for each in self.admin.list_group_offsets([group])[group].values())

    def ends(self, topic: str, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> int:
        """How much was written to a topic, ends of transactions included."""
        places = dict.fromkeys([TopicPartition(topic, index) for index in range(PARTITIONS)], Offset.LATEST)
        return sum(each.offset for each in self.admin.list_offsets(places, isolation=isolation).values())

    def wait(self, look: Callable[[], bool], what: str) -> None:
        """While records come in, and the program is started whenever it has ended."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not look():
            assert time.monotonic() < deadline, f"{what}: not within {WAIT_SECONDS_MAX} s\n{self.program.said()}"
            if not self.program.is_running:
                self.program.start()
            time.sleep(POLL_SECONDS)

    def progress(self) -> None:
        """Until something was written since, by both queries, and then at some point after that."""
        marks = {topic: self.ends(topic) for topic in (COPIED, COUNTED)}
        more = self.chance.randrange(1, 40)
        self.feed()

        def look() -> bool:
            self.feed()
            return all(self.ends(topic) > mark for topic, mark in marks.items()) and (
                sum(self.ends(topic) - mark for topic, mark in marks.items()) > more
            )

        self.wait(look, "progress")

    def strike(self, fault: str) -> None:
        self.kills[fault] = self.kills.get(fault, 0) + 1
        self.say(f"{self.sent} records, {self.program.starts} starts: kills {fault}")
        match fault:
            case "driver":
                self.program.kill_all()
            case "python":
                self.program.kill_python()
            case "worker":
                self.program.kill_worker(self.chance)
            case "broker":
                number = self.chance.choice([*self.cluster.brokers])
                self.cluster.kill(number)
                self.progress()
                self.cluster.start(number)
                for topic in ("source", COPIED, COUNTED):
                    self.cluster.all_in_sync(topic)

    def check(self) -> None:
        """When all that was sent has come out."""
        self.producer.flush()
        wanted = {key: len(range(key, self.sent, KEYS)) for key in range(KEYS)}

        def is_through() -> bool:
            return all(self.read(name) >= self.sent for name in (COPIED, COUNTED))

        self.wait(is_through, "the end of the source")
        self.program.end()
        copied = [(each.value() or b"").decode() for each in messages(self.cluster.bootstrap, COPIED)]
        expected = [f"copy of {number}" for number in range(self.sent)]
        missing, twice = set(expected) - set(copied), len(copied) - len(set(copied))
        assert sorted(copied) == sorted(expected), f"{len(missing)} are missing ({sorted(missing)[:5]}), {twice} are there twice"
        counts: dict[int, list[int]] = {}
        for each in messages(self.cluster.bootstrap, COUNTED):
            counts.setdefault(int(each.key() or b"-1"), []).append(int(each.value() or b"-1"))
        for key, found in counts.items():
            assert found == sorted(set(found)), f"counts of {key} do not grow: {found}"
        assert {key: found[-1] for key, found in counts.items()} == wanted
        for name in (COPIED, COUNTED):
            assert self.read(name) == self.sent

    def close(self) -> None:
        self.program.end()
        self.producer.close(is_hasty=True)
        self.admin.close()


@contextmanager
def trial(cluster: Cluster, folder: Path, seed: int, say: Callable[[str], object] = lambda _: None) -> Iterator[Trial]:
    found = Trial(cluster, folder, seed, say)
    try:
        with cluster.explaining():
            yield found
    finally:
        found.close()


def hold(found: Trial, faults: Iterable[str]) -> None:
    for fault in faults:
        found.progress()
        found.strike(fault)
    found.progress()
    found.check()


def until_time_is_up(seconds: float, chance: random.Random) -> Iterator[str]:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        yield chance.choice(FAULTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=os.getpid())
    given = parser.parse_args()

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    say(f"seed {given.seed}")
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder, "cluster"), None, **SETTINGS) as cluster,
        trial(cluster, Path(folder), given.seed, say) as found,
    ):
        hold(found, until_time_is_up(given.seconds, random.Random(given.seed + 1)))
        say(f"{found.sent} records, each once; {found.program.starts} starts, kills {found.kills}")


if __name__ == "__main__":
    main()
