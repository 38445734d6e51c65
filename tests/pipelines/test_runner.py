"""The runner keeps queries running: what it does about failures, commands, and the end. Queries here are not Spark's."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.errors import InvalidOption, KafkaError
from odradek.pipelines import Pipeline, asking, control, runner
from odradek.pipelines.asking import NoDriver, ask
from odradek.pipelines.output import Output, Target
from odradek.pipelines.runner import Runner, State, Task


class Query:
    """A query that does as it is told."""

    def __init__(self) -> None:
        self.isActive = True
        self.recentProgress: list[Any] = []
        self.error: Exception | None = None
        self.is_stopped = False

    def exception(self) -> Exception | None:
        return self.error

    def fail(self, text: str) -> None:
        self.error, self.isActive = RuntimeError(text), False

    def stop(self) -> None:
        self.is_stopped, self.isActive = True, False

    def progress(self, batch: int, rows: int, **sources: int) -> None:
        """A batch is done. `sources` are what has been read of topics, of 100 records each."""
        found = [
            SimpleNamespace(endOffset=json.dumps({topic: {"0": end}}), latestOffset=json.dumps({topic: {"0": 100}}))
            for topic, end in sources.items()
        ]
        self.recentProgress.append(
            SimpleNamespace(
                batchId=batch,
                batchDuration=500,
                durationMs={"addBatch": 400},
                numInputRows=rows,
                observedMetrics={"odradek": SimpleNamespace(rows=rows)},
                sources=found,
                stateOperators=[SimpleNamespace(numRowsTotal=7, memoryUsedBytes=2_000_000)],
                eventTime={"watermark": "2024-05-17T10:00:00.000Z"},
            )
        )


class Staged(Output):
    """An output whose queries are these, one start after the other."""

    def __init__(self, pipeline: Pipeline, name: str = "out") -> None:
        super().__init__(pipeline, name, lambda: cast("Any", None), Target("topic", name))
        self.queries: list[Query] = []
        self.refuses: Exception | None = None
        self.stops = 0

    def start(self, checkpoint: str, *, trigger: Any = None) -> Any:
        if self.refuses is not None:
            raise self.refuses
        self.queries.append(Query())
        return self.queries[-1]

    def stop(self) -> None:
        self.stops += 1
        assert not self.queries or not self.queries[-1].is_stopped  # the batch at work is waited for first


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def output() -> Staged:
    pipeline = Pipeline("p")
    pipeline.outputs.append(found := Staged(pipeline))
    return found


def task_of(output: Staged, said: list[str], failures_max: int = 3) -> Task:
    return Task(output, "checkpoint", said.append, failures_max=failures_max, trigger=None)


def test_a_query_that_fails_is_started_again_after_a_pause_that_doubles_and_is_given_up_loudly(
    output: Staged, said: list[str]
) -> None:
    task = task_of(output, said)
    task.step(0.0)
    for now_s, later_s in ((10.0, 11.0), (20.0, 22.0)):
        output.queries[-1].fail("the network is down")
        task.step(now_s)
        assert task.state is State.WAITING
        task.step(later_s - 0.1)
        assert task.state is State.WAITING
        task.step(later_s)
        assert task.status()["state"] == "running"
    output.queries[-1].fail("the network is down")
    task.step(30.0)
    assert said == [
        "p.out: failed (1 of 3), again in 1 s: the network is down",
        "p.out: failed (2 of 3), again in 2 s: the network is down",
        "p.out: GIVEN UP after 3 failures. the network is down",
    ]
    assert (task.state, task.restarts, len(output.queries)) == (State.FAILED, 2, 3)
    task.step(1000.0)
    assert len(output.queries) == 3


def test_a_pause_has_an_end(output: Staged, said: list[str]) -> None:
    task, now_s = task_of(output, said, failures_max=20), 0.0
    for _ in range(12):
        task.step(now_s)
        output.queries[-1].fail("no")
        task.step(now_s)
        assert task.not_before_s - now_s <= runner.PAUSE_SECONDS_MAX
        now_s = task.not_before_s


def test_failures_count_only_while_nothing_gets_done(output: Staged, said: list[str]) -> None:
    task = task_of(output, said)
    for now_s in range(0, 1000, 100):
        task.step(now_s)
        output.queries[-1].progress(now_s // 100, rows=1)
        task.step(now_s + 1)
        output.queries[-1].fail("now and then")
        task.step(now_s + 2)
        assert task.state is State.WAITING
    assert task.restarts == 9


def test_what_cannot_be_started_as_it_is_written_is_given_up_at_once(output: Staged, said: list[str]) -> None:
    output.refuses = InvalidOption("key='x': there is no such column")
    task = task_of(output, said)
    task.step(0.0)
    assert task.state is State.FAILED
    assert said == ["p.out: GIVEN UP. key='x': there is no such column"]


def test_a_query_that_was_fenced_leaves_it_to_who_came_later(output: Staged, said: list[str]) -> None:
    task = task_of(output, said)
    task.step(0.0)
    output.queries[0].fail("...\nodradek.client.errors.Fenced: odradek-p.out belongs to another producer\n...")
    task.step(1.0)
    assert said == ["p.out: GIVEN UP. odradek.client.errors.Fenced: odradek-p.out belongs to another producer"]


def test_a_batch_is_told_with_rates_time_lag_watermark_and_state(output: Staged, said: list[str]) -> None:
    task = task_of(output, said)
    task.step(0.0)
    output.records_by_batch[0] = 500
    output.queries[-1].progress(0, rows=1500, a=90, b=95)
    output.queries[-1].progress(1, rows=0)
    task.step(1.0)
    task.step(2.0)
    assert said == [
        "p.out: batch 0  3,000 in/s  1,000 out/s  500 ms  lag 15  watermark 2024-05-17T10:00:00.000Z  state 7 rows, 2.0 MB"
    ]
    assert [each["batch"] for each in task.status()["batches"]] == [0, 1]


def test_rows_out_of_what_is_no_transaction_are_those_that_were_counted_on_the_way(output: Staged, said: list[str]) -> None:
    output.pipeline.delivery = "at-least-once"
    task = task_of(output, said)
    task.step(0.0)
    output.queries[-1].progress(0, rows=25)
    task.step(1.0)
    assert task.status()["batches"][0]["rows_out"] == 25


def test_what_a_query_does_after_it_began_anew_is_told_too(output: Staged, said: list[str]) -> None:
    """As after a reset: batches are counted from 0 again."""
    task = task_of(output, said)
    task.step(0.0)
    output.queries[-1].progress(17, rows=1)
    task.step(1.0)
    task.stop()
    task.restart()
    task.step(2.0)
    output.queries[-1].progress(0, rows=1)
    task.step(3.0)
    assert [each["batch"] for each in task.status()["batches"]] == [17, 0]


# -- a runner, and who asks it


@pytest.fixture
def running(output: Staged, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.setattr(runner, "LOOK_SECONDS", 0.01)
    found = Runner([output.pipeline], checkpoints="checkpoints", say=said.append, failures_max=1)
    thread = threading.Thread(target=found.run)
    thread.start()
    until(lambda: bool(output.queries))
    yield found
    found.stop()
    thread.join()


def until(is_so: Callable[[], bool]) -> None:
    from tests.clients.waiting import until as wait

    wait(is_so, "what a runner does")


def test_a_pipeline_is_stopped_and_goes_on(running: Runner, output: Staged) -> None:
    (told,) = running.ask({"what": "stop", "name": "p"})["tasks"]
    assert told["state"] == "stopped"
    assert output.queries[0].is_stopped
    assert output.stops == 1
    running.ask({"what": "restart", "name": "p.out"})
    until(lambda: len(output.queries) == 2)
    running.ask({"what": "restart", "name": "p"})  # of one that runs: it begins anew
    until(lambda: len(output.queries) == 3)
    assert output.queries[1].is_stopped


def test_a_pipeline_that_was_given_up_can_be_restarted(output: Staged, said: list[str]) -> None:
    found = Runner([output.pipeline], checkpoints="checkpoints", say=said.append, failures_max=1)
    (task,) = found.tasks
    task.step(0.0)
    output.queries[0].fail("no")
    task.step(1.0)
    assert found.ask({"what": "list"})["tasks"][0]["state"] == "failed"
    found.ask({"what": "restart", "name": "p"})
    task.step(2.0)
    assert found.ask({"what": "list"})["tasks"][0]["state"] == "running"


def test_a_runner_ends_when_all_is_done_and_says_whether_anything_was_given_up(said: list[str]) -> None:
    for is_bad in (False, True):
        pipeline = Pipeline("p")
        pipeline.outputs += [one := Staged(pipeline, "one"), two := Staged(pipeline, "two")]
        found = Runner([pipeline], checkpoints="checkpoints", say=said.append, failures_max=1, to_end=True)
        for task in found.tasks:
            task.step(0.0)
        one.queries[0].isActive = False
        if is_bad:
            two.queries[0].fail("no")
        else:
            two.queries[0].isActive = False
        assert found.run() is not is_bad


def test_a_runner_that_goes_to_the_end_does_not_wait_for_what_was_stopped(output: Staged, said: list[str]) -> None:
    found = Runner([output.pipeline], checkpoints="checkpoints", say=said.append, to_end=True)
    found.tasks[0].step(0.0)
    found.ask({"what": "stop", "name": "p"})
    assert found.run()


def test_an_end_stops_what_runs(running: Runner, output: Staged) -> None:
    running.stop()
    until(lambda: output.queries[0].is_stopped)
    assert output.stops == 1


def test_a_driver_is_asked_through_a_socket_in_its_folder(running: Runner, tmp_path: Path) -> None:
    with control.serving(running, tmp_path):
        assert [task["query"] for task in ask(tmp_path, {"what": "list"})] == ["p.out"]
        with pytest.raises(KafkaError, match="there is no pipeline x here; there are p"):
            ask(tmp_path, {"what": "stop", "name": "x"})
        with pytest.raises(KafkaError, match="fly is not known here"):
            ask(tmp_path, {"what": "fly"})
        with pytest.raises(KafkaError, match="run by another driver; stop that one first, or choose another --state"):
            control.check(tmp_path)
    with pytest.raises(NoDriver, match=r"nobody runs pipelines in .*; start them with: odradek pipeline run FILE"):
        ask(tmp_path, {"what": "list"})


def test_what_a_driver_cannot_do_is_told_to_who_asked(running: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("Spark is gone")

    monkeypatch.setattr(running, "ask", broken)
    with control.serving(running, tmp_path), pytest.raises(KafkaError, match="Spark is gone"):
        ask(tmp_path, {"what": "list"})


def test_a_driver_that_died_is_nobody(running: Runner, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(asking.address(tmp_path))
    with control.serving(running, tmp_path):
        assert ask(tmp_path, {"what": "list"})


def test_a_folder_may_have_a_long_name(running: Runner, tmp_path: Path) -> None:
    state = tmp_path / ("long" * 30)
    with control.serving(running, state):
        assert ask(state, {"what": "list"})
