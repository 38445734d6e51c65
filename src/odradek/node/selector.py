"""Waits for sockets, and looks on for a moment before it sleeps.

To fall asleep for a few dozen microseconds, and to be woken, costs more than to look on as long: a client that asks for more as
soon as it has its answer gets that sooner, and at no higher cost.

Invariants
 1. It looks on only where that pays: after a wait that was short, and until it has looked on in vain. A node that is asked little
    sleeps.
 2. It does not look on where somebody else wants the processor.
"""

import os
import select
import time
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE, EpollSelector, SelectorKey
from typing import Final

LOOK_ON_SECONDS: Final = 100e-6
SHORT_WAIT_SECONDS: Final = 150e-6  # waking up included
YIELD_SECONDS_MAX: Final = 10e-6  # longer: somebody else had the processor, and may want it again
FOREVER: Final = -1

Events = list[tuple[int, int]]  # descriptors, and what each is ready for


class Selector(EpollSelector):
    def __init__(self, seconds: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self.seconds = seconds
        self.poll: Callable[[float, int], Events] = self._selector.poll  # type: ignore[attr-defined]
        self.looks_on = False

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        keys = self._fd_to_key  # type: ignore[attr-defined]
        ready = []
        for descriptor, event in self._wait(FOREVER if timeout is None else max(timeout, 0), len(keys) or 1):
            key = keys.get(descriptor)
            if key is not None:
                events = (EVENT_WRITE if event & ~select.EPOLLIN else 0) | (EVENT_READ if event & ~select.EPOLLOUT else 0)
                ready.append((key, events & key.events))
        return ready

    def _wait(self, timeout: float, events_max: int) -> Events:
        if timeout == 0:
            return self.poll(0, events_max)
        found = self._look_on(events_max) if self.looks_on else []
        if not found:
            began_s = self.seconds()
            found = self.poll(timeout, events_max)
            self.looks_on = self.seconds() - began_s < SHORT_WAIT_SECONDS
        return found

    def _look_on(self, events_max: int) -> Events:
        poll, seconds = self.poll, self.seconds
        now_s = seconds()
        end_s = now_s + LOOK_ON_SECONDS
        while now_s < end_s:
            found = poll(0, events_max)
            if found:
                return found
            os.sched_yield()
            before_s, now_s = now_s, seconds()
            if now_s - before_s > YIELD_SECONDS_MAX:
                break
        return []
