"""Features and their levels: what Kafka 4.3 knows, what Odradek serves, and which record versions go with a metadata.version.

Invariants
 1. A level that a log already has is kept, also where it is not served yet; nothing lowers it silently.
 2. A level that 4.3 does not know stops the start: records of a newer version could mean anything.
"""

from typing import Final

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"

METADATA_VERSION_MIN: Final = 7
METADATA_VERSION_MAX: Final = 30
RELEASES: Final = (  # the release of each metadata.version from 7 on
    "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2",
    "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0",
    "4.2-IV1", "4.3-IV0",
)  # fmt: skip

KNOWN: Final[dict[str, tuple[int, int]]] = {  # by Kafka 4.3
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    KRAFT_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
    ELR_VERSION: (0, 1),
    SHARE_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
}
SERVED: Final[dict[str, tuple[int, int]]] = {  # and so finalized in a new cluster, each on its highest level
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    KRAFT_VERSION: (0, 1),
    ELR_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}


class UnsupportedFeature(Exception):
    """A log was written by a version that is newer than this one."""

    def __init__(self, name: str, level: int) -> None:
        known = KNOWN.get(name)
        says = "does not know this feature" if known is None else f"knows the levels {known[0]} to {known[1]}"
        super().__init__(
            f"the metadata log has {name} at level {level}, and this version of Odradek {says}: "
            "start a version that knows it, or the Apache Kafka that wrote it"
        )
        self.name = name
        self.level = level


def check_levels(features: dict[str, int]) -> None:
    """Refuses what was found in a log and is not known."""
    for name, level in features.items():
        low, high = KNOWN.get(name, (0, -1))
        if not low <= level <= high:
            raise UnsupportedFeature(name, level)


def supported_features(finalized: dict[str, int]) -> dict[str, tuple[int, int]]:
    """The levels that a node says it supports: those that it serves, and those that its log has already."""
    supported = dict(SERVED)
    for name, level in finalized.items():
        low, high = supported.get(name, (0, 0))
        supported[name] = (low, max(high, level))
    return supported


def release(metadata_version: int) -> str:
    """How people call a metadata.version: 4.3-IV0."""
    return RELEASES[metadata_version - METADATA_VERSION_MIN]


class RecordVersions:
    """The versions in which records are written at a metadata.version, and what they can hold there."""

    def __init__(self, metadata_version: int) -> None:
        self.metadata_version = metadata_version
        self.has_zk_migration = metadata_version >= 8  # 3.4-IV0
        self.has_scram = metadata_version >= 11  # 3.5-IV2
        self.has_transactions = metadata_version >= 13  # 3.6-IV1
        self.has_delegation_tokens = metadata_version >= 14  # 3.6-IV2
        self.has_controllers = metadata_version >= 15  # 3.7-IV0
        self.has_directories = metadata_version >= 17  # 3.7-IV2
        self.has_elr = metadata_version >= 23  # 4.0-IV1
        self.has_cordoned_log_dirs = metadata_version >= 30  # 4.3-IV0

    @property
    def register_broker(self) -> int:
        if self.has_cordoned_log_dirs:
            return 4
        if self.has_directories:
            return 3
        return 2 if self.has_zk_migration else 1

    @property
    def partition(self) -> int:
        """Of Partition and PartitionChange."""
        if self.has_elr:
            return 2
        return 1 if self.has_directories else 0
