"""How fast records become Arrow and Arrow becomes batches, beside the plain decoder and builder of the wire.

python bench/arrow.py [--quick]

Values are random letters, which compress about as text does; keys are 10 bytes. Megabytes are those of the batches
uncompressed, whatever the codec. A figure is the best of several rounds by the CPU time of the process, for others work on
the machine too. Batches have 1 MB, as a producer that has much to say sends them; one line of each has 16 KB, Kafka's default.
"""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa

from odradek.client.arrow.decode import decode
from odradek.client.arrow.encode import encode
from odradek.wire.batch import check, headers, set_offset_and_epoch, set_producer
from odradek.wire.compression import Codec
from odradek.wire.records import Record, build, records

QUICK: Final = "--quick" in sys.argv
BYTES: Final = (4 if QUICK else 32) * 1_000_000
ROUNDS: Final = 3 if QUICK else 9
ROUNDS_PLAIN: Final = 1 if QUICK else 2
NOW_MS: Final = 1_700_000_000_000
PARTITIONS: Final = 12
CODECS: Final = (Codec.NONE, Codec.LZ4, Codec.ZSTD)


def rows(size: int) -> pa.Table:
    """Random letters, of which some come more often than others."""
    chance = random.Random(size)
    letters = b"eeeeeeeettttttaaaaaooooiiiinnnnsssshhhrrrdddlllcccuuummmwwffggyyppbbvk ,.{}:0123456789"
    text = bytes(chance.choices(letters, k=1_000_000))
    count = BYTES // size
    starts = [chance.randrange(len(text) - size) for _ in range(count)]
    keys = [b"key-%06d" % chance.randrange(1_000_000) for _ in range(count)]
    return pa.table({"key": keys, "value": [text[start : start + size] for start in starts]})


def log_of(table: pa.Table, codec: Codec, batch_size: int) -> tuple[bytes, int]:
    """The batches of one partition with their offsets, and their size before they were compressed."""
    log = bytearray()
    offset = 0
    plain = sum(len(batch.data) for batch in encode(table, 1, now_ms=NOW_MS, batch_size=batch_size).batches)
    for batch in encode(table, 1, now_ms=NOW_MS, codec=codec, batch_size=batch_size).batches:
        set_offset_and_epoch(batch.data, 0, offset, 0)
        offset += batch.record_count
        log += batch.data
    return bytes(log), plain


def best_seconds(run: Callable[[], object], rounds: int) -> float:
    run()
    return min(_cpu_seconds(run) for _ in range(rounds))


def _cpu_seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def plain_decode(log: bytes) -> list[Record]:
    found: list[Record] = []
    for position, header in headers(log):
        check(log, position, header)
        found.extend(records(log, position, header))
    return found


def plain_encode(table: pa.Table, codec: Codec, batch_rows: int) -> list[bytearray]:
    keys, values = table.column("key").to_pylist(), table.column("value").to_pylist()
    return [
        build([Record(n, NOW_MS, key, value) for n, (key, value) in enumerate(part)], codec=codec)
        for start in range(0, len(keys), batch_rows)
        if (part := list(zip(keys[start : start + batch_rows], values[start : start + batch_rows])))
    ]


def encode_all(table: pa.Table, codec: Codec, partitions: int, stamped: bool = False) -> None:
    for batch in encode(table, partitions, now_ms=NOW_MS, codec=codec).batches:
        if stamped:
            set_producer(batch.data, 0, 1, 0, 0, transactional=False)


def figures(size: int) -> Iterator[tuple[str, float, int, int]]:
    """Name, seconds, bytes and records of each run."""
    table = rows(size)
    batch_rows = (1 << 20) // size
    for codec in CODECS:
        log, plain = log_of(table, codec, 1 << 20)
        read = partial(decode, log, "events", 0)
        runs: dict[str, tuple[Callable[[], object], int]] = {
            "decode, all columns": (read, ROUNDS),
            "decode, value only": (partial(read, columns=["value"]), ROUNDS),
            "decode, value only, no CRC": (partial(read, columns=["value"], check_crcs=False), ROUNDS),
            "decode, plain Python": (partial(plain_decode, log), ROUNDS_PLAIN),
            "encode, 1 partition": (partial(encode_all, table, codec, 1), ROUNDS),
            f"encode, {PARTITIONS} partitions, stamped": (partial(encode_all, table, codec, PARTITIONS, stamped=True), ROUNDS),
            "encode, plain Python": (partial(plain_encode, table, codec, batch_rows), ROUNDS_PLAIN),
        }
        for name, (run, rounds) in runs.items():
            yield f"{size} B {codec.name.lower()}, {name}", best_seconds(run, rounds), plain, table.num_rows
    log, plain = log_of(table, Codec.NONE, 16 * 1024)
    seconds = best_seconds(partial(decode, log, "events", 0), ROUNDS)
    yield f"{size} B none in 16 KB, decode, all columns", seconds, plain, table.num_rows


def import_seconds(module: str, cache: str) -> float:
    """How long a new process imports a module, besides what it takes to import numba and Arrow."""
    program = (
        "import time, numba.extending, pyarrow.compute; start = time.perf_counter(); "
        f"import odradek.client.arrow.{module}; print(time.perf_counter() - start)"
    )
    environment = {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    out = sys.stdout
    out.write(f"{'':48}{'MB/s':>10}{'k records/s':>14}{'ns/record':>12}\n")
    for size in (100, 1000):
        for name, seconds, byte_count, count in figures(size):
            out.write(f"{name:48}{byte_count / seconds / 1e6:10.0f}{count / seconds / 1e3:14.0f}{seconds / count * 1e9:12.1f}\n")
            out.flush()
    with TemporaryDirectory() as cache:
        for module in ("decode", "encode"):
            first, later = import_seconds(module, cache), import_seconds(module, cache)
            out.write(f"{module} is compiled in {first:.1f} s, and loaded from the cache in {later:.2f} s\n")


if __name__ == "__main__":
    main()
