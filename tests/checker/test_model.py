"""Histories of a cluster that is right break no rule; with one thing wrong in them, they break the right one."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checker.check import check
from tests.checker.damage import DAMAGES, Damage
from tests.checker.history import History
from tests.checker.model import Cluster

STEPS = 250
TRIES_MAX = 200  # until a history has something that can be broken

seeds = st.integers(0, 1 << 32)


@settings(max_examples=300, deadline=None)
@given(seeds, st.integers(1, 600))
def test_a_history_that_is_right_breaks_no_rule(seed: int, steps: int) -> None:
    report = check(Cluster(Random(seed)).run(steps))
    assert report.is_well, str(report)


def damaged(seed: int, damage: Damage) -> History:
    chance = Random(seed)
    for _ in range(TRIES_MAX):
        history = Cluster(chance).run(STEPS)
        if damage(chance, history.events):
            return history
    raise AssertionError(f"{damage.__name__} finds nothing to break")


@pytest.mark.parametrize(("damage", "rules"), DAMAGES.items(), ids=[damage.__name__ for damage in DAMAGES])
@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_what_is_wrong_in_a_history_is_found(damage: Damage, rules: str, seed: int) -> None:
    report = check(damaged(seed, damage))
    assert set(report.by_rule) & set(rules.split()), str(report)


@given(seeds)
@settings(max_examples=10, deadline=None)
def test_a_history_is_the_same_when_it_was_written_and_read(seed: int) -> None:
    history = Cluster(Random(seed)).run(STEPS)
    data = history.to_bytes()
    assert History.decode(data).events == history.events
    assert History.decode(data).to_bytes() == data
