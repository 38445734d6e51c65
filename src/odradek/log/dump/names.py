"""Which file is what, by its name alone: the name is also how Kafka knows.

Beside the files of partitions there are those of the metadata quorum: `quorum-state`, and snapshots of the metadata named
after the offset and epoch that they end with, `00000000000000000042-0000000007.checkpoint`.
"""

import os
import re
from enum import StrEnum
from typing import NamedTuple

from odradek.log.checkpoint import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from odradek.log.dump.values import BY_TOPIC, Holds
from odradek.log.epochs import LEADER_EPOCHS
from odradek.log.meta_properties import META_PROPERTIES
from odradek.log.names import parse_folder_name

QUORUM_STATE = "quorum-state"


class Kind(StrEnum):
    """What a file is."""

    SEGMENT = "segment"
    INDEX = "index"
    TIME_INDEX = "time_index"
    TRANSACTION_INDEX = "transaction_index"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    METADATA_SNAPSHOT = "metadata_snapshot"
    OFFSETS = "offset_checkpoint"
    LEADER_EPOCHS = "leader_epoch_checkpoint"
    PARTITION_METADATA = "partition_metadata"
    META_PROPERTIES = "meta_properties"
    CLEAN_SHUTDOWN = "clean_shutdown"
    QUORUM_STATE = "quorum_state"


class Known(NamedTuple):
    kind: Kind
    base_offset: int | None = None
    state: str = ""
    is_numbered: bool = False  # its name begins with an offset, as all in a partition's folder do


BY_SUFFIX = {
    ".log": Kind.SEGMENT,
    ".index": Kind.INDEX,
    ".timeindex": Kind.TIME_INDEX,
    ".txnindex": Kind.TRANSACTION_INDEX,
    ".snapshot": Kind.PRODUCER_SNAPSHOT,
    ".checkpoint": Kind.METADATA_SNAPSHOT,
}
BY_NAME = {
    RECOVERY_POINTS: Kind.OFFSETS,
    LOG_STARTS: Kind.OFFSETS,
    HIGH_WATERMARKS: Kind.OFFSETS,
    CLEANER_OFFSETS: Kind.OFFSETS,
    LEADER_EPOCHS: Kind.LEADER_EPOCHS,
    PARTITION_METADATA: Kind.PARTITION_METADATA,
    META_PROPERTIES: Kind.META_PROPERTIES,
    CLEAN_SHUTDOWN: Kind.CLEAN_SHUTDOWN,
    QUORUM_STATE: Kind.QUORUM_STATE,
}
OF_A_SEGMENT = (Kind.SEGMENT, Kind.INDEX, Kind.TIME_INDEX, Kind.TRANSACTION_INDEX)
ORDER = list(Kind)

_STATE = re.compile(r"(.+)\.(cleaned|swap|deleted|part|tmp)")
_NUMBERED = re.compile(r"([0-9]{1,20})(-[0-9]{1,10})?")


def recognise(name: str) -> Known | None:
    """What a file of that name is; None when it is no file of a log."""
    match = _STATE.fullmatch(name)
    name, state = (match[1], match[2]) if match else (name, "")
    if name in BY_NAME:
        return Known(BY_NAME[name], None, state)
    stem, suffix = os.path.splitext(name)
    if suffix not in BY_SUFFIX or not stem:
        return None
    number = _NUMBERED.match(stem)
    return Known(BY_SUFFIX[suffix], int(number[1]) if number else None, state, number is not None)


def holds_of(path: str, kind: Kind) -> Holds:
    """How the records of a file are to be understood, from the name of the folder that it is in."""
    if kind is Kind.METADATA_SNAPSHOT:
        return Holds.METADATA
    found = parse_folder_name(os.path.basename(os.path.dirname(os.path.abspath(path))))
    return BY_TOPIC.get(found[0].topic, Holds.RECORDS) if found else Holds.RECORDS


def in_order(names: list[str]) -> list[str]:
    """The small files first, then those of each segment together."""

    def place(name: str) -> tuple[int, int, str]:
        known = recognise(name)
        if known is None or known.base_offset is None:
            return -1, 0, name
        return known.base_offset, ORDER.index(known.kind), name

    return sorted(names, key=place)
