"""What happens to groups beside requests, time and commits (core/coordinator/events.py)."""

from typing import TypeAlias

from msgspec import Struct

from odradek.core.groups.config import GroupConfig


class TopicsDeleted(Struct):
    """Topics that are gone, by name, with their ids."""

    topics: dict[str, bytes]


class TopicsChanged(Struct):
    """Topics were made or deleted, or have other partitions; the image has it already."""

    names: frozenset[str]
    has_new: bool  # some of them were not there before


class ConfigChanged(Struct):
    config: GroupConfig


GroupEvent: TypeAlias = TopicsDeleted | TopicsChanged | ConfigChanged
