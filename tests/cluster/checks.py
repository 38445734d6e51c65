"""What must hold when the nodes are well again, whatever was done to them.

1. Every acknowledged record is there once, at its offset; none is there twice; the order of a writer in a partition is kept.
2. No two readers ever saw two values at one offset.
3. Committed offsets never go back.
4. The logs of all replicas are the same, byte for byte.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import TopicPartition

from odradek.wire.batch import headers
from tests.clients.confluent import consuming, read
from tests.clients.waiting import until
from tests.cluster.cluster import Cluster
from tests.cluster.workload import PARTITIONS, Place, Workload

LOG_SUFFIX: Final = ".log"
GROUP_OFFSETS: Final = "__consumer_offsets"
WATERMARK_SECONDS_MAX: Final = 30


class Verdict(msgspec.Struct):
    """What was found wrong; nothing, if all is well."""

    acknowledged: int = 0
    lost: list[str] = []
    twice: list[str] = []
    out_of_order: list[str] = []
    two_values: list[str] = []
    went_back: list[str] = []
    gap_s: float = 0.0

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.twice or self.out_of_order or self.two_values or self.went_back)


def verdict(workload: Workload) -> Verdict:
    """Reads everything once more, and compares it with the history."""
    found = read_all(workload)
    there = dict(found)
    result = Verdict(went_back=workload.witness.went_back, gap_s=max(writer.gap_s for writer in workload.writers))
    for writer in workload.writers:
        result.acknowledged += len(writer.acknowledged)
        for place, value in writer.acknowledged.items():
            if there.get(place) != value:
                result.lost.append(f"{value!r} is not at {place}, but {there.get(place)!r}")
    for member in workload.members:
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
        with Workload(cluster.bootstrap, topic) as workload:
            workload.begins()
            fault(workload)
            workload.goes_on()
            cluster.all_in_sync(topic)
            workload.finish()
        found = verdict(workload)
        check_replicas(cluster, topic)
    return found


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
    logs = [Path(node.folder) for node in cluster.nodes]
    names = sorted(name for name in os.listdir(logs[0]) if name.rpartition("-")[0] in (topic, GROUP_OFFSETS))
    assert len(names) > PARTITIONS
    for name in names:
        until(lambda name=name: len({log_bytes(folder / name) for folder in logs}) == 1, f"{name} the same on all nodes")  # type: ignore[misc]
