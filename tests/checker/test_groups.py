"""Committed offsets stay, and a partition has one owner: histories that hold this, and histories that do not."""

import pytest

from tests.checker.notation import broken

RIGHT = {
    "what is committed is seen": """
        m commits 5 > ok
        w sees 5
    """,
    "nothing is committed yet": """
        w sees ?
        m commits 5 > ok
    """,
    "a commit under way may be seen or not": """
        m commits 5 > ok
        m committing 7
        w sees 5
        w sees 7
        m heard 7 > ok
        w sees 7
    """,
    "a commit that nobody answered may be seen any time": """
        m committing 5
        n commits 7 > ok
        w sees 5
        w sees 7
    """,
    "a commit that nobody answered, of a member that was given the partition": """
        m committing 5
        m assigned 0 group=g gen=2
        m commits 7 > ok
        w sees 5
    """,
    "a member hears late that it was given the partition": """
        m assigned 0 group=g gen=2
        m committing 5
        n assigned 0 group=g gen=1
        m commits 7 > ok
        w sees 5
    """,
    "somebody asked before the newer one was acknowledged": """
        m commits 5 > ok
        w asks
        m commits 7 > ok
        w sees 5
    """,
    "a group may go back if it says so": """
        m commits 7 > ok
        m commits 5 > ok
        w sees 5
    """,
    "one that was tried again may come again": """
        m commits 5 > ok attempts=2
        m commits 7 > ok
        w sees 5
    """,
    "all may be forgotten after a loss": """
        m commits 5 > ok
        m commits 7 > ok
        a allows loss
        w sees 5
        w sees ?
        m commits 6 > ok
        w sees 6
    """,
    "a topic is deleted, and its offsets with it": """
        m commits 5 > ok
        a delete t > ok
        w sees ?
    """,
    "offsets of a transaction are seen when it is committed": """
        p begins tx=1
        p commits 5 > ok tx=1
        w sees ?
        p commit tx=1 > ok
        w sees 5
    """,
    "offsets of a transaction are gone when it is aborted": """
        p begins tx=1
        p commits 5 > ok tx=1
        p abort tx=1 > ok
        w sees ?
    """,
    "a member begins where the group was": """
        p send a > 0
        p send b > 1
        m assigned 0 group=g gen=1
        m polls a@0
        m commits 1 > ok
        m revoked group=g
        n sees 1
        n assigned 1 group=g gen=2
        n polls b@1
        f final a@0 b@1
    """,
    "a member that does not say where it begins": """
        p send a > 0
        p send b > 1
        m assigned ? group=g
        m polls a@0
        m commits 1 > ok
        m revoked group=g
        n assigned ? group=g
        n polls b@1
        f final a@0 b@1
    """,
    "a commit of a former owner is refused": """
        m assigned 0 group=g gen=1
        m committing 5
        n assigned 0 group=g gen=2
        m heard 5 > no
    """,
    "a commit that began while it was the owner": """
        m assigned 0 group=g gen=1
        m committing 5
        n assigned 0 group=g gen=2
        m heard 5 > ok
    """,
    "a member hears late of a generation that is over": """
        n assigned 0 group=g gen=2
        m assigned 0 group=g gen=1
        n commits 5 > ok
    """,
    "an owner that ended owns nothing": """
        m assigned 0 group=g gen=1
        m ended
        n commits 5 > ok
    """,
}

WRONG = {
    "an offset that nobody committed": (
        """
        m commits 5 > ok
        w sees 6
    """,
        "committed_offset",
    ),
    "an offset that was refused": (
        """
        m commits 5 > no
        w sees 5
    """,
        "committed_offset",
    ),
    "a committed offset goes back": (
        """
        m commits 5 > ok
        m commits 7 > ok
        w sees 5
    """,
        "committed_offset",
    ),
    "a committed offset is forgotten": (
        """
        m commits 5 > ok
        w sees ?
    """,
        "committed_offset",
    ),
    "offsets of a transaction are seen before it is committed": (
        """
        p begins tx=1
        p commits 5 > ok tx=1
        w sees 5
        p commit tx=1 > ok
    """,
        "committed_offset",
    ),
    "offsets of a transaction that was aborted": (
        """
        p begins tx=1
        p commits 5 > ok tx=1
        p abort tx=1 > ok
        w sees 5
    """,
        "committed_offset",
    ),
    "a commit of a former owner comes after those of the owner": (
        """
        m committing 5
        n assigned 0 group=g gen=2
        n commits 7 > ok
        w sees 5
    """,
        "committed_offset",
    ),
    "a commit that was seen is seen no more": (
        """
        m commits 5 > ok
        m committing 7
        w sees 7
        w sees 5
    """,
        "committed_offset",
    ),
    "a member begins where it was not told to": (
        """
        m commits 3 > ok
        m commits 5 > ok
        n sees 5
        n assigned 3 group=g gen=2
    """,
        "start_of_assignment",
    ),
    "a member that does not say it begins too early": (
        """
        p send a > 0
        p send b > 1
        m commits 1 > ok
        n assigned ? group=g
        n polls a@0 b@1
        f final a@0 b@1
    """,
        "start_of_assignment",
    ),
    "a member that does not say it begins too late": (
        """
        p send a > 0
        p send b > 1
        m commits 0 > ok
        n assigned ? group=g
        n polls b@1
        f final a@0 b@1
    """,
        "start_of_assignment",
    ),
    "a former owner commits": (
        """
        m assigned 0 group=g gen=1
        n assigned 0 group=g gen=2
        m commits 5 > ok
    """,
        "two_owners",
    ),
    "two owners in one generation": (
        """
        m assigned 0 group=g gen=2
        n assigned 0 group=g gen=2
    """,
        "two_owners",
    ),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_a_group_goes_on_where_it_was(text: str) -> None:
    assert broken(text) == []


@pytest.mark.parametrize(("text", "rules"), WRONG.values(), ids=WRONG)
def test_a_group_that_forgets_or_divides_is_found(text: str, rules: str) -> None:
    assert broken(text) == rules.split()
