"""Virtual time: every simulated process has an event loop of its own, and one world turns them all.

A process is a node or a client program. Its loop is what asyncio asks of one, so that production code runs on it as it is; but
its time is the world's, and nothing in it waits for anything real. A process takes a little time for whatever it does, so that
time always passes; while it is busy, paused or dead, it does nothing else.

Invariants
 1. Whatever happens is due at a time, and happens in the order of these times; of two at the same time, in the order in which
    they were asked for. Nothing depends on the order of a set, on an address, or on a real clock: one seed is one run.
 2. A process that was killed never runs again, whatever it had asked for.
 3. What one process does is seen by another only through the network.
"""

import asyncio
import heapq
import inspect
import logging
import random
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, Final, Protocol, TypeVar

from tests.log.disk import PowerLost

Result = TypeVar("Result")

TURN_SECONDS: Final = 0.000_02  # that a process is busy with one callback
THREADS: Final = 4  # of the pool that nobody has named
THREAD_SECONDS_MAX: Final = 0.000_2  # until a thread has its turn

logger = logging.getLogger("sim.loop")


class Watched(Protocol):
    """What a loop watches: a simulated socket."""

    def is_readable(self) -> bool: ...

    def is_writable(self) -> bool: ...


class World:
    """All that happens, in order."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.steps = 0

    def at(self, time_s: float, callback: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (max(time_s, self.now_s), self._count, callback))

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.at(self.now_s + seconds, callback)

    def run(self, until_s: float, is_over: Callable[[], bool] | None = None) -> None:
        """Turns until this time, or until it is over."""
        due, pop = self._due, heapq.heappop
        while due and due[0][0] <= until_s and (is_over is None or not is_over()):
            self.now_s, _, callback = pop(due)
            self.steps += 1
            callback()
        if is_over is None or not is_over():
            self.now_s = max(self.now_s, until_s)

    def chance(self, name: str) -> random.Random:
        """A source of chance of its own, so that what one part draws does not change what another gets."""
        return random.Random(f"{self.seed}/{name}")


class SimHandle:
    """What a loop is to call."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "time_s")

    def __init__(self, time_s: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self.time_s = time_s
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.is_cancelled = False

    def when(self) -> float:
        return self.time_s

    def cancelled(self) -> bool:
        return self.is_cancelled

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback, self.args = None, ()

    def run(self) -> None:
        assert self.callback is not None
        if self.context is None:
            self.callback(*self.args)
        else:
            self.context.run(self.callback, *self.args)


Loop: Any = asyncio.AbstractEventLoop  # of which only this is needed; mypy would want all of it


class SimLoop(Loop):  # type: ignore[misc]
    """The loop of one life of a process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.chance = world.chance(f"loop {name}")
        self.is_dead = False
        self.is_paused = False
        self.busy_until_s = 0.0
        self.complaints: list[str] = []
        self._ready: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []
        self._count = 0
        self._turn_at_s: float | None = None
        self._is_turning = False
        self._readers: dict[int, SimHandle] = {}
        self._writers: dict[int, SimHandle] = {}
        self._watched: dict[int, Watched] = {}
        self._called: set[tuple[int, bool]] = set()  # readers and writers that are about to be called; looked up, never iterated
        self._pools: dict[int, list[float]] = {}  # by the pool: when each of its threads is free
        self._kept: list[object] = []  # tasks and pools: finalizers never run, and no id is used twice, while the loop is in use
        self.is_threaded = False  # what runs now is on a thread
        self.thread_seconds: Callable[[], float] = lambda: self.chance.random() * THREAD_SECONDS_MAX

    # -- the life of the process

    def kill(self) -> None:
        self.is_dead = True
        self._ready.clear()
        self._timers.clear()
        self._readers.clear()
        self._writers.clear()

    def forget(self) -> None:
        """The run is over: what was never begun need not be waited for, nor what it would have waited for."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            for kept in self._kept:
                if isinstance(kept, asyncio.Task) and inspect.getcoroutinestate(kept.get_coro()) == inspect.CORO_CREATED:  # type: ignore[arg-type]
                    kept.get_coro().close()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self._wake()

    def stall(self, seconds: float) -> None:
        """What runs now takes that much longer."""
        self.busy_until_s = max(self.busy_until_s, self.world.now_s) + seconds

    def run_soon(self, main: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Begins the process, or another part of it, from outside."""
        previous = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            return self.create_task(main)
        finally:
            asyncio._set_running_loop(previous)

    # -- turning

    def _wake(self) -> None:
        """Has a turn as soon as there is something to do, and the process can do it."""
        if self.is_dead or self.is_paused:
            return
        if self._ready:
            due_s = self.world.now_s
        elif self._timers:
            due_s = self._timers[0][0]
        else:
            return
        due_s = max(due_s, self.busy_until_s, self.world.now_s)
        if self._turn_at_s is None or due_s < self._turn_at_s:
            self._turn_at_s = due_s
            self.world.at(due_s, self._turn)

    def _turn(self) -> None:
        world = self.world
        if self.is_dead or self.is_paused or self._turn_at_s is None or world.now_s < self._turn_at_s:
            if self.is_paused:
                self._turn_at_s = None
            return  # there is another turn for what is due
        self._turn_at_s = None
        if self.busy_until_s > world.now_s:
            self._wake()
            return
        ready, timers, now_s = self._ready, self._timers, world.now_s
        while timers and timers[0][0] <= now_s:
            handle = heapq.heappop(timers)[2]
            if not handle.is_cancelled:
                ready.append(handle)
        self.busy_until_s = now_s
        self._is_turning = True
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                if not ready:
                    break  # killed meanwhile
                handle = ready.popleft()
                if handle.is_cancelled:
                    continue
                self.busy_until_s += TURN_SECONDS
                try:
                    handle.run()
                except Exception as error:  # noqa: BLE001 - as asyncio does
                    if not self.is_dead:  # killed by what it did itself, between two operations of its disk
                        self.call_exception_handler({"message": f"in {handle.callback}", "exception": error})
        finally:
            asyncio._set_running_loop(None)
            self._is_turning = False
        self._wake()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> SimHandle:
        handle = SimHandle(0.0, callback, args, context)
        if not self.is_dead:
            self._ready.append(handle)
            if not self._is_turning and (self._turn_at_s is None or self._turn_at_s > self.world.now_s):
                self._wake()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> SimHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> SimHandle:
        handle = SimHandle(when, callback, args, context)
        if not self.is_dead:
            self._count += 1
            heapq.heappush(self._timers, (when, self._count, handle))
            if not self._is_turning and (self._turn_at_s is None or when < self._turn_at_s):
                self._wake()
        return handle

    def time(self) -> float:
        """Goes on while the process is busy."""
        now_s, busy_s = self.world.now_s, self.busy_until_s
        return max(busy_s, now_s)

    # -- tasks

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Result], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[Result]":
        task = asyncio.Task(coro, loop=self, name=name or "", context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it may be of a process that was killed
        self._kept.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, PowerLost):
            return  # nobody is there to complain
        self.complaints.append(f"{context.get('message')}: {error!r}")
        logger.error("%s: %s", self.name, context.get("message"), exc_info=error)

    # -- threads

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Result], *args: Any) -> "asyncio.Future[Result]":
        """In order of the pool, as if a thread did it. What it does has its effect at the end of its time: a sync that the power
        overtakes has synced nothing."""
        done: asyncio.Future[Result] = self.create_future()
        self._kept.append(executor)
        free = self._pools.setdefault(id(executor), [0.0] * (getattr(executor, "_max_workers", None) or THREADS))
        thread = free.index(min(free))
        end_s = free[thread] = max(free[thread], self.time()) + self.thread_seconds()

        def run() -> None:
            if self.is_dead:
                return
            if self.is_paused:
                self.world.after(0.01, run)
                return
            error, result = None, None
            busy_s, self.busy_until_s, self.is_threaded = self.busy_until_s, self.world.now_s, True
            try:
                result = func(*args)
            except Exception as raised:  # noqa: BLE001 - told to whoever waits
                error = raised
            took_s = self.busy_until_s - self.world.now_s
            self.busy_until_s, self.is_threaded = busy_s, False
            free[thread] = max(free[thread], self.world.now_s + took_s)
            self.world.after(took_s, lambda: finish(result, error))

        def finish(result: Any, error: Exception | None) -> None:
            def tell() -> None:
                if done.done():
                    return
                if error is not None:
                    done.set_exception(error)
                else:
                    done.set_result(result)

            if not self.is_dead:
                self.call_soon(tell)

        self.world.at(end_s, run)
        return done

    # -- sockets

    def watch(self, number: int, watched: Watched) -> None:
        """A socket of this process."""
        self._watched[number] = watched

    def unwatch(self, number: int) -> None:
        self._watched.pop(number, None)
        self._readers.pop(number, None)
        self._writers.pop(number, None)

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        self._readers[self._number(fd)] = SimHandle(0.0, callback, args, None)
        self.look(self._number(fd))

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(self._number(fd), None) is not None

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        self._writers[self._number(fd)] = SimHandle(0.0, callback, args, None)
        self.look(self._number(fd))

    def remove_writer(self, fd: Any) -> bool:
        return self._writers.pop(self._number(fd), None) is not None

    @staticmethod
    def _number(fd: Any) -> int:
        return fd if isinstance(fd, int) else fd.fileno()

    def look(self, number: int) -> None:
        """Has those called who wait for the socket, if there is something for them."""
        watched = self._watched.get(number)
        if watched is None:
            return
        if number in self._readers and (number, False) not in self._called and watched.is_readable():
            self._called.add((number, False))
            self.call_soon(self._call, number, False)
        if number in self._writers and (number, True) not in self._called and watched.is_writable():
            self._called.add((number, True))
            self.call_soon(self._call, number, True)

    def _call(self, number: int, is_writer: bool) -> None:
        self._called.discard((number, is_writer))
        handle = (self._writers if is_writer else self._readers).get(number)
        watched = self._watched.get(number)
        if handle is None or watched is None:
            return
        if watched.is_writable() if is_writer else watched.is_readable():
            try:
                handle.run()
            finally:
                self.look(number)

    async def sock_sendall(self, sock: Any, data: Any) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[sock.send(view) :]
            except BlockingIOError:
                writable = self.create_future()
                self.add_writer(sock.fileno(), lambda done=writable: done.done() or done.set_result(None))
                try:
                    await writable
                finally:
                    self.remove_writer(sock.fileno())
