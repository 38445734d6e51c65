"""The names in a log folder: of the folders of partitions, and of the files in them. They are Kafka's.

    topic-7                          a partition
    topic-7.<unique id>-delete       renamed at once, removed later; the topic is cut so that 255 characters hold it all
    topic-7.<unique id>-stray        set aside: the cluster's metadata does not give this replica to this folder
    topic-7.<unique id>-future       a copy on its way from another log folder of this machine

    00000000000000000042.log         a segment that begins at offset 42, beside it .index, .timeindex and .txnindex
    00000000000000000042.snapshot    what was known of producers before offset 42
    ….log.cleaned, ….log.swap        being written by compaction; complete, about to take the place of others
    ….log.deleted                    no longer part of the log, removed when nobody can be reading it

Invariants
 1. What `folder_name` and `file_name` give is parsed back into what they were given, except that a cut topic stays cut.
 2. Sorted by name, the files of one kind are sorted by offset.
"""

import re
from enum import StrEnum
from typing import NamedTuple

NAME_LENGTH_MAX = 255  # what file systems allow
PARTITION_MAX = 2**31 - 1


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class FolderState(StrEnum):
    """What the end of a folder's name says of the partition in it."""

    CURRENT = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


class FileKind(StrEnum):
    """The files that are named after an offset, by their suffix."""

    LOG = ".log"
    INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class FileState(StrEnum):
    """What the end of a file's name says of its life."""

    CURRENT = ""
    CLEANED = ".cleaned"
    SWAP = ".swap"
    DELETED = ".deleted"


class FileName(NamedTuple):
    offset: int
    kind: FileKind
    state: FileState


_FOLDER_WITH_STATE = re.compile(r"\S+-\S+\.\S+(-delete|-future|-stray)", re.ASCII)
_PARTITION = re.compile(r"[+-]?[0-9]{1,255}")  # zeros may lead
_FILE = re.compile(r"([0-9]{1,20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(|\.cleaned|\.swap|\.deleted)")


def folder_name(of: TopicPartition, state: FolderState = FolderState.CURRENT, unique_id: str = "") -> str:
    """The folder of a partition. `unique_id` keeps two that were deleted apart; Kafka takes 32 hexadecimal digits."""
    assert (unique_id == "") == (state is FolderState.CURRENT)
    if state is FolderState.CURRENT:
        return f"{of.topic}-{of.partition}"
    end = f"-{of.partition}.{unique_id}{state}"
    if state is FolderState.FUTURE:  # a copy becomes the partition, so its topic has to stay whole
        return of.topic + end
    return of.topic[: NAME_LENGTH_MAX - len(end)] + end


def parse_folder_name(name: str) -> tuple[TopicPartition, FolderState] | None:
    """Which partition a folder holds, and in which state; None for a name that is no partition's."""
    state = FolderState.CURRENT
    for ending in (FolderState.DELETE, FolderState.FUTURE, FolderState.STRAY):
        if name.endswith(ending):
            if not _FOLDER_WITH_STATE.fullmatch(name):
                return None
            state = ending
            name = name[: name.rindex(".")]
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not _PARTITION.fullmatch(partition) or int(partition) > PARTITION_MAX:
        return None
    return TopicPartition(topic, int(partition)), state


def file_name(offset: int, kind: FileKind, state: FileState = FileState.CURRENT) -> str:
    assert offset >= 0
    return f"{offset:020d}{kind}{state}"


def parse_file_name(name: str) -> FileName | None:
    """The offset, kind and state of a file; None for a name that is no such file's."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    return FileName(int(match[1]), FileKind(match[2]), FileState(match[3]))
