"""How a consumer is configured, and the names that librdkafka and Java have for it.

Invariants
 1. What cannot be is refused when the consumer is made, with the name of the option.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from odradek.client.cluster import Timing
from odradek.client.errors import InvalidOption
from odradek.client.fetcher import Taste
from odradek.client.group.choice import Protocol
from odradek.client.group.member import Terms
from odradek.client.holding import Callback
from odradek.client.machine import Machine
from odradek.client.properties import Table, boolean, number, text
from odradek.client.reading import EARLIEST, LATEST

RESETS: Final[dict[str, int | None]] = {"earliest": EARLIEST, "latest": LATEST, "none": None}
PROTOCOLS: Final = dict.fromkeys(("auto", "consumer", "classic"))
ISOLATIONS: Final = {"read_committed": True, "read_uncommitted": False}
MAY_BE_ZERO: Final = ("fetch_max_wait_ms", "retry_backoff_ms")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What `Consumer` takes, by the same names; there are the defaults."""

    bootstrap: str | Sequence[str]
    client_id: str
    pattern: str | re.Pattern[str] | None
    group: str | None
    group_instance_id: str | None
    group_protocol: Protocol
    assignor: str | Sequence[str] | None
    auto_offset_reset: str
    isolation: str
    auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    prefetch_bytes: int
    rack: str
    check_crcs: bool
    on_assigned: Callback | None
    on_revoked: Callback | None
    on_lost: Callback | None
    request_timeout_ms: int
    default_timeout_ms: int
    connect_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    machine: Machine | None

    def timing(self) -> Timing:
        return Timing.of(self)

    def taste(self) -> Taste:
        return Taste(
            is_committed=chosen("isolation", self.isolation, ISOLATIONS),
            resets_to=chosen("auto_offset_reset", self.auto_offset_reset, RESETS),
            wait_ms_max=self.fetch_max_wait_ms,
            bytes_min=self.fetch_min_bytes,
            bytes_max=self.fetch_max_bytes,
            partition_bytes_max=min(self.max_partition_fetch_bytes, self.prefetch_bytes),
            prefetch_bytes=self.prefetch_bytes,
            rack=self.rack,
            checks_crcs=self.check_crcs,
            backoff_s=self.retry_backoff_ms / 1000,
            backoff_s_max=self.retry_backoff_max_ms / 1000,
        )

    def terms(self) -> Terms | None:
        """None: without a group."""
        if self.group is None:
            return None
        return Terms(
            group=self.group,
            instance_id=self.group_instance_id,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            max_poll_interval_ms=self.max_poll_interval_ms,
            rack=self.rack,
            assignors=assignors(self.assignor),
        )

    def check(self) -> None:
        """InvalidOption where something cannot be."""
        self.taste()
        chosen("group_protocol", self.group_protocol, PROTOCOLS)
        for name in self.__struct_fields__:
            value = getattr(self, name)
            least = 0 if name in MAY_BE_ZERO else 1
            if name.endswith(("_ms", "_bytes", "_records")) and value < least:
                raise InvalidOption(f"{name}={value}: it is {least} at least")


def chosen(option: str, value: str, table: Mapping[str, Any]) -> Any:
    if value not in table:
        raise InvalidOption(f"{option}={value!r}: it is one of {', '.join(table)}")
    return table[value]


def assignors(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """As Python's, librdkafka's and Java's programs write them."""
    if value is None:
        return ()
    names = value.split(",") if isinstance(value, str) else value
    return tuple(JAVA_ASSIGNORS.get(name.strip().rpartition(".")[2], name.strip()) for name in names if name.strip())


JAVA_ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def reset(value: Any) -> str:
    """librdkafka has several names for each."""
    known = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "error": "none"}
    return known.get(str(value), str(value))


def kilobytes(value: Any) -> int:
    return int(value) * 1024


PROPERTIES: Final[Table] = {
    "group.id": ("group", text),
    "group.instance.id": ("group_instance_id", text),
    "group.protocol": ("group_protocol", lambda value: str(value).lower()),
    "group.remote.assignor": ("assignor", text),
    "partition.assignment.strategy": ("assignor", text),
    "auto.offset.reset": ("auto_offset_reset", reset),
    "isolation.level": ("isolation", text),
    "enable.auto.commit": ("auto_commit", boolean),
    "auto.commit.interval.ms": ("auto_commit_interval_ms", number),
    "session.timeout.ms": ("session_timeout_ms", number),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", number),
    "max.poll.interval.ms": ("max_poll_interval_ms", number),
    "fetch.min.bytes": ("fetch_min_bytes", number),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", number),
    "fetch.wait.max.ms": ("fetch_max_wait_ms", number),
    "fetch.max.bytes": ("fetch_max_bytes", number),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", number),
    "fetch.message.max.bytes": ("max_partition_fetch_bytes", number),
    "queued.max.messages.kbytes": ("prefetch_bytes", kilobytes),
    "max.poll.records": ("max_poll_records", number),
    "client.rack": ("rack", text),
    "check.crcs": ("check_crcs", boolean),
}
