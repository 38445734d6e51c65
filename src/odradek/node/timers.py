"""One wheel for everything that waits: long polls, rebalances, sessions.

A waiting request costs an entry in a dictionary, nothing else: the loop knows of the next tick only. Time is the loop's, which is
monotonic; what must count while the machine sleeps goes by `Machine.boot_ms`.

Invariants
 1. A callback runs once, not before its time and at most one tick after it, unless it is cancelled first.
 2. A cancelled timer leaves nothing behind.
"""

import asyncio
import heapq
from collections.abc import Callable

TICK_MS = 4


class Timer:
    __slots__ = ("_bucket", "callback")

    def __init__(self, bucket: dict["Timer", None], callback: Callable[[], None]) -> None:
        self._bucket = bucket
        self.callback = callback

    def cancel(self) -> None:
        """Also of one that has run."""
        self._bucket.pop(self, None)


class Timers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[Timer, None]] = {}
        self._ticks: list[int] = []
        self._wake: asyncio.TimerHandle | None = None

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def after(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        tick = int((self._loop.time() * 1000 + max(delay_ms, 0)) // TICK_MS) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._arm()
        timer = Timer(bucket, callback)
        bucket[timer] = None
        return timer

    def every(self, interval_ms: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Runs a callback again and again; gives what ends it."""
        timer: Timer

        def run() -> None:
            nonlocal timer
            timer = self.after(interval_ms, run)
            callback()

        timer = self.after(interval_ms, run)
        return lambda: timer.cancel()  # noqa: PLW0108 - the timer is another one after each run

    def close(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._buckets.clear()
        self._ticks.clear()

    def _arm(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake = self._loop.call_at(self._ticks[0] * TICK_MS / 1000, self._turn) if self._ticks else None

    def _turn(self) -> None:
        now_tick = self._loop.time() * 1000 / TICK_MS
        self._wake = None
        try:
            while self._ticks and self._ticks[0] <= now_tick:
                bucket = self._buckets[self._ticks[0]]
                while bucket:  # a callback may cancel others, or raise: what is left stays for the next turn
                    timer = next(iter(bucket))
                    del bucket[timer]
                    timer.callback()
                del self._buckets[heapq.heappop(self._ticks)]
        finally:
            self._arm()
