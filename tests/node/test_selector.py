"""When a node looks on, and when it sleeps: by a clock that the test sets."""

import socket
from collections.abc import Iterator
from selectors import EVENT_READ

import pytest

from odradek.node.selector import LOOK_ON_SECONDS, SHORT_WAIT_SECONDS, YIELD_SECONDS_MAX, Selector

STEP_SECONDS = YIELD_SECONDS_MAX / 2
LOOKS = round(LOOK_ON_SECONDS / STEP_SECONDS)
SLEEP_SECONDS = 0.001


class Watched(Selector):
    """Writes down how long each look may wait. Its clock goes on by `step_s` whenever it is read."""

    def __init__(self) -> None:
        super().__init__(self._read_clock)
        self.step_s = STEP_SECONDS
        self.now_s = 0.0
        self.waits: list[float] = []
        known = self.poll

        def poll(timeout: float, events_max: int) -> list[tuple[int, int]]:
            self.waits.append(timeout)
            return known(timeout, events_max)

        self.poll = poll

    def _read_clock(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def selector(pair: tuple[socket.socket, socket.socket]) -> Iterator[Watched]:
    with Watched() as watched:
        watched.register(pair[0], EVENT_READ, "data")
        yield watched


def has_waited_briefly(selector: Watched, pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].send(b"x")
    assert [(key.data, events) for key, events in selector.select(SLEEP_SECONDS)] == [("data", EVENT_READ)]
    pair[0].recv(1)
    assert selector.looks_on
    selector.waits.clear()


def test_it_sleeps_at_once_as_long_as_nothing_came_soon(selector: Watched) -> None:
    assert selector.select(SLEEP_SECONDS) == []
    assert selector.waits == [SLEEP_SECONDS]


def test_after_a_short_wait_it_looks_on_before_it_sleeps(selector: Watched, pair: tuple[socket.socket, socket.socket]) -> None:
    has_waited_briefly(selector, pair)
    assert selector.select(SLEEP_SECONDS) == []
    assert selector.waits[-1] == SLEEP_SECONDS
    assert set(selector.waits[:-1]) == {0}
    assert len(selector.waits) - 1 in (LOOKS, LOOKS + 1)  # the clock is a sum of steps


def test_what_comes_while_it_looks_on_is_found_without_a_sleep(
    selector: Watched, pair: tuple[socket.socket, socket.socket]
) -> None:
    has_waited_briefly(selector, pair)
    pair[1].send(b"x")
    assert [(key.data, events) for key, events in selector.select(SLEEP_SECONDS)] == [("data", EVENT_READ)]
    assert selector.waits == [0]
    assert selector.looks_on


def test_a_long_wait_ends_the_looking_on(selector: Watched, pair: tuple[socket.socket, socket.socket]) -> None:
    has_waited_briefly(selector, pair)
    selector.looks_on = False
    selector.step_s = SHORT_WAIT_SECONDS * 2
    pair[1].send(b"x")
    assert selector.select(SLEEP_SECONDS)
    assert not selector.looks_on


def test_it_does_not_look_on_where_others_want_the_processor(
    selector: Watched, pair: tuple[socket.socket, socket.socket]
) -> None:
    has_waited_briefly(selector, pair)
    selector.step_s = YIELD_SECONDS_MAX * 2  # so long the processor was away
    assert selector.select(SLEEP_SECONDS) == []
    assert selector.waits == [0, SLEEP_SECONDS]


def test_who_must_not_wait_does_not_look_on(selector: Watched, pair: tuple[socket.socket, socket.socket]) -> None:
    has_waited_briefly(selector, pair)
    assert selector.select(0) == []
    assert selector.waits == [0]
    assert selector.looks_on
