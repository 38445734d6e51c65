"""An event loop in a thread of its own, and what is asked of it from other threads.

Invariants
 1. Whatever is under way on it ends with `close`, or with the program: it keeps no program alive.
 2. Whoever is interrupted while it waits takes what it waited for with it.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from odradek.client.errors import Closed

Result = TypeVar("Result")


class Background:
    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Has the loop do something, and waits for it. Not for the loop's own thread."""
        assert threading.current_thread() is not self._thread, "the loop would wait for itself"
        if not self.is_open:
            work.close()
            raise Closed("it was closed")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        if self.is_open:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
