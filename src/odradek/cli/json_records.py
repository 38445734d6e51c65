"""Records as JSON, one a line: what `odradek consume --json` writes, `odradek produce --json` takes.

    {"key": "alice", "value": "hello", "headers": [["trace", "1"]], "partition": 0, "timestamp_ms": 1715937000000}

Bytes that are no text are {"base64": "…"}. A value that is any other JSON is sent as the text that it is. What is left out is
null; where the record goes, and when it was, is then decided as for any other. Names that a record does not have are passed over.
"""

import base64
from typing import Any, NamedTuple

import msgspec

from odradek.client.records import Headers, Record

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


class NoRecord(ValueError):
    """Says what is wrong with a line."""


class Given(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


def record_json(record: Record) -> bytes:
    return encode(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": shown(record.key),
            "value": shown(record.value),
            "headers": [[name, shown(value)] for name, value in record.headers],
        }
    )


def shown(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return bytes(content).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def read_json(line: bytes) -> Given:
    try:
        found = decode(line)
    except msgspec.DecodeError as error:
        raise NoRecord(f"it is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise NoRecord('it is no JSON object; write {"key": …, "value": …}')
    return Given(
        content(found.get("key"), "key"),
        content(found.get("value"), "value"),
        headers(found.get("headers")),
        number(found.get("partition"), "partition"),
        number(found.get("timestamp_ms"), "timestamp_ms"),
    )


def content(given: Any, name: str) -> bytes | None:
    match given:
        case None:
            return None
        case str():
            return given.encode()
        case {"base64": str(text), **more} if not more:
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as error:
                raise NoRecord(f"the base64 of its {name} cannot be read ({error})") from error
        case _:
            return encode(given)


def headers(given: Any) -> Headers:
    pairs = [*given.items()] if isinstance(given, dict) else given or []
    if not isinstance(pairs, list):
        raise NoRecord('its headers are no pairs; write [["name", "value"]] or {"name": "value"}')
    found = []
    for pair in pairs:
        match pair:
            case [str(name), value] | (str(name), value):
                found.append((name, content(value, f"header {name}")))
            case _:
                raise NoRecord('its headers are no pairs; write [["name", "value"]] or {"name": "value"}')
    return tuple(found)


def number(given: Any, name: str) -> int | None:
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 0):
        raise NoRecord(f"its {name} is no whole number from 0 on")
    return given
