"""An answer that waits until what was appended is on all replicas in sync: Produce with acks=all, and markers of transactions.

It waits in the readers of the partitions, and in one timer.

Invariants
 1. `finished` is called once, unless `stop` came first.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from odradek.api.services import Partition, Timer, Timers
from odradek.wire.errors import ErrorCode


class Uncommitted(NamedTuple):
    """A batch that was appended, and what is answered for it."""

    answer: Any
    partition: Partition
    end_offset: int


class Acknowledgement:
    """Waits for batches to be committed, or until the time is over."""

    __slots__ = ("fail", "finished", "timer", "waits")

    def __init__(
        self, uncommitted: list[Uncommitted], fail: Callable[[Any, ErrorCode], None], finished: Callable[[], None]
    ) -> None:
        """`fail` writes an error into an answer; `finished` is called when all are known."""
        self.waits: dict[Partition, list[Uncommitted]] = {}
        for each in uncommitted:
            self.waits.setdefault(each.partition, []).append(each)
        self.fail = fail
        self.finished = finished
        self.timer: Timer | None = None

    def wait(self, timers: Timers, timeout_ms: int) -> None:
        self.timer = timers.after(max(timeout_ms, 0), self.time_out)
        for partition in list(self.waits):
            partition.readers[self] = None
            self.partition_changed(partition)

    def partition_changed(self, partition: Partition) -> None:
        waits = self.waits.get(partition)
        if waits is None:
            return
        left = []
        for each in waits:
            code = partition.outcome(each.end_offset)
            if code is None:
                left.append(each)
            elif code:
                self.fail(each.answer, code)
        self.waits[partition] = left
        if not left:
            del self.waits[partition]
            partition.readers.pop(self, None)
            if not self.waits:
                self.finish()

    def time_out(self) -> None:
        for waits in self.waits.values():
            for each in waits:
                self.fail(each.answer, ErrorCode.REQUEST_TIMED_OUT)
        self.finish()

    def finish(self) -> None:
        self.stop()
        self.finished()

    def stop(self) -> None:
        """Waits no longer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for partition in self.waits:
            partition.readers.pop(self, None)
        self.waits = {}
