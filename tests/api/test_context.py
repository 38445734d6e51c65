"""A handler that goes as far as it can at once, and what becomes of it where it has to wait."""

import asyncio
import gc
import weakref
from contextlib import suppress
from types import CoroutineType

import pytest

from odradek.api.context import Handled, begun
from odradek.wire.message import Message
from odradek.wire.messages import ProduceResponse


class Handler:
    """Waits for a future, or for two."""

    def __init__(self, *awaited: "asyncio.Future[None]") -> None:
        self.awaited = awaited
        self.seen: list[str] = []

    async def handle(self) -> Message:
        self.seen.append("begun")
        try:
            for each in self.awaited:
                try:
                    await each
                except ConnectionError:
                    self.seen.append("lost")
        finally:
            self.seen.append("done")
        return ProduceResponse(throttle_time_ms=7)


def going_on(handled: Handled) -> "asyncio.Task[Message | None]":
    assert type(handled) is CoroutineType  # what a connection makes a task of
    return asyncio.get_running_loop().create_task(handled)


def test_who_need_not_wait_has_answered_at_once() -> None:
    async def main() -> None:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ready.set_result(None)
        assert begun(Handler(ready).handle()) == ProduceResponse(throttle_time_ms=7)

    asyncio.run(main())


def test_who_has_to_wait_goes_on_from_there() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()
        handler = Handler(first, second)
        task = going_on(begun(handler.handle()))
        assert handler.seen == ["begun"]
        first.set_exception(ConnectionError())
        loop.call_later(0, second.set_result, None)
        assert await task == ProduceResponse(throttle_time_ms=7)
        assert handler.seen == ["begun", "lost", "done"]

    asyncio.run(main())


def test_what_fails_at_once_fails_in_the_call() -> None:
    async def fail() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        begun(fail())


def test_who_is_cancelled_while_it_waits_ends() -> None:
    async def main() -> None:
        handler = Handler(asyncio.get_running_loop().create_future())
        task = going_on(begun(handler.handle()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert handler.seen == ["begun", "done"]

    asyncio.run(main())


def test_who_is_forgotten_while_it_waits_ends() -> None:
    async def main() -> None:
        handler = Handler(asyncio.get_running_loop().create_future())
        handled = begun(handler.handle())
        assert type(handled) is CoroutineType
        handled.send(None)
        handled.close()
        assert handler.seen == ["begun", "done"]

    asyncio.run(main())


class Lost(ConnectionError):
    """Can be looked after, as the built-in errors cannot."""


async def wait_for_the_last(awaited: "list[asyncio.Future[None]]") -> Message:
    with suppress(Lost):
        await awaited.pop()
    return ProduceResponse()


def test_an_error_that_was_waited_for_goes_without_a_collector() -> None:
    """With the frames that it went through, which may hold a batch as large as it can be."""

    async def main() -> None:
        awaited: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future()]
        task = going_on(begun(wait_for_the_last([*awaited])))
        await asyncio.sleep(0)
        error = Lost()
        gone = weakref.ref(error)
        awaited.pop().set_exception(error)
        del error
        await task
        del task
        assert gone() is None

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
