"""`meta.properties`: to which cluster and node a log folder belongs, and the folder's own id.

A file of Java properties with Kafka's keys. Version 0 (of ZooKeeper's days) calls the node `broker.id` and may lack
everything; version 1 has `cluster.id` and `node.id` always, and `directory.id` since Kafka 3.7.

Invariants
 1. Keys that we do not know are kept when the file is written again.
 2. What is written is ASCII, so that Java reads the same in both of its encodings.
"""

import re
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from odradek.log.checkpoint import CorruptFile, read_number, read_uuid, uuid_text
from odradek.log.config import INT32_MAX
from odradek.log.disk import Disk, replace_file

META_PROPERTIES = "meta.properties"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
UNESCAPES = {value: "\\" + letter for letter, value in ESCAPES.items()} | {sign: "\\" + sign for sign in "\\=:#!"}
KNOWN_KEYS = frozenset({"version", "cluster.id", "node.id", "broker.id", "directory.id"})

_NATURAL_LINE = re.compile(r"\r\n|\n|\r")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(u)|(.)|$)", re.DOTALL)


class MetaProperties(NamedTuple):
    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: UUID | None
    other: dict[str, str]


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """None when the folder has none yet. CorruptFile when it cannot be understood."""
    try:
        content = disk.read(path)
    except FileNotFoundError:
        return None
    lines, values = parse_properties(path, content)

    def number(key: str) -> int | None:
        return read_number(path, lines[key], values[key], INT32_MAX) if key in values else None

    version = read_number(path, lines["version"], values["version"].strip(), INT32_MAX) if "version" in values else 0
    if version not in (0, 1):
        raise CorruptFile(path, lines["version"], f"version {version}, where 0 and 1 are known")
    node_id = number("broker.id" if version == 0 else "node.id")
    cluster_id = values.get("cluster.id")
    if version == 1 and (node_id is None or cluster_id is None):
        raise CorruptFile(path, 1, f"{'node.id' if node_id is None else 'cluster.id'} is missing")
    directory_id = None
    if "directory.id" in values:
        directory_id = read_uuid(path, lines["directory.id"], values["directory.id"])
    other = {key: value for key, value in values.items() if key not in KNOWN_KEYS}
    return MetaProperties(version, cluster_id, node_id, directory_id, other)


def write_meta_properties(disk: Disk, path: str, meta: MetaProperties, now_ms: int) -> None:
    values: dict[str, str] = {}  # in the order in which Java's hash table has them
    if meta.node_id is not None:
        values["broker.id" if meta.version == 0 else "node.id"] = str(meta.node_id)
    if meta.directory_id is not None:
        values["directory.id"] = uuid_text(meta.directory_id)
    values["version"] = str(meta.version)
    if meta.cluster_id is not None:
        values["cluster.id"] = meta.cluster_id
    values |= meta.other
    replace_file(disk, path, format_properties(values, now_ms))


def format_properties(values: dict[str, str], now_ms: int) -> bytes:
    """As Java's Properties.store writes them, with its empty comment and its date."""
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    date = f"{DAYS[now.weekday()]} {MONTHS[now.month - 1]} {now:%d %H:%M:%S} UTC {now.year}"
    rows = [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in values.items()]
    return "\n".join(["#", f"#{date}", *rows, ""]).encode("ascii")


def _escape(text: str, *, key: bool) -> str:
    escaped = []
    for position, sign in enumerate(text):
        if sign == " ":
            escaped.append("\\ " if key or position == 0 else " ")
        elif sign in UNESCAPES:
            escaped.append(UNESCAPES[sign])
        elif " " < sign <= "~":
            escaped.append(sign)
        else:
            units = sign.encode("utf-16-be", "surrogatepass")
            escaped += [f"\\u{int.from_bytes(units[at : at + 2]):04X}" for at in range(0, len(units), 2)]
    return "".join(escaped)


def parse_properties(path: str, content: bytes) -> tuple[dict[str, int], dict[str, str]]:
    """The lines on which the keys stand, and their values."""
    lines: dict[str, int] = {}
    values: dict[str, str] = {}
    natural = _NATURAL_LINE.split(content.decode("latin-1"))
    is_line = natural[-1] or content.endswith(b"\r\n")  # behind the last end of one; Java sees one after these two
    end = len(natural) if is_line else len(natural) - 1
    logical, first = "", 0
    for number, line in enumerate(natural[:end], start=1):
        line = line.lstrip(" \t\f")
        if not logical:
            if not line or line[0] in "#!":
                continue
            first = number
        logical += line
        if (len(line) - len(line.rstrip("\\"))) % 2:  # it goes on in the next line, if there is one
            logical = logical[:-1]
            if number < end:
                continue
        key, value = _split(path, first, logical)
        lines[key], values[key] = first, value
        logical = ""
    return lines, values


def _split(path: str, line: int, text: str) -> tuple[str, str]:
    key = _KEY.match(text)
    assert key is not None  # it matches the empty text too
    separator = _SEPARATOR.match(text, key.end())
    assert separator is not None
    return _unescape(path, line, key[0]), _unescape(path, line, text[separator.end() :])


def _unescape(path: str, line: int, text: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[2]:
            raise CorruptFile(path, line, "a \\u that four hexadecimal digits do not follow")
        if match[1]:
            return chr(int(match[1], 16))
        return ESCAPES.get(match[3], match[3]) if match[3] else ""

    text = _ESCAPE.sub(value, text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # pairs of units become one character
