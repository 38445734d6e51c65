"""The rate at which compaction reads and writes, by a clock of our own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.throttle import PERIOD_SECONDS, Throttle


class Clock:
    """Time goes by when somebody sleeps, or when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_what_is_within_the_rate_is_never_held_up() -> None:
    clock = Clock()
    throttle = Throttle(1000, clock, clock.sleep)
    for _ in range(100):
        throttle(10)
        clock.now += 0.01
    assert clock.slept == []


def test_bytes_over_the_rate_take_their_time() -> None:
    clock = Clock()
    throttle = Throttle(1000, clock, clock.sleep)
    throttle(5000)
    assert clock.now == 105
    throttle(1000)
    assert clock.now == 106


def test_short_sleeps_are_saved_up() -> None:
    clock = Clock()
    throttle = Throttle(1000, clock, clock.sleep)
    for _ in range(300):
        throttle(10)
    assert clock.now - 100 == pytest.approx(3, abs=PERIOD_SECONDS)
    assert len(clock.slept) == 10


def test_a_pause_is_no_right_to_hurry() -> None:
    clock = Clock()
    throttle = Throttle(1000, clock, clock.sleep)
    clock.now += 3600
    throttle(2000)
    assert clock.slept == [2]


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 2))))
def test_over_any_time_the_rate_is_kept(calls: list[tuple[int, float]]) -> None:
    clock = Clock()
    throttle = Throttle(1000, clock, clock.sleep)
    total = 0
    for size, pause in calls:
        throttle(size)
        total += size
        assert total <= 1000 * (clock.now - 100 + PERIOD_SECONDS) + 1e-6
        clock.now += pause
