"""The tasks of a client program, in the order in which they were started.

Invariants
 1. A task that fails is told to the program: a client never ends in silence.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.sim.clients.program import Program


class Tasks:
    def __init__(self, program: Program) -> None:
        self.program = program
        self._running: dict[asyncio.Task[None], None] = {}  # not a set: they are cancelled in order

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.program.loop.create_task(work)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.program.failures.append(error)

    async def cancel(self) -> None:
        running = [task for task in self._running if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
