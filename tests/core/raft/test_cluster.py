"""Quorums of 1, 3 and 5 nodes through random histories: safe at every step, and alive when the network heals."""

import pytest

from tests.core.raft.histories import SHAPES, tell

RUNS_FACTOR = 1  # more find more: 10 take minutes
RUNS = {1: 20, 2: 20, 3: 20, 5: 10}  # by the number of nodes


@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_happens_nothing_committed_is_lost_and_the_quorum_comes_back(shape: str) -> None:
    nodes = len(SHAPES[shape].voters + SHAPES[shape].observers)
    for seed in range(RUNS[nodes] * RUNS_FACTOR):
        try:
            tell(SHAPES[shape], seed)
        except BaseException as error:
            error.add_note(f"in the history of {shape} with seed {seed}")
            raise
