"""Runs pipelines: one driver, a query for each output, started again when it fails.

Invariants
 1. A query that fails is started again, after a pause that doubles each time; when it has failed `failures_max` times and got
    nothing done in between, it is given up, and said to be so; at once when it cannot be started as it is written, or
    another driver has taken over.
 2. Whatever a query is doing can be seen from outside: `status` has it, at any time.
 3. Stopping waits for the batch at work: what it has written is committed, or never was.
 4. Spark itself is not started again: a driver without it ends, and says so.
"""

import importlib.util
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import cloudpickle
from pyspark.errors import AnalysisException

from odradek.client.errors import Fenced, InvalidOption
from odradek.pipelines import session
from odradek.pipelines.output import OBSERVED, Output
from odradek.pipelines.pipeline import Pipeline, declared

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS: Final = 0.25
END_SECONDS: Final = 10.0  # of a Spark that does not answer any more
PAUSE_SECONDS: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0
FAILURES_MAX: Final = 10
BATCHES_KEPT: Final = 10
FENCED: Final = f"{Fenced.__module__}.{Fenced.__name__}"
Say = Callable[[str], None]


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # to be started again
    STOPPED = "stopped"
    FAILED = "failed"  # given up
    DONE = "done"  # of what was asked for to the end of what there is


def load(paths: Iterable[str | Path]) -> list[Pipeline]:
    """The pipelines that files declare, in their order."""
    before = len(declared)
    for path in map(Path, paths):
        if not path.is_file():
            raise InvalidOption(f"there is no file {path}")
        spec = importlib.util.spec_from_file_location(f"pipelines_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # its functions travel to workers
        see_beside(path)
        spec.loader.exec_module(module)
    found = declared[before:]
    check(found)
    return found


def see_beside(path: Path) -> None:
    """A file may import those in its folder, here and in workers that start later on this machine."""
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    paths = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def check(found: list[Pipeline]) -> None:
    """InvalidOption when they cannot be run together."""
    if not found:
        raise InvalidOption('no pipeline is declared there: `Pipeline("name")` does')
    if empty := [each.name for each in found if not each.outputs]:
        raise InvalidOption(f"pipeline {empty[0]} writes nothing: @to_topic, @table or @to_files say what it does")
    titles = [output.title for pipeline in found for output in pipeline.queries()]
    if twice := [title for title in titles if titles.count(title) > 1]:
        raise InvalidOption(f"there are two queries {twice[0]}: pipelines and their outputs have names of their own")


class Task:
    """One output that is kept running."""

    def __init__(self, output: Output, checkpoint: str, say: Say, *, failures_max: int, trigger: dict[str, Any] | None) -> None:
        self.output, self.checkpoint, self.say, self.failures_max, self.trigger = output, checkpoint, say, failures_max, trigger
        self.state = State.STARTING
        self.query: StreamingQuery | None = None
        self.failures = self.restarts = 0
        self.error = ""
        self.not_before_s = 0.0
        self.batches: list[dict[str, Any]] = []
        self._batch = -1

    def step(self, now_s: float) -> None:
        """What there is to do now."""
        match self.state:
            case State.STARTING:
                self._start(now_s)
            case State.WAITING if now_s >= self.not_before_s:
                self.restarts += 1
                self._start(now_s)
            case State.RUNNING:
                self._look(now_s)

    def _start(self, now_s: float) -> None:
        self._batch = -1
        try:
            self.query = self.output.start(self.checkpoint, trigger=self.trigger)
            self.state = State.RUNNING
        except (InvalidOption, AnalysisException) as error:  # it is the same the next time
            self._give_up(error)
        except Exception as error:  # noqa: BLE001 - of the user's function, Spark or the cluster
            self._failed(error, now_s)

    def _look(self, now_s: float) -> None:
        query = self.query
        assert query is not None
        self._note_progress(query)
        if query.isActive:
            return
        error = query.exception()
        self.output.stop()
        if error is not None:
            self._failed(error, now_s)
        else:
            self.state = State.DONE

    def _note_progress(self, query: "StreamingQuery") -> None:
        for progress in query.recentProgress:
            if progress.batchId > self._batch and progress.durationMs.get("addBatch") is not None:
                self._batch = progress.batchId
                self.failures = 0
                batch = described(progress, self._records_out(progress))
                self.batches = [*self.batches, batch][-BATCHES_KEPT:]
                if batch["rows_in"] or batch["rows_out"]:
                    self.say(line(self.output.title, batch))

    def _records_out(self, progress: Any) -> int:
        if self.output.is_exact:
            return self.output.records_by_batch.get(progress.batchId, 0)
        found = progress.observedMetrics.get(OBSERVED)
        return int(found.rows) if found is not None else 0

    def _failed(self, error: BaseException, now_s: float) -> None:
        self.failures += 1
        self.error = reason(error)
        self.query = None
        if self.failures >= self.failures_max or FENCED in str(error):  # who came later is not to be fenced in turn
            self._give_up(error)
            return
        pause_s = min(PAUSE_SECONDS * 2 ** (self.failures - 1), PAUSE_SECONDS_MAX)
        self.state, self.not_before_s = State.WAITING, now_s + pause_s
        self.say(f"{self.output.title}: failed ({self.failures} of {self.failures_max}), again in {pause_s:.0f} s: {self.error}")

    def _give_up(self, error: BaseException) -> None:
        self.state, self.error = State.FAILED, reason(error)
        often = f" after {self.failures} failures" if self.failures > 1 else ""
        self.say(f"{self.output.title}: GIVEN UP{often}. {self.error}")

    def stop(self) -> None:
        query, self.query = self.query, None
        self.state = State.STOPPED
        self.output.stop()
        if query is not None and session.ended() is None:
            query.stop()

    def restart(self) -> None:
        if self.query is not None:
            self.stop()
        self.state, self.failures = State.STARTING, 0

    def status(self) -> dict[str, Any]:
        output = self.output
        return {
            "pipeline": output.pipeline.name,
            "output": output.name,
            "query": output.title,
            "state": self.state.value,
            "restarts": self.restarts,
            "error": self.error,
            "sources": list(dict.fromkeys(topic.title for topic in (*output.pipeline.topics, *output.pipeline.tables))),
            "sink": {"kind": output.target.kind, "where": output.target.where, "mode": output.target.mode},
            "delivery": output.pipeline.delivery if output.target.is_topic else "exactly-once",
            "dead_letters": output.pipeline.dead_letters,
            "group": output.group,
            "checkpoint": self.checkpoint,
            "batches": self.batches,
        }

    def plan(self) -> str:
        """Of the query, as Spark will run it."""
        query = self.query
        return "" if query is None else str(query._jsq.explainInternal(False))


class Runner:
    def __init__(
        self,
        pipelines: list[Pipeline],
        *,
        checkpoints: str,
        say: Say = print,
        failures_max: int = FAILURES_MAX,
        to_end: bool = False,
    ) -> None:
        """`to_end`: does what there is, and stops then."""
        trigger = {"availableNow": True} if to_end else None
        self.ends = {State.DONE, State.FAILED, *([State.STOPPED] if to_end else [])}
        self.tasks = [
            Task(output, f"{checkpoints}/{pipeline.name}/{output.name}", say, failures_max=failures_max, trigger=trigger)
            for pipeline in pipelines
            for output in pipeline.queries()
        ]
        self.lock = threading.Lock()
        self.is_stopping = threading.Event()

    def run(self) -> bool:
        """Until all is done, given up or stopped; whether nothing was given up. SparkEnded when there is no Spark any more."""
        try:
            while not self.is_stopping.wait(LOOK_SECONDS):
                session.check()
                with self.lock:
                    for task in self.tasks:
                        task.step(time.monotonic())
                if all(task.state in self.ends for task in self.tasks):
                    break
        except (Py4JError, OSError):
            session.check(END_SECONDS)
            raise
        finally:
            with self.lock:
                for task in self.tasks:
                    if task.query is not None:
                        task.stop()
        return all(task.state is not State.FAILED for task in self.tasks)

    def stop(self) -> None:
        self.is_stopping.set()

    # -- from outside

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a command wants: `what` is list, describe, stop or restart; `name` a pipeline, or one of its queries."""
        with self.lock:
            name = request.get("name")
            tasks = [task for task in self.tasks if name in (None, task.output.pipeline.name, task.output.title)]
            if not tasks:
                return {"error": f"there is no pipeline {name} here; there are {', '.join(sorted(self._names()))}"}
            match request["what"]:
                case "list":
                    pass
                case "describe":
                    return {"tasks": [{**task.status(), "plan": task.plan()} for task in tasks]}
                case "stop":
                    for task in tasks:
                        task.stop()
                case "restart":
                    for task in tasks:
                        task.restart()
                case what:
                    return {"error": f"{what} is not known here"}
            return {"tasks": [task.status() for task in tasks]}

    def _names(self) -> set[str]:
        return {task.output.pipeline.name for task in self.tasks}


# -- what is told of a batch


def described(progress: Any, records_out: int) -> dict[str, Any]:
    duration_s = max(progress.batchDuration, 1) / 1000
    operators = progress.stateOperators
    return {
        "batch": progress.batchId,
        "rows_in": progress.numInputRows,
        "rows_out": records_out,
        "in_per_second": progress.numInputRows / duration_s,
        "out_per_second": records_out / duration_s,
        "duration_ms": progress.batchDuration,
        "lag": sum(lag(source) for source in progress.sources),
        "watermark": progress.eventTime.get("watermark"),
        "state_rows": sum(each.numRowsTotal for each in operators),
        "state_bytes": sum(each.memoryUsedBytes for each in operators),
    }


def lag(source: Any) -> int:
    """Offsets that were there and are not read yet."""
    try:
        end, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
        return sum(max(offset - end[topic][part], 0) for topic, parts in latest.items() for part, offset in parts.items())
    except (TypeError, ValueError, KeyError, AttributeError):
        return 0


def line(title: str, batch: dict[str, Any]) -> str:
    parts = [
        f"{title}: batch {batch['batch']}",
        f"{batch['in_per_second']:,.0f} in/s",
        f"{batch['out_per_second']:,.0f} out/s",
        f"{batch['duration_ms']:,.0f} ms",
        f"lag {batch['lag']:,}",
    ]
    if batch["watermark"] and not batch["watermark"].startswith("1970"):
        parts.append(f"watermark {batch['watermark']}")
    if batch["state_rows"]:
        parts.append(f"state {batch['state_rows']:,} rows, {batch['state_bytes'] / 1e6:,.1f} MB")
    return "  ".join(parts)


def reason(error: BaseException) -> str:
    """The line that says it, of all that Spark has to say."""
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    telling = [
        text for text in lines if text.startswith(("odradek.", "pyspark.errors")) or "DataLost" in text or "BadRecord" in text
    ]
    found = (telling or lines or traceback.format_exception_only(error))[-1 if telling else 0]
    return found[:500]
