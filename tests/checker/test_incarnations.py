"""A topic that is made anew is another one: histories in which the two are kept apart, and histories in which they are not."""

import pytest

from tests.checker.incarnations import told_apart
from tests.checker.notation import broken, story

RIGHT = {
    "offsets begin anew": """
        a create t > ok id=x
        p send a > 0 id=x
        r assigned 0 id=x
        r polls a@0 id=x
        a delete t > ok id=x
        a create t > ok id=y
        p send b > 0 id=y
        r assigned 0 id=y
        r polls b@0 id=y
        f final b@0 id=y
        n knows t id=y
    """,
    "a send by the name that overlaps the deletion is in neither": """
        a create t > ok id=x
        p sends a
        a delete t > ok id=x
        a create t > ok id=y
        p told a > 5
        f final id=y
    """,
    "or in the new one": """
        a create t > ok id=x
        p sends a
        a delete t > ok id=x
        a create t > ok id=y
        p told a > 0
        f final a@0 id=y
    """,
    "one whose attempts were by the name may come late, and be in both": """
        a create t > ok id=x
        p send a > 0 attempts=2
        r assigned 0 id=x
        r polls a@0 id=x
        a delete t > ok id=x
        a create t > ok id=y
        f final a@0 id=y
    """,
    "one that nobody answered too": """
        a create t > ok id=x
        p sends a
        a delete t > ok id=x
        a create t > ok id=y
        f final a@0 id=y
    """,
    "attempts by both ids": """
        a create t > ok id=x
        p sends a
        r polls a@0 id=x
        a delete t > ok id=x
        a create t > ok id=y
        p told a > 0 id=x,y attempts=2
        f final a@0 id=y
    """,
    "an attempt that was answered by one, after others by the other": """
        a create t > ok id=x
        p send a > 0 id=x
        a delete t > ok id=x
        a create t > ok id=y
        p send b > 0 id=y,x,y attempts=3
        f final b@0 id=y
    """,
    "a creation that nobody answered is the one that is there": """
        a create t > ok id=x
        p send a > 0 id=x
        a delete t > ok id=x
        a create t > ?
        p send b > 0 id=y
        f final b@0 id=y
        n knows t id=y
    """,
    "who reads by the name may be told of either": """
        a create t > ok id=x
        p send a > 0 id=x
        r assigned 0
        r polls a@0 pos=1
        a delete t > ok id=x
        a create t > ok id=y
        p send b > 0 id=y
        r polls a@0
        r denied 0
        r polls b@0 pos=1
        f final b@0 id=y
    """,
    "committed offsets are gone": """
        a create t > ok id=x
        m commits 5 > ok id=x
        w sees 5 id=x
        a delete t > ok id=x
        a create t > ok id=y
        w sees ? id=y
        m commits 2 > ok id=y
        w sees 2 id=y
    """,
    "a commit by the name that overlaps the deletion may be for the new one": """
        a create t > ok id=x
        m committing 5
        a delete t > ok id=x
        a create t > ok id=y
        m heard 5 > ok
        w sees 5 id=y
    """,
    "or for the old one": """
        a create t > ok id=x
        m committing 5
        a delete t > ok id=x
        a create t > ok id=y
        m heard 5 > ok
        w sees ? id=y
    """,
    "or one that nobody answered before the deletion": """
        a create t > ok id=x
        m commits 5 > ?
        a delete t > ok id=x
        a create t > ok id=y
        w sees 5 id=y
    """,
    "a coordinator that has not spoken of the new one may tell of the old one": """
        a create t > ok id=x
        m commits 5 > ok
        a delete t > ok id=x
        a create t > ok id=y
        w sees 5
        w sees ? id=y
    """,
    "also when it has acknowledged what was committed beside the new one": """
        a create t > ok id=x
        a create u > ok
        a delete t > ok id=x
        a create t > ok id=y
        n commits 3 > no id=y also=u
        m commits 5 > ok
        w sees ? id=y
    """,
    "also to who has asked before": """
        a create t > ok id=x
        m commits 5 > ok
        a delete t > ok id=x
        a create t > ok id=y
        v asks
        w sees ? id=y
        v sees 5
    """,
    "an idempotent producer that goes on counting may be out of order until it is known": """
        a create t > ok id=x
        a delete t > ok id=x
        a create t > ok id=y
        p sends a
        p sends b
        p told b > 0 id=y
        p told a > 1 id=y
        f final b@0 a@1 id=y
    """,
    "records that were deleted by the name, of one or the other": """
        a create t > ok id=x
        a delete t > ok id=x
        a create t > ok id=y
        p send a > 0 id=y
        a deletes 1 > ok
        f final start=1 end=1 id=y
        n knows t id=y
    """,
}

WRONG = {
    "what was acknowledged before is there again": (
        """
        a create t > ok id=x
        p send a > 0 id=x
        a delete t > ok id=x
        a create t > ok id=y
        f final a@0 id=y
    """,
        "earlier_topic",
    ),
    "also by the name, when it was tried once": (
        """
        a create t > ok id=x
        p send a > 0
        a delete t > ok id=x
        a create t > ok id=y
        f final a@0 id=y
    """,
        "earlier_topic",
    ),
    "and when it was tried again by the id": (
        """
        a create t > ok id=x
        p send a > 0 attempts=2 id=x
        a delete t > ok id=x
        a create t > ok id=y
        f final a@0 id=y
    """,
        "earlier_topic",
    ),
    "a reader gets it": (
        """
        a create t > ok id=x
        p send a > 0 id=x
        a delete t > ok id=x
        a create t > ok id=y
        r polls a@0 id=y
        f final id=y
    """,
        "earlier_topic lost_write",
    ),
    "what was acknowledged to the new one is lost": (
        """
        a create t > ok id=x
        a delete t > ok id=x
        a create t > ok id=y
        p send a > 0 id=y
        f final id=y
    """,
        "lost_write",
    ),
    "two values at an offset of the new one": (
        """
        a create t > ok id=x
        a delete t > ok id=x
        a create t > ok id=y
        p send a > 0 id=y
        q send b > 0 id=y
        f final a@0 id=y
    """,
        "two_values",
    ),
    "a reader goes back in the new one": (
        """
        a create t > ok id=x
        a delete t > ok id=x
        a create t > ok id=y
        p send a > 0 id=y
        r polls a@0 id=y
        r polls a@0 id=y
        f final a@0 id=y
    """,
        "nonmonotonic_poll",
    ),
    "committed offsets of the old one are told for the new one": (
        """
        a create t > ok id=x
        m commits 5 > ok id=x
        a delete t > ok id=x
        a create t > ok id=y
        w sees 5 id=y
    """,
        "committed_offset",
    ),
    "also those that were committed by the name": (
        """
        a create t > ok id=x
        m commits 5 > ok
        a delete t > ok id=x
        a create t > ok id=y
        w sees 5 id=y
    """,
        "committed_offset",
    ),
    "a coordinator that has spoken of the new one tells of the old one": (
        """
        a create t > ok id=x
        m commits 5 > ok
        a delete t > ok id=x
        a create t > ok id=y
        w sees ? id=y
        w sees 5
    """,
        "committed_offset",
    ),
    "what was committed by the name, to one that had spoken of the new one, is lost": (
        """
        a create t > ok id=x
        a delete t > ok id=x
        a create t > ok id=y
        w sees ? id=y
        m commits 5 > ok
        w sees ? id=y
    """,
        "committed_offset",
    ),
    "and to one that had acknowledged a commit to it, with another topic's": (
        """
        a create t > ok id=x
        a create u > ok
        a delete t > ok id=x
        a create t > ok id=y
        n commits 3 > ok id=y also=u
        m commits 5 > ok
        w sees 3 id=y
    """,
        "committed_offset",
    ),
    "the old one is there": (
        """
        a create t > ok id=x
        a delete t > ok id=x
        a create t > ok id=y
        n knows t id=x
    """,
        "topic",
    ),
    "the new one is out of order": (
        """
        a create t > ok id=x
        a delete t > ok id=x
        a create t > ok id=y
        p send a > 0 id=y
        p sends b
        p sends c
        p told c > 1 id=y
        p told b > 2 id=y
        f final a@0 c@1 b@2 id=y
    """,
        "order_of_sends",
    ),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_topics_of_one_name_are_told_apart(text: str) -> None:
    assert broken(text) == []


@pytest.mark.parametrize(("text", "rules"), WRONG.values(), ids=WRONG)
def test_what_is_of_another_topic_of_the_name_is_found(text: str, rules: str) -> None:
    assert broken(text) == rules.split()


def test_nothing_is_changed_where_no_name_is_used_twice() -> None:
    events = story("""
        a create t > ok id=x
        a create u > no
        a create u > ok id=y
        p send a > 0 id=x
        a delete t > ok id=x
        f final in=u-0 id=y
    """).events
    assert told_apart(events) is events
