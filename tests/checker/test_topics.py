"""Topics are created and deleted when that was acknowledged: histories that hold this, and histories that do not."""

import pytest

from tests.checker.notation import broken

RIGHT = {
    "created and deleted": """
        a create t > ok
        a create u > ok
        a delete t > ok
        n knows u
    """,
    "unknown may be there or not": """
        a create t > ?
        a create u > ok
        a delete u > ?
        n knows t
        o knows u
    """,
    "created again": """
        a create t > ok
        a delete t > ok
        a create t > ok
        n knows t
    """,
    "a refused deletion changes nothing": """
        a create t > ok
        a delete t > no
        n knows t
    """,
    "a creation that nobody answered may come after the deletion": """
        a create t > ?
        a delete t > ok
        n knows t
    """,
}

WRONG = {
    "created, and not there": (
        """
        a create t > ok
        n knows u
    """,
        "topic",
    ),
    "deleted, and there": (
        """
        a create t > ok
        a delete t > ok
        n knows t
    """,
        "topic",
    ),
    "one node does not know": (
        """
        a create t > ok
        n knows t
        o knows u
    """,
        "topic",
    ),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_a_topic_is_there_or_gone_as_was_said(text: str) -> None:
    assert broken(text) == []


@pytest.mark.parametrize(("text", "rules"), WRONG.values(), ids=WRONG)
def test_a_topic_that_is_not_as_was_said_is_found(text: str, rules: str) -> None:
    assert broken(text) == rules.split()
