"""What must hold when the nodes are well again, whatever was done to them.

1. The history that the clients told breaks no rule (`tests/checker`).
2. The sums of the bank hold (`bank.py`).
3. The logs of all replicas are the same, byte for byte.
4. No node has complained of itself.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import KafkaException, TopicPartition

from odradek.wire.batch import headers
from tests.checker.check import check
from tests.checker.history import FinalRead, History, Record, text
from tests.checker.report import Report
from tests.clients.confluent import consuming, read, row
from tests.cluster.cluster import Cluster
from tests.cluster.settings import PARTITIONS, now_ms, until
from tests.cluster.workload import Workload

LOG_SUFFIX: Final = ".log"
GROUP_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
WATERMARK_SECONDS_MAX: Final = 30
COMPLAINTS: Final = ("internal error", "Traceback", "never retrieved", "never awaited", "loses what was committed")


class Verdict(msgspec.Struct):
    """What was found wrong; nothing, if all is well."""

    report: Report
    history: History
    complaints: list[str]
    bank: list[str]
    gap_s: float

    @property
    def acknowledged(self) -> int:
        return self.report.checked["sends acknowledged"]

    @property
    def wrong(self) -> dict[str, list[str]]:
        found = {what: examples for what, examples in (("complaint", self.complaints), ("bank", self.bank)) if examples}
        for each in self.report.violations:
            found.setdefault(each.rule, []).append(each.sentence)
        return found


class Stuck(AssertionError):
    """Clients or nodes do not come to their end. What clients were told until then is looked at all the same."""

    def __init__(self, error: AssertionError, found: Verdict) -> None:
        super().__init__("\n".join([str(error), *getattr(error, "__notes__", [])]))
        self.found = found


def suffer(cluster: Cluster, topic: str, fault: Callable[[Workload], None]) -> Verdict:
    """Has clients at work before, during and after the fault; then looks whether all is as they were told."""
    with cluster.explaining():
        cluster.heal()
        before = complaints(cluster)
        workload = Workload(cluster.bootstrap, topic)
        try:
            with workload:
                workload.begins()
                fault(workload)
                workload.goes_on()
                cluster.heal()
                cluster.all_in_sync(topic)
                workload.finish()
            read_all(workload)
            workload.administrator.look(cluster)
            check_replicas(cluster, topic, *workload.bank.topics)
        except AssertionError as error:
            with suppress(AssertionError, KafkaException):
                cluster.heal()
                read_all(workload)
            raise Stuck(error, judge(cluster, workload, before)) from error
    return judge(cluster, workload, before)


def judge(cluster: Cluster, workload: Workload, complaints_before: list[str]) -> Verdict:
    new = [line for line in complaints(cluster) if line not in complaints_before]
    gap_s = max(writer.gap_s for writer in workload.writers)
    report = check(workload.history)
    report.looked_at("bank transactions", workload.bank.committed)
    return Verdict(report, workload.history, new, workload.bank.wrong, gap_s)


def complaints(cluster: Cluster) -> list[str]:
    """Lines of the nodes that only a mistake of theirs explains."""
    return [line for number in cluster.nodes for line in cluster.lines(number) if any(word in line for word in COMPLAINTS)]


def read_all(workload: Workload) -> None:
    """Everything once more, for the history."""
    topic = workload.topic
    with consuming(workload.bootstrap) as consumer:
        partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(each, timeout=WATERMARK_SECONDS_MAX) for each in partitions]
    found = read(workload.bootstrap, topic, sum(end for _, end in ends), PARTITIONS)
    records: list[list[Record]] = [[] for _ in partitions]
    for each in sorted(map(row, found), key=lambda each: each[:2]):
        records[each.partition].append(Record(topic, each.partition, each.offset, text(each.key), text(each.value)))
    for index, (start, end) in enumerate(ends):
        workload.history.add(FinalRead(now_ms(), "checks", topic, index, start, end, records[index]))


def log_bytes(folder: Path) -> bytes:
    """All batches of a partition; segments may begin elsewhere on a follower."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob(f"*{LOG_SUFFIX}")))


def check_same(copies: list[Path], what: str) -> None:
    """Until all copies of a log are the same, where nodes still write; what is the same then is whole."""
    found: set[bytes] = set()

    def look() -> bool:
        nonlocal found
        found = {log_bytes(folder) for folder in copies}
        return len(found) == 1

    until(look, f"{what} the same on all nodes")
    (data,) = found
    assert sum(header.size for _, header in headers(data)) == len(data)


def check_replicas(cluster: Cluster, *topics: str) -> None:
    """The logs of the topics, of the groups' offsets and of transactions."""
    folders: dict[str, list[Path]] = {}
    wanted = "|".join(map(re.escape, (*topics, GROUP_OFFSETS, TRANSACTION_STATE)))
    for number in cluster.brokers:
        for path in sorted(path for folder in cluster.log_dirs(number) for path in folder.iterdir()):
            if re.fullmatch(rf"({wanted})-\d+", path.name):
                folders.setdefault(path.name, []).append(path)
    assert len(folders) > PARTITIONS
    for name, copies in folders.items():
        assert len(copies) > 1
        check_same(copies, name)
