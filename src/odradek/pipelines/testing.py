"""A pipeline under test: given records in, run to completion on a cluster of its own, and what it wrote.

    with PipelineTest("order_totals.py") as test:
        test.send("orders", {"order_id": "1", "customer": "alice", "amount": 9.5, "at": "2024-05-17T10:00:00Z"}, key="alice")
        test.run()
        assert test.values("order-totals") == [...]

What `run` has done is done: more can be sent, and it goes on from there. A window that is not over yet gives no final result,
in a test as elsewhere: send a record from after it.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from odradek.client.errors import KafkaError
from odradek.client.records import Record
from odradek.pipelines.pipeline import BOOTSTRAP, Pipeline
from odradek.pipelines.runner import Runner, State, check, load
from odradek.sync import Admin, Consumer, Producer

START_SECONDS: Final = 30.0
STARTS_MAX: Final = 3
Value = bytes | str | Mapping[str, Any] | None


class PipelineFailed(AssertionError):
    """It could not be run to the end; the message says why."""


class PipelineTest:
    def __init__(self, *tested: str | Path | Pipeline, partitions: int = 1) -> None:
        """Files that declare pipelines, or pipelines. `partitions`: of the topics that are made here."""
        self.tested, self.partitions = tested, partitions
        self.pipelines: list[Pipeline] = []

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="odradek-test-")
        self._before = os.environ.get(BOOTSTRAP)
        self._start()
        os.environ[BOOTSTRAP] = self.bootstrap
        try:
            files = [each for each in self.tested if not isinstance(each, Pipeline)]
            self.pipelines = [each for each in self.tested if isinstance(each, Pipeline)] + (load(files) if files else [])
            check(self.pipelines)
            for pipeline in self.pipelines:
                pipeline.move(self.bootstrap)
            self._producer = Producer(self.bootstrap)
        except BaseException:
            self._stop()
            raise
        return self

    def _start(self) -> None:
        """A node of its own. One that ends at once was given a port that somebody else took meanwhile: another is tried."""
        said = Path(self._folder.name, "node.txt")
        command = [sys.executable, "-m", "odradek", "start", "-o", f"num.partitions={self.partitions}"]
        end_s = time.monotonic() + START_SECONDS
        for attempt in range(STARTS_MAX):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.bootstrap = f"127.0.0.1:{free.getsockname()[1]}"
            where = ["--data", f"{self._folder.name}/data-{attempt}", "--listen", self.bootstrap]
            with said.open("wb") as output:
                self._node = subprocess.Popen([*command, *where], stdout=subprocess.DEVNULL, stderr=output)
            while self._node.poll() is None and time.monotonic() < end_s:
                with suppress(KafkaError), Admin(self.bootstrap) as admin:
                    admin.describe_cluster(timeout_ms=1_000)
                    return
            if self._node.poll() is None:
                break
        why = said.read_text().strip()
        self._stop()
        raise PipelineFailed(f"the test's own node does not serve: {why}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._producer.close(is_hasty=True)
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._before is None:
            os.environ.pop(BOOTSTRAP, None)
        else:
            os.environ[BOOTSTRAP] = self._before
        self._node.terminate()
        self._node.wait()
        self._folder.cleanup()

    # -- what goes in

    def send(self, topic: str, *values: Value, key: str | bytes | None = None, timestamp_ms: int | None = None) -> None:
        """Records with these values; mappings as JSON."""
        for value in values:
            data = json.dumps(value) if isinstance(value, Mapping) else value
            self._producer.send(topic, data, key=key, timestamp_ms=timestamp_ms)
        self._producer.flush()

    def run(self) -> dict[str, list[Record]]:
        """Reads all that is there and was not read before, and gives what each topic that is written to has now."""
        self._make_inputs()
        said: list[str] = []
        runner = Runner(
            self.pipelines, checkpoints=f"{self._folder.name}/checkpoints", say=said.append, failures_max=1, to_end=True
        )
        if not runner.run():
            failed = [task for task in runner.tasks if task.state is State.FAILED]
            raise PipelineFailed(f"{failed[0].output.title}: {failed[0].error}")
        return {topic: self.records(topic) for topic in self._targets()}

    def _make_inputs(self) -> None:
        """Topics that nothing was sent to are empty, not missing."""
        from odradek.client.admin.topics import NewTopic

        with Admin(self.bootstrap) as admin:
            there = admin.list_topics()
            wanted = [
                name
                for pipeline in self.pipelines
                for topic in (*pipeline.topics, *pipeline.tables)
                for name in topic.topics
                if name not in there
            ]
            if wanted:
                admin.create_topics([NewTopic(name, partitions=self.partitions) for name in dict.fromkeys(wanted)])

    # -- what comes out

    def _targets(self) -> Iterable[str]:
        outputs = [output for pipeline in self.pipelines for output in pipeline.outputs if output.target.is_topic]
        letters = [pipeline.dead_letters for pipeline in self.pipelines]
        return dict.fromkeys(name for name in [*(output.target.where for output in outputs), *letters] if name)

    def records(self, topic: str) -> list[Record]:
        """What is committed in a topic, partition after partition."""
        with Consumer(bootstrap=self.bootstrap) as consumer:
            with Admin(self.bootstrap) as admin:
                there = admin.describe_topics([topic])[topic]
            ends = consumer.end_offsets(*((topic, each.index) for each in there.partitions))
            found: list[Record] = []
            for place, end in sorted(ends.items()):
                consumer.assign({place: 0}, {place: end})
                while consumer.position(place) < end:
                    found += consumer.poll(10_000)
        return found

    def values(self, topic: str) -> list[Any]:
        """The same, values alone, as JSON."""
        return [None if record.value is None else json.loads(record.value) for record in self.records(topic)]
