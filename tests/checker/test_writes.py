"""What was sent is there: histories that hold this, and histories that do not."""

import pytest

from tests.checker.notation import broken

RIGHT = {
    "two producers side by side": """
        p sends a
        q sends b
        q told b > 0
        p told a > 1
        r polls b@0 a@1
        f final b@0 a@1
    """,
    "written behind the final reading": """
        p sends a
        q send b > 0
        f final b@0 end=1
        p told a > 1
    """,
    "written while the final reading is asked where the log ends": """
        p sends a
        q send b > 0
        f polling
        p told a > 1
        f final b@0 end=1
    """,
    "an unknown send may be there": """
        p send a > ?
        f final a@0
    """,
    "an unknown send may be missing": """
        p send a > ?
        p send b > 0
        f final b@0
    """,
    "what only a leader had acknowledged may be gone": """
        p send a > 0 acks=1 plain
        q send b > 0
        f final b@0
    """,
    "what nobody acknowledged may be gone": """
        p send a > ? acks=0 plain
        q send b > 0
        f final b@0
    """,
    "a retry without idempotence may repeat a record": """
        p send a > 1 plain attempts=2
        f final a@0 a@1
    """,
    "one that was never heard of again may be there twice": """
        p sends a plain
        f final a@0 a@1
    """,
    "a refused send is not there": """
        p send a > no
        f final
    """,
    "an acknowledgement without an offset": """
        p send a > ok
        f final a@0
    """,
    "retention takes a prefix": """
        a allows delete
        p send a > 0
        p send b > 1
        f final b@1 start=1
    """,
    "a retry of what retention has taken may be appended again": """
        a allows delete
        p sends a
        r polls a@0
        p told a > 1 attempts=2
        f final a@1 start=1
    """,
    "so may one of what was deleted, before the topic was": """
        p sends a
        r polls a@0
        a deletes 1 > ok
        p told a > 1 attempts=2
        a delete t > ok
    """,
    "records that were deleted are gone": """
        p send a > 0
        p send b > 1
        a deletes 1 > ok
        f final b@1 start=1
    """,
    "a deletion that nobody answered may have happened": """
        p send a > 0
        p send b > 1
        a deletes 1 > ?
        f final b@1 start=1
    """,
    "a deletion that nobody answered may not have happened": """
        p send a > 0
        a deletes 1 > ?
        f final a@0
    """,
    "a topic that is deleted need not be read": """
        p send a > 0
        a delete t > ok
    """,
    "a loss that is allowed": """
        p send a > 0
        p send b > 1
        r polls a@0 b@1
        a allows loss
        p send c > 1
        f final a@0 c@1
    """,
    "the same value under another key": """
        p send k:a > 0
        p send l:a > 1
        f final k:a@0 l:a@1
    """,
    "tombstones are all alike": """
        p send k:- > 0
        p send k:- > 1
        f final k:-@0 k:-@1
    """,
}

WRONG = {
    "acknowledged behind the final reading, which was further": (
        """
        p sends a
        q send b > 1
        f final b@1 end=2
        p told a > 0
    """,
        "lost_write",
    ),
    "acknowledged before the final reading asked where the log ends": (
        """
        q send b > 0
        p send a > 1
        f polling
        f final b@0 end=1
    """,
        "lost_write",
    ),
    "an acknowledged record is gone": (
        """
        p send a > 0
        p send b > 1
        f final b@1
    """,
        "lost_write",
    ),
    "an acknowledged record is cut off": (
        """
        p send a > 0
        p send b > 1
        f final a@0
    """,
        "lost_write",
    ),
    "what was read is gone, though only a leader had acknowledged it": (
        """
        p send a > 0 acks=1 plain
        r polls a@0
        f final
    """,
        "lost_write",
    ),
    "what was read is gone, though nobody had acknowledged it": (
        """
        p send a > ? acks=0 plain
        r polls a@0
        f final
    """,
        "lost_write",
    ),
    "what was acknowledged without an offset is nowhere": (
        """
        p send a > ok
        f final
    """,
        "lost_write",
    ),
    "a record behind the start is gone with retention": (
        """
        a allows delete
        p send a > 0
        p send b > 1
        p send c > 2
        f final c@2 start=1
    """,
        "lost_write",
    ),
    "more was deleted than asked for": (
        """
        p send a > 0
        p send b > 1
        a deletes 1 > ok
        f final start=2
    """,
        "lost_write removed_without_leave",
    ),
    "nobody asked to delete anything": (
        """
        p send a > 0
        f final start=1
    """,
        "lost_write removed_without_leave",
    ),
    "deleted records come back": (
        """
        p send a > 0
        p send b > 1
        a deletes 1 > ok
        f final a@0 b@1
    """,
        "deleted_records",
    ),
    "what came after a loss that is allowed is gone": (
        """
        p send a > 0
        a allows loss
        p send b > 0
        f final
    """,
        "lost_write",
    ),
    "two producers are told the same offset": (
        """
        p send a > 0
        q send b > 0
        f final a@0
    """,
        "two_values",
    ),
    "a reader saw another value": (
        """
        p send a > 0
        q send b > ?
        r polls b@0
        f final a@0
    """,
        "two_values",
    ),
    "two readers saw different values": (
        """
        p send a > ?
        q send b > ?
        r polls a@0
        s polls b@0
    """,
        "two_values",
    ),
    "a key changed": (
        """
        p send k:a > 0
        f final l:a@0
    """,
        "two_values",
    ),
    "an idempotent record is there twice": (
        """
        p send a > 0 attempts=3
        f final a@0 a@1
    """,
        "duplicate",
    ),
    "an idempotent record is there twice, and was not deleted before": (
        """
        a allows delete
        p send z > 0
        p send a > 1 attempts=3
        f final a@1 a@2 start=1
    """,
        "duplicate",
    ),
    "an idempotent record is there twice, in a topic that was deleted with all its records": (
        """
        p sends a
        r polls a@0
        p told a > 1 attempts=2
        a delete t > ok
    """,
        "duplicate",
    ),
    "a record that was tried once is there twice": (
        """
        p send a > 0 plain
        f final a@0 a@1
    """,
        "duplicate",
    ),
    "a record without acks is there twice": (
        """
        p send a > ? plain acks=0
        f final a@0 a@1
    """,
        "duplicate",
    ),
    "a record that nobody sent": (
        """
        p send a > 0
        f final a@0 b@1
    """,
        "never_sent",
    ),
    "a record that was sent to another partition": (
        """
        p send a > ? in=t-1
        f final a@0
    """,
        "never_sent",
    ),
    "a record is read before it is sent": (
        """
        r polls a@0
        p send a > 0
        f final a@0
    """,
        "never_sent read_write_cycle",
    ),
    "what was refused is there": (
        """
        p send a > no
        f final a@0
    """,
        "refused_read",
    ),
    "an idempotent producer's records change places": (
        """
        p sends a
        p sends b
        p told b > 0
        p told a > 1
        f final b@0 a@1
    """,
        "order_of_sends",
    ),
    "nobody reads the log in the end": (
        """
        p send a > 0
    """,
        "unread_log",
    ),
    "a value is sent twice": (
        """
        p send a > 0
        q send a > ?
        f final a@0
    """,
        "unique_values",
    ),
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_was_sent_is_there(text: str) -> None:
    assert broken(text) == []


@pytest.mark.parametrize(("text", "rules"), WRONG.values(), ids=WRONG)
def test_what_is_lost_twice_or_elsewhere_is_found(text: str, rules: str) -> None:
    assert broken(text) == rules.split()
