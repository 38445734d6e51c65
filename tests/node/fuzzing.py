"""What a fuzzer sends: requests of every API and version with plausible values, and what becomes of them on a bad line.

A case is a list of pieces, each sent at once. Everything is drawn from dice that are made of a seed and the number of the case,
so that a case that found something can be sent again.

Invariant: whatever names what must be kept goes only into requests that read.
"""

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from odradek.api.table import handlers
from odradek.wire.apis import APIS, Api
from odradek.wire.errors import ProtocolError
from odradek.wire.frames import decode_request, encode_request
from odradek.wire.message import Message
from odradek.wire.table import Field, Schema
from tests.node.fuzzed_batches import any_batch

CLIENT_ID = "fuzz"
SENTINEL = 0x5E47  # the correlation id of a request that is sent behind a case, and never in one
FRAMES_MAX = 5
FRAME_BYTES_MIN = 8
REQUEST_BYTES_MAX = 1_000_000
PIECES_MAX = 6
WAIT_MS_MAX = 20
CHANGES_MAX = 4

KEPT_TOPIC = "kept-topic-of-the-fuzzer"
KEPT_GROUP = "kept-group-of-the-fuzzer"
TOPICS: dict[str, dict[str, str]] = {  # with their settings
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "squeezed": {"compression.type": "zstd"},
    "flushed": {"flush.messages": "1", "segment.bytes": "1048576"},
}
READING = frozenset({1, 2, 3, 9, 10, 15, 16, 18, 23, 32, 35, 46, 55, 60, 61, 74, 75})  # keys of APIs that change nothing
OBEYED = frozenset({45, 64, 80, 81})  # moves partitions, removes brokers and voters: it would only do as it is told
HARMLESS = tuple(key for key in handlers("broker") if key not in OBEYED)
OFTEN = (0,) * 6 + (1,) * 4 + (11, 14, 8)  # Produce, Fetch, JoinGroup, SyncGroup, OffsetCommit: they have the most states
WAITING = frozenset({1, 11, 14})  # Fetch, JoinGroup and SyncGroup may rightly wait for longer than the fuzzer does

OFFSETS_TOPIC = "__consumer_offsets"
TOPIC_NAMES = (*TOPICS, *TOPICS, "missing", "", ".", "no spaces", "x" * 250, "ß")
READABLE_NAMES = (*TOPIC_NAMES, OFFSETS_TOPIC, KEPT_TOPIC, KEPT_TOPIC)
KEPT = (KEPT_TOPIC, KEPT_GROUP, OFFSETS_TOPIC)
GROUPS = ("readers", "writers", "", "ß" * 30)
CONFIGS = ("retention.ms", "segment.bytes", "cleanup.policy", "max.message.bytes", "compression.type", "flush.ms", "unknown")
CONFIG_VALUES = ("", "-1", "0", "1000", "1048576", "compact", "delete", "compact,delete", "gzip", "producer", "true", "x" * 300)
FEATURES = ("metadata.version", "kraft.version", "group.version", "transaction.version", "unknown")
PARTITIONS = (0, 0, 0, 0, 1, 2, 7, -1, 2**31 - 1)
OFFSETS = (0, 0, 1, 2, 5, 100, -1, -2, -3, 2**40, 2**63 - 1, -(2**63))
EDGES = (0, 1, 2, -1, 127, 128, 255, 32767, 65535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))

INTEGERS: dict[str, Sequence[int]] = {
    "max_wait_ms": (0, 0, 1, WAIT_MS_MAX),
    "min_bytes": (0, 1, 1, 100, 2**31 - 1),
    "max_bytes": (2**31 - 1, 2**20, 100, 1, 0),
    "partition_max_bytes": (2**31 - 1, 2**20, 100, 1, 0),
    "isolation_level": (0, 1),
    "session_timeout_ms": (6000, 10_000, 30_000),
    "rebalance_timeout_ms": (1, WAIT_MS_MAX),
    "acks": (-1, -1, 1, 0, 2),
    "num_partitions": (-1, 1, 1, 2, 3, 0),
    "count": (1, 2, 3, 4, 0),
    "replication_factor": (-1, 1, 1, 2, 0),
    "session_id": (0, 0, 0, 1),
    "session_epoch": (-1, 0, 1),
    "replica_id": (-1, -1, -1, 1, -2),
    "generation_id": (-1, 0, 1, 2),
    "generation_id_or_member_epoch": (-1, -1, 0, 1),
    "timestamp": (-1, -2, -3, -4, -5, 0, 1_700_000_000_000, 2**62),
    "resource_type": (2, 2, 4, 8, 16, 32, 0, 3),
    "config_operation": (0, 1, 2, 3, 4),
    "key_type": (0, 0, 1, 2),
    "transaction_timeout_ms": (1, 60_000, 2**31 - 1),
}
STRINGS: dict[str, Sequence[str]] = {
    "group_id": GROUPS,
    "groups": GROUPS,
    "groups_names": GROUPS,
    "key": GROUPS,
    "coordinator_keys": GROUPS,
    "feature": FEATURES,
    "value": CONFIG_VALUES,
    "configuration_keys": CONFIGS,
    "protocol_type": ("consumer", "consumer", "connect", ""),
    "protocol_name": ("range", "roundrobin", ""),
    "states_filter": ("Stable", "Empty", "nonsense"),
    "types_filter": ("classic", "consumer", "nonsense"),
    "group_instance_id": ("static-1", "static-2", ""),
    "transactional_id": ("payments", ""),
    "client_software_name": ("fuzz", "no spaces"),
    "client_software_version": ("1", ""),
    "cluster_id": ("cluster", ""),
}


class World:
    """What requests can speak of: the topics' ids, and what answers told of groups and sessions."""

    def __init__(self) -> None:
        self.topic_ids: dict[str, bytes] = {}
        self.member_ids: list[str] = [""]
        self.session_ids: list[int] = [0]


class Case(NamedTuple):
    frames: list[bytes]  # as a healthy client would have sent them, without their sizes
    pieces: list[bytes]
    is_healthy: bool  # nothing was changed

    @property
    def stream(self) -> bytes:
        return b"".join(self.pieces)


class Requests:
    """Plausible requests, by the table of messages."""

    def __init__(self, dice: random.Random, world: World) -> None:
        self.dice = dice
        self.world = world

    def frame(self, number: int) -> bytes:
        api = APIS[self.dice.choice((*HARMLESS, *OFTEN))]
        version = self.dice.choice(api.served)
        request = self._message(api, version)
        return b"".join(encode_request(request, version, number, CLIENT_ID))[4:]  # type: ignore[arg-type]

    def _message(self, api: Api, version: int) -> Message:
        schema = api.request.schema
        return self._struct(schema, schema, api.request, version)  # type: ignore[no-any-return]

    def _struct(self, message: Schema, part: Schema, cls: Any, version: int) -> Any:
        made = {}
        for field in part.fields:
            if version in field.versions and not (version in field.tagged and self.dice.random() < 0.5):
                made[field.attribute] = self._field(message, part, field, cls, version)
        return cls(**made)

    def _field(self, message: Schema, part: Schema, field: Field, cls: Any, version: int) -> Any:
        dice = self.dice
        if version in field.nullable and dice.random() < 0.15:
            return None
        if field.is_struct:
            struct, made = message.structs[field.type], getattr(APIS[message.key].request, field.type)
            if not field.is_array:
                return self._struct(message, struct, made, version)
            return [self._struct(message, struct, made, version) for _ in range(dice.choice((0, 1, 1, 1, 2, 3)))]
        if field.is_array:
            return [self._value(message, part, field) for _ in range(dice.choice((0, 1, 1, 2)))]
        return self._value(message, part, field)

    def _value(self, message: Schema, part: Schema, field: Field) -> Any:
        dice, name = self.dice, field.attribute
        is_reading = message.key in READING
        match field.type:
            case "bool":
                return dice.random() < 0.5
            case "uuid":
                ids = [*self.world.topic_ids.items(), ("", bytes(16)), ("", b"\x07" * 16)]
                return dice.choice([found for topic, found in ids if is_reading or topic not in KEPT])
            case "records":
                return any_batch(dice)
            case "bytes":
                return dice.randbytes(dice.choice((0, 1, 20)))
            case "string":
                return self._string(part, name, READABLE_NAMES if is_reading else TOPIC_NAMES)
            case _:
                return self._integer(field.type, name)

    def _string(self, part: Schema, name: str, topics: Sequence[str]) -> str:
        if name == "member_id":
            return self.dice.choice(self.world.member_ids[-8:])
        if name == "resource_name":
            return self.dice.choice((*topics, "1", ""))
        if name == "name":
            return self.dice.choice(CONFIGS if "Config" in part.name and "Resource" not in part.name else topics)
        if name in ("topic", "topic_name", "topic_names"):
            return self.dice.choice(topics)
        return self.dice.choice(STRINGS.get(name, ("", "text", "ß" * 100)))

    def _integer(self, kind: str, name: str) -> int:
        dice = self.dice
        if name == "session_id" and dice.random() < 0.5:
            return dice.choice(self.world.session_ids[-8:])
        if name in INTEGERS:
            choices = INTEGERS[name]
        elif "offset" in name or name == "high_watermark":
            choices = OFFSETS
        elif "partition" in name or name == "index":
            choices = PARTITIONS
        elif name.endswith("timeout_ms"):
            choices = (0, 1, WAIT_MS_MAX)
        elif "epoch" in name:
            choices = (-1, -1, -1, 0, 1)
        else:
            choices = (*EDGES[:4], 1)
        bits = int(kind.lstrip("uint"))
        low, high = (0, (1 << bits) - 1) if kind.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)
        return min(max(dice.choice(choices), low), high)


# -- bad lines


def flip(data: bytearray, dice: random.Random) -> None:
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def overwrite(data: bytearray, dice: random.Random) -> None:
    """Puts a number there that is at the edge of something: lengths and counts are everywhere."""
    layout = dice.choice((">b", ">h", ">i", ">q"))
    size = struct.calcsize(layout)
    if len(data) > size:
        value = dice.choice(EDGES) & (1 << 8 * size) - 1
        at = dice.randrange(len(data) - size)
        data[at : at + size] = value.to_bytes(size, "big")


def cut(data: bytearray, dice: random.Random) -> None:
    del data[dice.randrange(len(data)) :]


def leave_out(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(len(data))
    del data[at : at + dice.choice((1, 1, 2, 4, 30))]


def put_in(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.choice((dice.randbytes(dice.choice((1, 4, 50))), b"\xff" * 10, bytes(8)))


def repeat(data: bytearray, dice: random.Random) -> None:
    at = dice.randrange(len(data))
    data[at:at] = data[at : at + dice.choice((1, 4, 20, 200))] * dice.choice((1, 2, 50))


def swap(data: bytearray, dice: random.Random) -> None:
    size = dice.choice((1, 2, 4, 16))
    if len(data) > 2 * size:
        first, second = sorted(dice.sample(range(len(data) - size), 2))
        one, other = data[first : first + size], data[second : second + size]
        data[first : first + size] = other
        data[second : second + size] = one


def claim(data: bytearray, dice: random.Random) -> None:
    """Another API or version in the header."""
    if len(data) >= FRAME_BYTES_MIN:
        key = dice.choice((*HARMLESS, *APIS, -1, 99))
        struct.pack_into(">hh", data, 0, key, dice.choice((0, 1, 3, 5, 9, 12, 18, -1, 99)))


CHANGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip,
    flip,
    flip,
    overwrite,
    overwrite,
    cut,
    leave_out,
    put_in,
    repeat,
    swap,
    claim,
)


def changed(frame: bytes, dice: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(dice.randint(1, CHANGES_MAX)):
        if data:
            dice.choice(CHANGES)(data, dice)
    return bytes(data)


def is_allowed(stream: bytes, world: World) -> bool:
    """Whether what must be kept is named only where nothing can happen to it."""
    kept = [name.encode() for name in KEPT] + [found for name, found in world.topic_ids.items() if name in KEPT]
    if not any(name in stream for name in kept):
        return True
    frames, _ = split(stream)
    return all(
        int.from_bytes(frame[:2], "big") in READING for frame in frames if len(frame) > 2 and any(name in frame for name in kept)
    )


def split(stream: bytes) -> tuple[list[bytes], int | None]:
    """The whole frames of a stream, and how many bytes of the last are missing; None when a size is impossible."""
    frames: list[bytes] = []
    position = 0
    while len(stream) - position >= 4:
        size = int.from_bytes(stream[position : position + 4], "big", signed=True)
        if size < FRAME_BYTES_MIN or size > REQUEST_BYTES_MAX:
            return frames, None
        end = position + 4 + size
        if end > len(stream):
            return frames, end - len(stream)
        frames.append(stream[position + 4 : end])
        position = end
    return frames, 4 - (len(stream) - position) if position < len(stream) else 0


def torn(stream: bytes, dice: random.Random) -> list[bytes]:
    ends = sorted(dice.randrange(len(stream) + 1) for _ in range(dice.choice((0, 0, 0, 1, PIECES_MAX - 1))))
    return [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]


def make_case(dice: random.Random, world: World) -> Case:
    """One case: some requests, healthy or not."""
    requests = Requests(dice, world)
    is_healthy = dice.random() < 0.25
    while True:
        frames = [requests.frame(number) for number in range(dice.choice((1, 1, 1, 1, 2, FRAMES_MAX)))]
        stream = b""
        for frame in frames:
            data = frame if is_healthy or dice.random() < 0.2 else changed(frame, dice)
            size = len(data)
            if not is_healthy and dice.random() < 0.1:
                size = dice.choice((len(frame), size + 1, size - 1, *EDGES[:8], REQUEST_BYTES_MAX, REQUEST_BYTES_MAX + 1))
            stream += struct.pack(">i", min(max(size, -(2**31)), 2**31 - 1)) + data
            if not is_healthy and dice.random() < 0.05:
                stream += dice.randbytes(dice.choice((1, 3, 4, 100)))
        if is_allowed(stream, world):
            return Case(frames, torn(stream, dice), is_healthy)


def decoded(frame: bytes) -> tuple[int, int, Message] | None:
    """Key, version and message of a frame that is a request; None when it is none."""
    key, version = struct.unpack_from(">hh", frame)
    handler = handlers("broker").get(key)
    if handler is None or version not in handler.versions:
        return None
    try:
        return key, version, decode_request(frame)[1]
    except ProtocolError:
        return None
