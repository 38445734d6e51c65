"""How fast compaction may read and write: `log.cleaner.io.max.bytes.per.second`, for all its workers of a process together."""

from collections.abc import Callable

PERIOD_SECONDS = 0.3  # shorter sleeps are saved up


class Throttle:
    """Called with bytes before they are read or written; sleeps when there were too many of late.

    `clock` is monotonic, in seconds. What was not used is not saved: after a pause the rate is the same as before.
    """

    def __init__(self, bytes_per_second: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        assert bytes_per_second > 0
        self.bytes_per_second = bytes_per_second
        self.clock = clock
        self.sleep = sleep
        self._free_at = clock()  # when all bytes so far have had their time

    def __call__(self, size: int) -> None:
        now = self.clock()
        self._free_at = max(self._free_at, now) + size / self.bytes_per_second
        if self._free_at - now >= PERIOD_SECONDS:
            self.sleep(self._free_at - now)
