"""One order of all that happened: histories that have one, and histories that have none."""

import pytest

from tests.checker.notation import broken

RIGHT = {
    "two that overlap may be in any order": """
        p sends a
        q sends b
        p told a > 1
        q told b > 0
        f final b@0 a@1
    """,
    "an unknown one may come late": """
        p send a > ? plain
        q send b > 0
        f final b@0 a@1
    """,
    "the second of a record that was tried twice may come late": """
        p send a > 0 plain attempts=2
        q send b > 1
        f final a@0 b@1 a@2
    """,
    "what a leader alone acknowledged comes late at another offset": """
        p send a > 0 acks=1 plain attempts=2
        q send b > 0
        f final b@0 a@1
    """,
    "transactions that mix their writes": """
        p begins tx=1
        q begins tx=2
        p send a > 0 tx=1
        q send b > 1 tx=2
        q send c > 0 tx=2 in=u-0
        p send d > 1 tx=1 in=u-0
        p commit tx=1 > ok
        q commit tx=2 > ok
        f final a@0 b@1
        f final c@0 d@1 in=u-0
    """,
    "a new offset after a loss": """
        p send a > 5
        a allows loss
        p send b > 3
        f final b@3
    """,
}

WRONG = {
    "a later send comes before an earlier one (G0)": (
        """
        p send a > 1
        q send b > 0
        f final b@0 a@1
    """,
        "write_cycle",
    ),
    "a send comes before what had been read when it began (G1c)": (
        """
        p send a > ? plain
        r polls a@1
        q send b > 0
        f final b@0 a@1
    """,
        "read_write_cycle",
    ),
    "two transactions that saw each other (G1c)": (
        """
        p begins tx=1
        q begins tx=2
        p send a > 0 tx=1
        q send b > 0 tx=2 in=u-0
        p ends tx=1
        q ends tx=2
        p polls b@0 committed tx=1 in=u-0
        q polls a@0 committed tx=2
        f final a@0
        f final b@0 in=u-0
    """,
        "read_write_cycle",
    ),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_there_is_one_order_of_all_that_happened(text: str) -> None:
    assert broken(text) == []


@pytest.mark.parametrize(("text", "rules"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_put_in_order_is_found(text: str, rules: str) -> None:
    assert broken(text) == rules.split()
