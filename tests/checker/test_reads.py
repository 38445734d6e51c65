"""A reader sees everything, in order: histories that hold this, and histories that do not."""

import pytest

from tests.checker.notation import broken

RIGHT = {
    "poll after poll": """
        p send a > 0
        p send b > 1
        p send c > 2
        r assigned 0
        r polls a@0 b@1
        r polls c@2
        f final a@0 b@1 c@2
    """,
    "a gap in which nothing is known": """
        p send a > 0
        p send b > 2
        r assigned 0
        r polls a@0 b@2
        f final a@0 b@2
    """,
    "again from the start after a new assignment": """
        p send a > 0
        r assigned 0
        r polls a@0
        r revoked
        r assigned 0
        r polls a@0
        f final a@0
    """,
    "again from the start after the reader ended": """
        p send a > 0
        r assigned 0
        r polls a@0
        r ended
        r polls a@0
        f final a@0
    """,
    "back by a seek": """
        p send a > 0
        p send b > 1
        r assigned 0
        r polls a@0 b@1
        r moved 0
        r polls a@0
        f final a@0 b@1
    """,
    "back because what was read may be lost": """
        p send a > 0
        r assigned 0
        r polls a@0
        a allows loss
        r denied 0
        f final
    """,
    "forward because the log was cut off in front": """
        a allows delete
        p send a > 0
        p send b > 1
        r assigned 0
        r denied 1
        r polls b@1
        f final b@1 start=1
    """,
    "kept over a rebalance": """
        p send a > 0
        p send b > 1
        r assigned 0
        r polls a@0
        r assigned 1 kept
        r polls b@1
        f final a@0 b@1
    """,
    "an unknown start": """
        p send a > 0
        p send b > 1
        r assigned ?
        r polls b@1
        f final a@0 b@1
    """,
    "past what was compacted": """
        a allows compact
        p send k:a > 0
        p send k:b > 1
        r assigned 0
        r polls k:b@1
        f final k:b@1
    """,
    "past what was aborted": """
        p begins tx=1
        p send a > 0 tx=1
        p abort tx=1 > ok
        q send b > 2
        r assigned 0
        r polls b@2 committed
        f final a@0 b@2
    """,
    "what another partition holds": """
        p send a > 0
        p send b > 0 in=t-1
        r assigned 0 in=t-1
        r polls b@0 in=t-1
        f final a@0
        f final b@0 in=t-1
    """,
    "an offset that was given anew after a loss": """
        p send a > 0
        p send b > 2
        r assigned 0
        r polls a@0 b@2
        a allows loss
        p send c > 1
        f final a@0 c@1
    """,
}

WRONG = {
    "back within a poll": (
        """
        p send a > 0
        p send b > 1
        r polls b@1 a@0
        f final a@0 b@1
    """,
        "nonmonotonic_poll",
    ),
    "the same again in the next poll": (
        """
        p send a > 0
        r polls a@0
        r polls a@0
        f final a@0
    """,
        "nonmonotonic_poll",
    ),
    "the same twice in a poll": (
        """
        p send a > 0
        r polls a@0 a@0
        f final a@0
    """,
        "nonmonotonic_poll",
    ),
    "back to before the start of the assignment": (
        """
        p send a > 0
        p send b > 1
        r assigned 1
        r polls a@0
        f final a@0 b@1
    """,
        "nonmonotonic_poll",
    ),
    "back when a partition is kept": (
        """
        p send a > 0
        r assigned 0
        r polls a@0
        r assigned 0 kept
        f final a@0
    """,
        "nonmonotonic_poll",
    ),
    "forward when a partition is kept": (
        """
        p send a > 0
        r assigned 0
        r polls a@0
        r assigned 5 kept
        f final a@0
    """,
        "skipped_poll",
    ),
    "past an acknowledged record within a poll": (
        """
        p send a > 0
        p send b > 1
        p send c > 2
        r polls a@0 c@2
        f final a@0 b@1 c@2
    """,
        "unseen_record",
    ),
    "past an acknowledged record between two polls": (
        """
        p send a > 0
        p send b > 1
        p send c > 2
        r polls a@0
        r polls c@2
        f final a@0 b@1 c@2
    """,
        "unseen_record",
    ),
    "past an acknowledged record at the start": (
        """
        p send a > 0
        p send b > 1
        r assigned 0
        r polls b@1
        f final a@0 b@1
    """,
        "unseen_record",
    ),
    "a position past an acknowledged record": (
        """
        p send a > 0
        r assigned 0
        r polls pos=1
        f final a@0
    """,
        "unseen_record",
    ),
    "past a record that others saw": (
        """
        p send a > 0
        p send b > ?
        p send c > 2
        r polls a@0 c@2
        f final a@0 b@1 c@2
    """,
        "skipped_poll",
    ),
    "past a record of a committed transaction": (
        """
        p begins tx=1
        p send a > 0 tx=1
        p commit tx=1 > ok
        q send b > 2
        r assigned 0
        r polls b@2 committed
        f final a@0 b@2
    """,
        "unseen_record",
    ),
    "past an aborted record, though that is to be read": (
        """
        p begins tx=1
        p send a > 0 tx=1
        p abort tx=1 > ok
        q send b > 2
        r assigned 0
        r polls b@2
        f final a@0 b@2
    """,
        "unseen_record",
    ),
    "back by somebody who does not have what was read": (
        """
        p send a > 0
        r assigned 0
        r polls a@0
        r denied 0
        r polls a@0
        f final a@0
    """,
        "denied_position",
    ),
    "past the last of a key of a compacted log": (
        """
        a allows compact
        p send k:a > 0
        p send l:b > 1
        r assigned 0
        r polls l:b@1
        f final k:a@0 l:b@1
    """,
        "unseen_record",
    ),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_a_reader_sees_everything_in_order(text: str) -> None:
    assert broken(text) == []


@pytest.mark.parametrize(("text", "rules"), WRONG.values(), ids=WRONG)
def test_a_reader_that_goes_back_or_skips_is_found(text: str, rules: str) -> None:
    assert broken(text) == rules.split()
