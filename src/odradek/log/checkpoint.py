"""The small text files of a log folder, each as Kafka writes it.

    recovery-point-offset-checkpoint …   a line with the version, one with the count, rows "topic partition offset"
    .kafka_cleanshutdown                 there only after a clean stop; holds the epoch that the broker had
    partition.metadata                   the topic's id, in the folder of each partition

Invariants
 1. A file is replaced as a whole: after a crash it holds what it held before or what it holds now.
 2. What cannot be understood raises `CorruptFile` and is never guessed at; only the clean-shutdown mark is read
    leniently, because its being there is what counts.
"""

import base64
import json
import re
from collections.abc import Mapping
from uuid import UUID

from odradek.log.config import INT32_MAX, INT64_MAX
from odradek.log.disk import Disk, replace_file
from odradek.log.names import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"

VERSION = 0
BROKER_EPOCH_UNKNOWN = -1

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_SPACES = re.compile(r"\s+", re.ASCII)
_LINE_END = re.compile(r"\r\n|\n|\r")
_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(==)?")


class CorruptFile(ValueError):
    """A file of the log folder that is not what was written: which one, where in it, and what is wrong."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """An offset for each partition. A file that is not there, or empty, has none."""
    offsets = {}
    for line, (topic, partition, offset) in enumerate(read_rows(disk, path, 3), start=3):
        key = TopicPartition(topic, read_number(path, line, partition, INT32_MAX))
        offsets[key] = read_number(path, line, offset, INT64_MAX)
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    replace_file(disk, path, format_offsets(offsets))


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return format_rows([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def read_rows(disk: Disk, path: str, columns: int) -> list[list[str]]:
    """The rows of a checkpoint: what follows the version and the count, split at spaces."""
    try:
        lines = split_lines(path, disk.read(path))
    except FileNotFoundError:
        return []
    if not lines:
        return []
    version = read_number(path, 1, lines[0], INT32_MAX)
    if version != VERSION:
        raise CorruptFile(path, 1, f"version {version}, where only {VERSION} is known")
    if len(lines) == 1:
        return []
    count = read_number(path, 2, lines[1], INT32_MAX)
    rows = [_SPACES.split(line.rstrip(" \t\v\f")) for line in lines[2:]]
    for number, row in enumerate(rows, start=3):
        if len(row) != columns:
            raise CorruptFile(path, number, f"{len(row)} columns, where a row has {columns}")
    if len(rows) != count:
        raise CorruptFile(path, 2, f"{count} rows announced, {len(rows)} there")
    return rows


def format_rows(rows: list[str]) -> bytes:
    return "\n".join([str(VERSION), str(len(rows)), *rows, ""]).encode()


def split_lines(path: str, content: bytes) -> list[str]:
    try:
        lines = _LINE_END.split(content.decode())
    except UnicodeDecodeError as error:
        raise CorruptFile(path, content[: error.start].count(b"\n") + 1, "not UTF-8") from error
    return lines if lines[-1] else lines[:-1]


def read_number(path: str, line: int, text: str, limit: int) -> int:
    if not _NUMBER.fullmatch(text) or not -limit - 1 <= int(text) <= limit:
        raise CorruptFile(path, line, f"{text!r} is no number up to {limit}")
    return int(text)


def read_clean_shutdown(disk: Disk, path: str) -> int | None:
    """None when the last stop was not clean; else the broker's epoch then, -1 when the mark does not say."""
    try:
        content = disk.read(path)
    except FileNotFoundError:
        return None
    try:
        mark, _ = json.JSONDecoder().raw_decode(content.decode().lstrip())
        return int(mark["brokerEpoch"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return BROKER_EPOCH_UNKNOWN


def write_clean_shutdown(disk: Disk, path: str, broker_epoch: int) -> None:
    replace_file(disk, path, b'{"version":%d,"brokerEpoch":%d}' % (VERSION, broker_epoch))


def read_partition_metadata(disk: Disk, path: str) -> UUID | None:
    """The topic's id, or None when the file is not there. A later version is read too, as far as we know it."""
    try:
        lines = split_lines(path, disk.read(path))
    except FileNotFoundError:
        return None
    version = read_number(path, 1, _after_colon(path, lines, 1), INT32_MAX)
    if version < VERSION:
        raise CorruptFile(path, 1, f"version {version}")
    topic_id = read_uuid(path, 2, _after_colon(path, lines, 2))
    if topic_id.int == 0:
        raise CorruptFile(path, 2, "the topic id is zero")
    return topic_id


def _after_colon(path: str, lines: list[str], line: int) -> str:
    parts = re.split(r":\s+", lines[line - 1], flags=re.ASCII) if line <= len(lines) else []
    if len(parts) != 2 or not parts[1]:
        raise CorruptFile(path, line, "not of the form 'name: value'")
    return parts[1]


def partition_metadata(topic_id: UUID) -> bytes:
    """The content of the file that says to which topic a log belongs."""
    assert topic_id.int
    return f"version: {VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()


def write_partition_metadata(disk: Disk, path: str, topic_id: UUID) -> None:
    replace_file(disk, path, partition_metadata(topic_id))


def uuid_text(value: UUID) -> str:
    """An id as Kafka prints it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def read_uuid(path: str, line: int, text: str) -> UUID:
    if not _UUID_TEXT.fullmatch(text):
        raise CorruptFile(path, line, f"{text!r} is no id")
    return UUID(bytes=base64.urlsafe_b64decode(text[:22] + "=="))
