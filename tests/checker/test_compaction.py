"""Compaction keeps the last value of every key: histories that hold this, and histories that do not."""

import pytest

from tests.checker.notation import broken

RIGHT = {
    "the last of each key": """
        a allows compact
        p send k:a > 0
        p send l:b > 1
        p send k:c > 2
        f final l:b@1 k:c@2
    """,
    "nothing was compacted yet": """
        a allows compact
        p send k:a > 0
        p send k:b > 1
        f final k:a@0 k:b@1
    """,
    "a tombstone with what it deletes": """
        a allows compact
        p send k:a > 0
        p send k:- > 1
        f final k:a@0 k:-@1
    """,
    "a tombstone alone": """
        a allows compact
        p send k:a > 0
        p send k:- > 1
        f final k:-@1
    """,
    "a tombstone that is gone with what it deletes": """
        a allows compact
        p send k:a > 0
        p send k:- > 1
        p send l:b > 2
        f final l:b@2
    """,
    "nobody knows how a transaction ended, and it was aborted": """
        a allows compact
        p begins tx=1
        p send k:a > 0 tx=1
        p commit tx=1 > ?
        q send l:b > 2
        r assigned 0
        r polls l:b@2 pos=3
        f final l:b@2
    """,
    "compacted and deleted": """
        a allows compact
        a allows delete
        p send k:a > 0
        p send l:b > 1
        f final l:b@1 start=1
    """,
}

WRONG = {
    "the last of a key is gone": (
        """
        a allows compact
        p send k:a > 0
        p send k:b > 1
        p send l:c > 2
        f final k:a@0 l:c@2
    """,
        "last_value",
    ),
    "a key is gone": (
        """
        a allows compact
        p send k:a > 0
        p send l:c > 1
        f final l:c@1
    """,
        "last_value",
    ),
    "a key is gone that was written in a transaction": (
        """
        a allows compact
        p begins tx=1
        p send k:a > 0 tx=1
        p commit tx=1 > ok
        q send l:b > 2
        r assigned 0
        r polls l:b@2 pos=3
        f final l:b@2
    """,
        "last_value unseen_record",
    ),
    "a tombstone is gone before what it deletes": (
        """
        a allows compact
        p send k:a > 0
        p send k:- > 1
        f final k:a@0
    """,
        "tombstone",
    ),
    "retention takes what is behind the start": (
        """
        a allows compact
        a allows delete
        p send k:a > 0
        p send l:b > 1
        p send m:c > 2
        f final m:c@2 start=1
    """,
        "last_value",
    ),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_compaction_keeps_the_last_value(text: str) -> None:
    assert broken(text) == []


@pytest.mark.parametrize(("text", "rules"), WRONG.values(), ids=WRONG)
def test_a_last_value_that_is_gone_is_found(text: str, rules: str) -> None:
    assert broken(text) == rules.split()
