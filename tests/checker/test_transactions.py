"""A transaction is seen as a whole or never: histories that hold this, and histories that do not."""

import pytest

from tests.checker.notation import broken

RIGHT = {
    "committed, and read": """
        p begins tx=1
        p send a > 0 tx=1
        p send b > 0 tx=1 in=u-0
        p commit tx=1 > ok
        r polls a@0 committed
        f final a@0 committed
        f final b@0 committed in=u-0
    """,
    "aborted, and not to be seen": """
        p begins tx=1
        p send a > 0 tx=1
        p abort tx=1 > ok
        q send b > 2
        r polls b@2 committed
        f final a@0 b@2
        f final b@2 committed
    """,
    "open, and read by somebody who reads all": """
        p begins tx=1
        p send a > 0 tx=1
        r polls a@0
        p commit tx=1 > ok
        f final a@0
    """,
    "nobody knows, and it was committed": """
        p begins tx=1
        p send a > 0 tx=1
        p commit tx=1 > ?
        r polls a@0 committed
        f final a@0 committed
    """,
    "nobody knows, and it was aborted": """
        p begins tx=1
        p send a > 0 tx=1
        p commit tx=1 > ?
        f final committed
    """,
    "read while the commit is under way": """
        p begins tx=1
        p send a > 0 tx=1
        p ends tx=1
        r polls a@0 committed
        f final a@0 committed
    """,
    "read past a transaction of which retention has left nothing": """
        a allows delete
        p begins tx=1
        p send a > 0 tx=1
        q send b > 1
        r assigned 1
        r polls b@1 committed
        p commit tx=1 > ok
        f final b@1 committed start=1
    """,
    "read past a transaction whose records were deleted, before the topic was": """
        p begins tx=1
        p send a > 0 tx=1
        q send b > 1
        a deletes 1 > ok
        r assigned 1
        r polls b@1 committed
        p commit tx=1 > ok
        a delete t > ok
    """,
    "a transaction that reads what another wrote": """
        p begins tx=1
        p send a > 0 tx=1
        p commit tx=1 > ok
        q begins tx=2
        q polls a@0 committed tx=2
        q send b > 0 tx=2 in=u-0
        q commit tx=2 > ok
        f final a@0 committed
        f final b@0 committed in=u-0
    """,
}

WRONG = {
    "an aborted record is read": (
        """
        p begins tx=1
        p send a > 0 tx=1
        p abort tx=1 > ok
        r polls a@0 committed
        f final a@0
    """,
        "aborted_read",
    ),
    "a record is read of a transaction that nobody ended": (
        """
        p begins tx=1
        p send a > 0 tx=1
        f final a@0
        f final a@0 committed
    """,
        "aborted_read",
    ),
    "part of a transaction is missing": (
        """
        p begins tx=1
        p send a > 0 tx=1
        p send b > 0 tx=1 in=u-0
        p commit tx=1 > ok
        f final a@0
        f final a@0 committed
        f final b@0 in=u-0
        f final committed in=u-0
    """,
        "torn_transaction",
    ),
    "part of a transaction is missing that nobody knew to be committed": (
        """
        p begins tx=1
        p send a > 0 tx=1
        p send b > 0 tx=1 in=u-0
        p commit tx=1 > ?
        f final a@0
        f final a@0 committed
        f final b@0 in=u-0
        f final committed in=u-0
    """,
        "torn_transaction",
    ),
    "read before its end was asked for": (
        """
        p begins tx=1
        p send a > 0 tx=1
        r polls a@0 committed
        p commit tx=1 > ok
        f final a@0 committed
    """,
        "read_above_last_stable_offset read_write_cycle",
    ),
    "read past a transaction that is open": (
        """
        p begins tx=1
        p send a > 0 tx=1
        q send b > 1
        r assigned 0
        r polls b@1 committed
        p commit tx=1 > ok
        f final a@0 b@1 committed
    """,
        "read_above_last_stable_offset unseen_record",
    ),
    "read past a transaction that is open, of a topic that was deleted with all its records": (
        """
        p begins tx=1
        p send a > 0 tx=1
        q send b > 1
        r assigned 1
        r polls b@1 committed
        p commit tx=1 > ok
        a delete t > ok
    """,
        "read_above_last_stable_offset",
    ),
    "a transaction reads what it wrote": (
        """
        p begins tx=1
        p send a > 0 tx=1
        p polls a@0 committed tx=1
        p commit tx=1 > ok
        f final a@0 committed
    """,
        "precommitted_read read_write_cycle",
    ),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_a_transaction_is_seen_as_a_whole_or_never(text: str) -> None:
    assert broken(text) == []


@pytest.mark.parametrize(("text", "rules"), WRONG.values(), ids=WRONG)
def test_a_transaction_that_is_seen_too_early_or_in_part_is_found(text: str, rules: str) -> None:
    assert broken(text) == rules.split()
