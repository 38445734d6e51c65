"""What must hold when the nodes are well again, whatever was done to them.

1. Every acknowledged record is there once, at its offset; none is there twice; the order of a writer in a partition is kept.
2. No two readers ever saw two values at one offset, nor skipped one.
3. Committed offsets never go back, and no partition of a group has two owners.
4. Topics are there that were created, and those are gone that were deleted.
5. The logs of all replicas are the same, byte for byte.
6. No node has complained of itself.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import TopicPartition

from odradek.wire.batch import headers
from tests.clients.confluent import consuming, read
from tests.cluster.cluster import Cluster
from tests.cluster.settings import PARTITIONS, Place, until
from tests.cluster.workload import Workload

LOG_SUFFIX: Final = ".log"
GROUP_OFFSETS: Final = "__consumer_offsets"
WATERMARK_SECONDS_MAX: Final = 30
COMPLAINTS: Final = ("internal error", "Traceback", "never retrieved", "never awaited", "loses what was committed")


class Verdict(msgspec.Struct):
    """What was found wrong; nothing, if all is well."""

    acknowledged: int = 0
    lost: list[str] = []
    twice: list[str] = []
    out_of_order: list[str] = []
    two_values: list[str] = []
    went_back: list[str] = []
    skipped: list[str] = []
    owned_twice: list[str] = []
    topics: list[str] = []
    complaints: list[str] = []
    gap_s: float = 0.0

    @property
    def wrong(self) -> dict[str, list[str]]:
        found = msgspec.structs.asdict(self)
        return {name: value for name, value in found.items() if isinstance(value, list) and value}


WRONG: Final = tuple(field.name for field in msgspec.structs.fields(Verdict) if field.name not in ("acknowledged", "gap_s"))


def verdict(workload: Workload) -> Verdict:
    """Reads everything once more, and compares it with the history."""
    found = read_all(workload)
    there = dict(found)
    result = Verdict(gap_s=max(writer.gap_s for writer in workload.writers))
    for group in workload.groups:
        result.went_back += group.went_back
        result.skipped += group.skipped
        result.owned_twice += group.owned_twice
    for writer in workload.writers:
        result.acknowledged += len(writer.acknowledged)
        for place, value in writer.acknowledged.items():
            if there.get(place) != value:
                result.lost.append(f"{value!r} is not at {place}, but {there.get(place)!r}")
    for member in (member for group in workload.groups for member in group.members):
        result.two_values += [
            f"{place}: {value!r}, {there.get(place)!r}" for place, value in member.read if there.get(place) != value
        ]
    last: dict[tuple[bytes, bytes], int] = {}
    seen: set[bytes] = set()
    for place, value in sorted(found):
        label, index, number = value.split()
        if value in seen:
            result.twice.append(f"{value!r} once more at {place}")
        elif int(number) != last.get((label, index), -1) + 1:
            result.out_of_order.append(f"{value!r} at {place} after {last.get((label, index))}")
        seen.add(value)
        last[label, index] = max(int(number), last.get((label, index), -1))
    return result


def suffer(cluster: Cluster, topic: str, fault: Callable[[Workload], None]) -> Verdict:
    """Has clients at work before, during and after the fault; then looks whether all is as they were told."""
    with cluster.explaining():
        cluster.heal()
        before = complaints(cluster)
        with Workload(cluster.bootstrap, topic) as workload:
            workload.begins()
            fault(workload)
            workload.goes_on()
            cluster.heal()
            cluster.all_in_sync(topic)
            workload.finish()
        found = verdict(workload)
        check_replicas(cluster, topic)
        found.topics = workload.administrator.broken_promises(cluster)
        found.complaints = [line for line in complaints(cluster) if line not in before]
    return found


def complaints(cluster: Cluster) -> list[str]:
    """Lines of the nodes that only a mistake of theirs explains."""
    return [line for number in cluster.nodes for line in cluster.lines(number) if any(word in line for word in COMPLAINTS)]


def read_all(workload: Workload) -> list[tuple[Place, bytes]]:
    with consuming(workload.bootstrap) as consumer:
        partitions = [TopicPartition(workload.topic, index) for index in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(each, timeout=WATERMARK_SECONDS_MAX)[1] for each in partitions]
    found = read(workload.bootstrap, workload.topic, sum(ends), PARTITIONS)
    return [((each.partition() or 0, each.offset() or 0), each.value() or b"") for each in found]


def log_bytes(folder: Path) -> bytes:
    """All batches of a partition; segments may begin elsewhere on a follower."""
    data = b"".join(path.read_bytes() for path in sorted(folder.glob(f"*{LOG_SUFFIX}")))
    assert sum(header.size for _, header in headers(data)) == len(data)
    return data


def check_replicas(cluster: Cluster, topic: str) -> None:
    """The logs of the topic and of the groups' offsets; until they are the same, where nodes still write."""
    folders: dict[str, list[Path]] = {}
    for number in cluster.brokers:
        for path in sorted(path for folder in cluster.log_dirs(number) for path in folder.iterdir()):
            if re.fullmatch(rf"({re.escape(topic)}|{GROUP_OFFSETS})-\d+", path.name):
                folders.setdefault(path.name, []).append(path)
    assert len(folders) > PARTITIONS
    for name, copies in folders.items():
        assert len(copies) > 1
        until(lambda copies=copies: len({log_bytes(folder) for folder in copies}) == 1, f"{name} the same on all nodes")  # type: ignore[misc]
