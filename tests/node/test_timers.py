"""The timer wheel, on a clock that the test moves."""

import asyncio
from collections.abc import Callable
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from odradek.node.timers import TICK_MS, Timers


class Clock:
    """As much of a loop as timers use."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.calls: list[tuple[float, Clock.Handle]] = []

    class Handle:
        def __init__(self, callback: Callable[[], None]) -> None:
            self.callback: Callable[[], None] | None = callback

        def cancel(self) -> None:
            self.callback = None

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[[], None]) -> "Clock.Handle":
        handle = Clock.Handle(callback)
        self.calls.append((when, handle))
        return handle

    def pass_ms(self, delay_ms: float) -> None:
        end = self.now_s + delay_ms / 1000
        while due := [call for call in self.calls if call[0] <= end and call[1].callback]:
            when, handle = min(due, key=lambda call: call[0])
            self.calls.remove((when, handle))
            self.now_s = max(self.now_s, when)
            callback, handle.callback = handle.callback, None
            assert callback is not None
            callback()
        self.calls = [call for call in self.calls if call[1].callback]
        self.now_s = end


def timers() -> tuple[Clock, Timers]:
    clock = Clock()
    return clock, Timers(cast("asyncio.AbstractEventLoop", clock))


@given(st.lists(st.tuples(st.integers(0, 1000), st.booleans()), max_size=40))
def test_each_runs_once_in_its_time_unless_it_is_cancelled(wanted: list[tuple[int, bool]]) -> None:
    clock, wheel = timers()
    begin = clock.now_s
    ran: dict[int, list[float]] = {number: [] for number in range(len(wanted))}
    made = [
        wheel.after(delay_ms, lambda number=number: ran[number].append(clock.now_s))  # type: ignore[misc]
        for number, (delay_ms, _) in enumerate(wanted)
    ]
    for timer, (_, is_cancelled) in zip(made, wanted, strict=True):
        if is_cancelled:
            timer.cancel()
    clock.pass_ms(2000)
    for number, (delay_ms, is_cancelled) in enumerate(wanted):
        if is_cancelled:
            assert ran[number] == []
        else:
            (when,) = ran[number]
            late_ms = (when - begin) * 1000 - delay_ms
            assert -0.001 <= late_ms <= 2 * TICK_MS + 0.001


def test_a_cancelled_timer_leaves_nothing_behind() -> None:
    clock, wheel = timers()
    for _ in range(1000):
        wheel.after(60_000, lambda: None).cancel()
    assert sum(map(len, wheel._buckets.values())) == 0
    clock.pass_ms(61_000)
    assert not wheel._buckets
    assert not clock.calls


def test_a_callback_that_fails_does_not_take_the_others_with_it() -> None:
    clock, wheel = timers()
    ran = []
    wheel.after(10, lambda: 1 / 0)  # type: ignore[arg-type]
    wheel.after(10, lambda: ran.append(1))
    for _ in range(2):
        try:
            clock.pass_ms(20)
        except ZeroDivisionError:
            continue
    assert ran == [1]


def test_again_and_again_until_it_is_ended() -> None:
    clock, wheel = timers()
    ran = []
    end = wheel.every(100, lambda: ran.append(clock.now_s))
    clock.pass_ms(1050)
    assert 9 <= len(ran) <= 10
    end()
    clock.pass_ms(1000)
    assert len(ran) <= 10
