"""How long the log takes on a real disk: appends, reads, opening, recovery and compaction, each with its CPU time.

python bench/log.py [--quick] [--only NAME] [--profile] [--folder PATH]

A figure is the best of several rounds, by time; CPU is user and system time of that round. Appends are not synced, as a node's
are not. --profile shows instead where the time of one round goes.
"""

import argparse
import cProfile
import os
import pstats
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from odradek.log.cleaner import Cleaner
from odradek.log.compaction import compact
from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.log.folder import LogFolder
from odradek.log.loading import open_log
from odradek.log.log import Log
from odradek.log.names import TopicPartition
from odradek.log.segment import Slice
from odradek.wire.batch import ATTRIBUTES_POSITION, CRC_POSITION, set_offset_and_epoch
from odradek.wire.records import Record, build

NOW_MS = 1_700_000_000_000
SEQUENCE_POSITION = 53
MB = 1_000_000
CONFIG = LogConfig(max_message_bytes=2**21)
RECORD_BYTES = 100


class Figure(NamedTuple):
    """One line of the report: what was done, how often, to how many bytes, and what it took."""

    name: str
    unit: str
    times: int
    size: int
    seconds: float
    cpu_seconds: float
    goal: str = ""


class Round:
    """Adds up the time of the parts of a round that count."""

    def __init__(self, profile: cProfile.Profile | None) -> None:
        self.profile = profile
        self.seconds = self.cpu_seconds = 0.0

    def __enter__(self) -> None:
        if self.profile:
            self.profile.enable()
        self.started = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self.started[0]
        self.cpu_seconds += time.process_time() - self.started[1]
        if self.profile:
            self.profile.disable()


class Bench:
    def __init__(self, folder: Path, *, quick: bool, only: str, profile: bool) -> None:
        self.folder = folder
        self.quick = quick
        self.only = only
        self.profile = profile

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def wants(self, name: str) -> bool:
        """Whether any figure is asked for whose name begins so."""
        return name.startswith(self.only) or self.only.startswith(name)

    def figure(
        self, name: str, unit: str, count: int, size: int, run: Callable[[Round], None], *, rounds: int = 3, goal: str = ""
    ) -> Iterator[Figure]:
        if not self.wants(name):
            return
        if self.profile:
            profile = cProfile.Profile()
            run(Round(profile))
            sys.stdout.write(f"\n== {name}, {count} times\n")
            pstats.Stats(profile, stream=sys.stdout).strip_dirs().sort_stats("tottime").print_stats(14)
            return
        taken = []
        for _ in range(rounds):
            timer = Round(None)
            run(timer)
            taken.append((timer.seconds, timer.cpu_seconds))
        yield Figure(name, unit, count, size, *min(taken), goal)

    def empty_log(self, name: str, config: LogConfig = CONFIG) -> Log:
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return open_log(RealDisk(), str(path), config, now_ms=NOW_MS, clean=True)


def batch(size: int, *, idempotent: bool = False) -> bytearray:
    """A batch of records of 100 B, of about that size."""
    count = max(size // RECORD_BYTES, 1)
    records = [
        Record(at, NOW_MS, None, random.randbytes(RECORD_BYTES - 12 if count > 1 else RECORD_BYTES)) for at in range(count)
    ]
    if not idempotent:
        return build(records)
    return build(records, producer_id=1, producer_epoch=0, base_sequence=0)


def renew(data: bytearray, sequence: int | None) -> None:
    """Makes a batch one that a client sends next."""
    set_offset_and_epoch(data, 0, 0, -1)
    if sequence is not None:
        data[SEQUENCE_POSITION : SEQUENCE_POSITION + 4] = (sequence & 0x7FFFFFFF).to_bytes(4, "big")
        crc = crc32c(memoryview(data)[ATTRIBUTES_POSITION:])
        data[CRC_POSITION : CRC_POSITION + 4] = crc.to_bytes(4, "big")


def appends(bench: Bench) -> Iterator[Figure]:
    sizes = (("1 record", 1, 100_000, 20_000), ("16 KB", 16_384, 20_000, 2_000), ("1 MB", 1_000_000, 500, 64))
    for label, size, full, quick in sizes:
        for idempotent in (False, True):
            total = bench.size(full, quick)
            template = batch(size, idempotent=idempotent)
            buffers = [bytearray(template) for _ in range(max(1, min(1000, 4 * MB // len(template))))]  # what a cache holds

            def run(timer: Round, total: int = total, buffers: list[bytearray] = buffers, idempotent: bool = idempotent) -> None:
                log = bench.empty_log("appends-0")
                sequence, done = 0, 0
                while done < total:
                    some = buffers[: total - done]
                    for data in some:
                        renew(data, sequence if idempotent else None)
                        sequence += int.from_bytes(data[57:61], "big")
                    with timer:
                        for data in some:
                            log.append(data, leader_epoch=0, now_ms=NOW_MS)
                    done += len(some)

            name = f"append, {label}{', idempotent' if idempotent else ''}"
            yield from bench.figure(name, "append", total, total * len(template), run)


def filled(bench: Bench, name: str, size: int, total: int, config: LogConfig = CONFIG) -> tuple[Log, int, int]:
    """A log of equal batches, the bytes of each and its records."""
    log, data = bench.empty_log(name, config), batch(size)
    count = int.from_bytes(data[57:61], "big")
    for _ in range(total // len(data)):
        renew(data, None)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    return log, len(data), count


def reads(bench: Bench) -> Iterator[Figure]:
    if not bench.wants("read"):
        return
    log, size, records = filled(bench, "reads-0", 16_384, bench.size(1000, 100) * MB)
    times = bench.size(50_000, 10_000)

    def tail(timer: Round) -> None:
        offset, end = log.end_offset - records, log.end_offset
        with timer:
            for _ in range(times):
                log.read(offset, 1_048_576, end)

    def tail_bytes(timer: Round) -> None:
        offset, end = log.end_offset - records, log.end_offset
        with timer:
            for _ in range(times):
                log.read(offset, 1_048_576, end).read()

    yield from bench.figure("read, tail, range only", "read", times, 0, tail)
    yield from bench.figure("read, tail, one batch of 16 KB", "read", times, times * size, tail_bytes)
    chosen = random.Random(7)
    offsets = [chosen.randrange(log.end_offset) for _ in range(times // 5)]

    def scattered(timer: Round) -> None:
        end = log.end_offset
        with timer:
            for offset in offsets:
                log.read(offset, 1_048_576, end)

    yield from bench.figure("read, random offset, range only", "read", len(offsets), 0, scattered)
    yield from sequential_reads(bench, log, size, records)


def sequential_reads(bench: Bench, log: Log, size: int, records: int) -> Iterator[Figure]:
    with open(os.devnull, "wb") as sink:

        def send(found: Slice) -> None:
            for part in found.ranges:
                position, left = part.position, part.size
                while left:
                    sent = part.file.send(sink, position, left)  # type: ignore[arg-type]  # which has a descriptor, too
                    position, left = position + sent, left - sent

        for label, batches in (("64 KB", 4), ("1 MB", 64)):
            count = log.end_offset // (batches * records)
            for way, take in (("sendfile", send), ("read", Slice.read)):

                def run(timer: Round, batches: int = batches, take: Callable[[Slice], object] = take) -> None:
                    offset, end = 0, log.end_offset
                    with timer:
                        for _ in range(end // (batches * records)):
                            take(log.read(offset, batches * size, end))
                            offset += batches * records

                yield from bench.figure(f"read, sequential {label}, {way}", "read", count, count * batches * size, run)


def open_folder(path: Path, config: LogConfig = CONFIG) -> LogFolder:
    return LogFolder(RealDisk(), str(path), lambda _: config, now_ms=NOW_MS, jitter=lambda _: 0, unique_id=lambda: "0" * 32)


def folders(bench: Bench) -> Iterator[Figure]:
    count = bench.size(1000, 200)
    for label, after, goal in (("empty", "", "1 s for 1,000"), ("of one batch", ", one more each", "")):
        names = (
            f"create {count} partitions {label}",
            f"open {count} partitions {label}",
            f"close {count} partitions {label}{after}",
        )
        if not any(map(bench.wants, names)):
            continue
        path = bench.folder / "folder"
        shutil.rmtree(path, ignore_errors=True)
        folder = open_folder(path)

        def create(timer: Round, folder: LogFolder = folder, label: str = label) -> None:
            with timer:
                for number in range(count):
                    log = folder.create(TopicPartition("topic", number), UUID(int=number + 1), NOW_MS)
                    if label != "empty":
                        log.append(batch(1, idempotent=True), leader_epoch=0, now_ms=NOW_MS)

        made = list(bench.figure(names[0], "partition", count, 0, create, rounds=1))
        if not folder.logs:
            create(Round(None))
        folder.close(NOW_MS)

        def reopen(timer: Round, path: Path = path) -> None:
            with timer:
                opened = open_folder(path)
            opened.close(NOW_MS)

        def close(timer: Round, path: Path = path, label: str = label) -> None:
            opened = open_folder(path)
            for log in opened.logs.values() if label != "empty" else ():
                log.append(batch(1), leader_epoch=0, now_ms=NOW_MS)
            with timer:
                opened.close(NOW_MS)

        yield from made
        yield from bench.figure(names[1], "partition", count, 0, reopen, goal=goal)
        yield from bench.figure(names[2], "partition", count, 0, close)


def recovery(bench: Bench) -> Iterator[Figure]:
    for label, size, full, quick in (("16 KB batches", 16_384, 512, 64), ("batches of 1 record", 1, 64, 8)):
        name = f"recover {label}"
        if not bench.wants(name):
            continue
        log, batch_bytes, _ = filled(bench, "recovery-0", size, bench.size(full, quick) * MB)
        log.close(NOW_MS)

        def run(timer: Round, folder: str = log.folder, end_offset: int = log.end_offset) -> None:
            with timer:
                found = open_log(RealDisk(), folder, CONFIG, now_ms=NOW_MS, clean=False)
            assert found.end_offset == end_offset

        yield from bench.figure(name, "batch", log.size // batch_bytes, log.size, run, rounds=2)


def compaction(bench: Bench) -> Iterator[Figure]:
    records, keys, per_batch = bench.size(1_000_000, 100_000), bench.size(100_000, 10_000), 100
    name = f"compact {records:,} records, {keys:,} keys"
    if not bench.wants(name):
        return
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=32 * 2**20)
    path, partition = bench.folder / "compaction", TopicPartition("topic", 0)
    folder = open_folder(path, config)
    log, chosen = folder.create(partition, UUID(int=1), NOW_MS), random.Random(7)
    for _ in range(records // per_batch):
        some = [Record(at, NOW_MS, b"key-%08d" % chosen.randrange(keys), b"v" * RECORD_BYTES) for at in range(per_batch)]
        log.append(build(some), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.flush(NOW_MS)
    log.move_high_watermark(log.end_offset)
    size = log.size

    def run(timer: Round) -> None:
        found = Cleaner(folder).next_job(NOW_MS)
        assert found is not None
        with timer:
            outcome = compact(folder.disk, found[1])
        assert outcome.records_read == records
        assert outcome.records_kept <= keys

    yield from bench.figure(name, "record", records, size, run, rounds=2)
    folder.close(NOW_MS)


def line(figure: Figure) -> str:
    each, cpu = figure.seconds / figure.times * 1e6, figure.cpu_seconds / figure.times * 1e6
    rate = f"{figure.size / MB / figure.seconds:10.0f}" if figure.size else " " * 10
    totals = f"{figure.times / figure.seconds:12.0f}{figure.seconds:9.2f}{figure.cpu_seconds:9.2f}"
    return f"{figure.name:44}{each:12.2f}{cpu:12.2f}{rate}{totals}  {figure.goal}"


def main() -> None:
    parser = argparse.ArgumentParser(description="How long the log takes.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--only", default="", metavar="NAME", help="only the figures whose names begin so")
    parser.add_argument("--profile", action="store_true", help="where the time goes, instead of figures")
    parser.add_argument("--folder", metavar="PATH", help="where to work; a temporary folder unless told")
    options = parser.parse_args()
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))  # a thousand logs have more files than the usual 1024
    if not options.profile:
        heads = f"{'us each':>12}{'CPU us':>12}{'MB/s':>10}{'each/s':>12}{'s':>9}{'CPU s':>9}  goal"
        sys.stdout.write(f"{'':44}{heads}\n")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(Path(folder), quick=options.quick, only=options.only, profile=options.profile)
        for part in (appends, reads, folders, recovery, compaction):
            for figure in part(bench):
                sys.stdout.write(line(figure) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
