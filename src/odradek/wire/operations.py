"""What somebody may do with a thing of a cluster, and sets of that as bit fields."""

from enum import IntEnum
from typing import Final

NOT_ASKED: Final = -(1 << 31)  # instead of a bit field, where nobody wants it


class Operation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


def operations(bits: int) -> frozenset[Operation] | None:
    """Those whose bits are set; None when nobody asked. One that is newer than this table is left out."""
    return None if bits == NOT_ASKED else frozenset(each for each in Operation if bits >> each & 1)
