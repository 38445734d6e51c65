"""Histories of a cluster that is right break no rule; with one thing wrong in them, they break the right one."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checker.check import check
from tests.checker.model import Cluster

seeds = st.integers(0, 1 << 32)


@settings(max_examples=300, deadline=None)
@given(seeds, st.integers(1, 300))
def test_a_history_that_is_right_breaks_no_rule(seed: int, steps: int) -> None:
    report = check(Cluster(Random(seed)).run(steps))
    assert report.is_well, str(report)
