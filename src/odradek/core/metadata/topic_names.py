"""Which names a topic may have, and which of them are too like another's.

Metrics once replaced every period by an underscore: two topics that differ in nothing else would share them.
"""

import re
from typing import Final

NAME_LENGTH_MAX: Final = 249
CLUSTER_METADATA: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def name_fault(name: str) -> str | None:
    """What is wrong with a name; None when nothing is."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def may_collide(name: str) -> bool:
    return "_" in name or "." in name


def unified(name: str) -> str:
    """What colliding names have in common."""
    return name.replace(".", "_")
