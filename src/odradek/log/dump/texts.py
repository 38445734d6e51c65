"""The small files of a log folder that hold text: checkpoints, properties and JSON.

They are read leniently on purpose: what is there is shown up to the first line that cannot be right.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from odradek.log.checkpoint import (
    VERSION,
    CorruptFile,
    read_number,
    read_partition_metadata,
    split_lines,
)
from odradek.log.config import INT32_MAX, INT64_MAX
from odradek.log.disk import Disk
from odradek.log.dump.damage import Damaged
from odradek.log.dump.rows import LeaderEpoch, Offset, Properties, Row
from odradek.log.meta_properties import parse_properties, read_meta_properties


def offset_rows(path: str, content: bytes, limit: int | None = None) -> Iterator[Row]:
    """A checkpoint with an offset for each partition."""
    for number, (topic, partition, offset) in islice(_rows(path, content, 3), limit):
        with_partition = _number(path, content, number, partition, INT32_MAX)
        yield Offset(file=path, topic=topic, partition=with_partition, offset=_number(path, content, number, offset, INT64_MAX))


def leader_epoch_rows(path: str, content: bytes, limit: int | None = None) -> Iterator[Row]:
    for number, (epoch, start) in islice(_rows(path, content, 2), limit):
        start_offset = _number(path, content, number, start, INT64_MAX)
        yield LeaderEpoch(file=path, epoch=_number(path, content, number, epoch, INT32_MAX), start_offset=start_offset)


def _rows(path: str, content: bytes, columns: int) -> Iterator[tuple[int, list[str]]]:
    """The rows behind version and count, each with the number of its line."""
    lines = _lines(path, content)
    if not lines:
        return
    version = _number(path, content, 1, lines[0], INT32_MAX)
    if version != VERSION:
        raise Damaged(0, f"version {version}, where only {VERSION} is known")
    count = _number(path, content, 2, lines[1], INT32_MAX) if len(lines) > 1 else 0
    for number, line in enumerate(lines[2:], start=3):
        row = line.split()
        if len(row) != columns:
            raise Damaged(_position(content, number), f"line {number} has {len(row)} columns, where a row has {columns}")
        yield number, row
    if len(lines) > 1 and len(lines) - 2 != count:
        raise Damaged(_position(content, 2), f"line 2 announces {count} rows, {len(lines) - 2} are there")


def _lines(path: str, content: bytes) -> list[str]:
    with _positions(content):
        return split_lines(path, content)


def _number(path: str, content: bytes, line: int, text: str, limit: int) -> int:
    with _positions(content):
        return read_number(path, line, text, limit)


def _position(content: bytes, line: int) -> int:
    """Where a line begins."""
    position = 0
    for _ in range(line - 1):
        position = content.find(b"\n", position) + 1
    return position


def partition_metadata_rows(disk: Disk, path: str, content: bytes) -> Iterator[Row]:
    pairs = [line.partition(":") for line in _lines(path, content)]
    yield Properties(file=path, properties={name: value.strip() for name, colon, value in pairs if colon})
    with _positions(content):
        read_partition_metadata(disk, path)


def meta_properties_rows(disk: Disk, path: str, content: bytes) -> Iterator[Row]:
    with _positions(content):
        yield Properties(file=path, properties=dict(parse_properties(path, content)[1]))
        read_meta_properties(disk, path)


@contextmanager
def _positions(content: bytes) -> Iterator[None]:
    """Turns the line of a CorruptFile into a byte."""
    try:
        yield
    except CorruptFile as error:
        raise Damaged(_position(content, error.line), f"line {error.line}: {error.reason}") from None


def json_rows(path: str, content: bytes, *, may_be_empty: bool) -> Iterator[Row]:
    """quorum-state and .kafka_cleanshutdown. The latter may be empty: that it is there says it all."""
    if may_be_empty and not content.strip():
        yield Properties(file=path, properties={})
        return
    try:
        found = json.loads(content.decode())
    except UnicodeDecodeError as error:
        raise Damaged(error.start, "not UTF-8") from None
    except json.JSONDecodeError as error:
        position = len(content.decode()[: error.pos].encode())
        raise Damaged(position, f"no JSON: {error.msg}") from None
    except RecursionError:
        raise Damaged(0, "no JSON: nested too deeply") from None
    if not isinstance(found, dict):
        raise Damaged(0, "not a JSON object")
    yield Properties(file=path, properties=found)
