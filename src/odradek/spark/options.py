"""The options of `format("odradek")`: those of Spark's Kafka connector under their names, and ours.

Invariants
 1. An option that is not known is refused, with the nearest one that is; so is one that does not go with the others.
 2. What a query of Spark's connector says is understood the same way here.
"""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal

from msgspec import Struct

from odradek.client.consumer_options import PROPERTIES as CONSUMER
from odradek.client.errors import InvalidOption
from odradek.client.producer_options import PROPERTIES as PRODUCER
from odradek.client.properties import Table, boolean
from odradek.client.properties import options as client_options
from odradek.client.records import TopicPartition
from odradek.wire.batch import OFFSET_MAX

KAFKA: Final = "kafka."
EARLIEST, LATEST = -2, -1  # offsets by name, as Spark's connector writes them
LIVE: Final = -3  # the end, when it is read: a plan of Spark is made once, and may be run often
Offsets = dict[TopicPartition, int]
Isolation = Literal["read_committed", "read_uncommitted"]
UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
GIVEN_BY_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname"})
WITHOUT_EFFECT: Final = frozenset(  # here: there is no consumer of a group of its own, and retries are the client's
    {
        "groupidprefix",
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "kafkaconsumercachecapacity",
    }
)
READ: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "failOnDataLoss",
    "groupId",
    "isolation",
    "keyFormat",
    "keySchema",
    "keyMessage",
    "valueFormat",
    "valueSchema",
    "valueMessage",
    "badRecords",
)
WRITE: Final = ("topic", "includeHeaders", "compression")


class Position(Struct, frozen=True):
    """Where reading begins or ends: everywhere the same (`offset` EARLIEST or LATEST, or `timestamp_ms`), where a group is, or
    as `offsets` or `timestamps` say for each partition."""

    offset: int | None = None
    timestamp_ms: int | None = None
    offsets: Offsets = {}
    timestamps: Offsets = {}
    is_group: bool = False


class Format(Struct, frozen=True):
    name: str
    schema: str | None = None
    message: str | None = None


class ReadOptions(Struct, frozen=True, kw_only=True):
    properties: dict[str, str]  # of the client
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
    start: Position = Position()
    end: Position = Position(offset=LATEST)
    is_start_strict: bool = True  # a time after all records is an error, else the end
    offsets_max: int | None = None  # of a micro-batch
    offsets_min: int | None = None
    delay_ms_max: int = 15 * 60_000  # that fewer wait
    partitions_min: int | None = None  # of a read, as far as records can be split
    records_max: int | None = None  # of one of them
    has_headers: bool = False
    fails_on_loss: bool = True
    group: str | None = None
    isolation: Isolation = "read_committed"
    key_format: Format | None = None
    value_format: Format | None = None
    bad_records: str = "fail"  # or drop, only (they are what is read), or the topic that takes them


class WriteOptions(Struct, frozen=True, kw_only=True):
    properties: dict[str, str]
    topic: str | None = None  # or the rows say


def read_options(given: Mapping[str, str], *, is_streaming: bool | None) -> ReadOptions:
    """`is_streaming` is None where that is not known: then what goes with one alone is not looked at."""
    options = Given(given, READ)
    properties = options.properties(CONSUMER)
    isolation = options.text("isolation") or properties.pop("isolation.level", "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise InvalidOption(f"isolation={isolation}: it is read_committed or read_uncommitted")
    group = options.text("groupId") or properties.pop("group.id", None)
    topics = tuple(name.strip() for name in (options.text("subscribe") or "").split(",") if name.strip())
    pattern, assign = options.text("subscribePattern"), options.text("assign")
    if sum(map(bool, (topics, pattern, assign))) != 1:
        raise InvalidOption("say what is read by one of subscribe, subscribePattern and assign")
    if pattern is not None:
        options.checked("subscribePattern", re.compile)
    if is_streaming is False:
        options.refuse("in a batch", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
    elif is_streaming:
        options.refuse("in a stream", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    strategy = (options.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise InvalidOption(f"startingOffsetsByTimestampStrategy={strategy}: it is error or latest")
    start = position(options, "starting", Position(offset=LATEST if is_streaming else EARLIEST))
    end = position(options, "ending", Position(offset=LATEST))
    if start.offset == LATEST and is_streaming is False:
        raise InvalidOption("startingOffsets=latest: a batch that begins at the end reads nothing")
    if start.is_group and group is None:
        raise InvalidOption("startingOffsets=group needs groupId, the group whose offsets are meant")
    if end.offset == EARLIEST or end.is_group or EARLIEST in end.offsets.values():
        raise InvalidOption("endingOffsets are latest, or offsets of partitions")
    delay = options.text("maxTriggerDelay")
    return ReadOptions(
        properties=properties,
        topics=topics,
        pattern=pattern,
        partitions=tuple(options.checked("assign", assigned)) if assign else (),
        start=start,
        end=end,
        is_start_strict=strategy == "error",
        offsets_max=options.number("maxOffsetsPerTrigger"),
        offsets_min=options.number("minOffsetsPerTrigger"),
        delay_ms_max=options.checked("maxTriggerDelay", milliseconds) if delay else 15 * 60_000,
        partitions_min=options.number("minPartitions"),
        records_max=options.number("maxRecordsPerPartition"),
        has_headers=options.boolean("includeHeaders", default=False),
        fails_on_loss=options.boolean("failOnDataLoss", default=True),
        group=group,
        isolation=isolation,  # type: ignore[arg-type]
        key_format=options.format("key"),
        value_format=options.format("value"),
        bad_records=options.text("badRecords") or "fail",
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    options = Given(given, WRITE)
    properties = options.properties(PRODUCER)
    if compression := options.text("compression"):
        properties["compression.type"] = compression
    return WriteOptions(properties=properties, topic=options.text("topic"))


class Given:
    """What somebody gave, by lower-case names as Spark keeps them."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self.given = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in known}
        for name in self.given:
            if name not in names and not name.startswith(KAFKA) and name not in GIVEN_BY_SPARK | WITHOUT_EFFECT:
                near = get_close_matches(name, names, 1)
                raise InvalidOption(f"there is no option {name!r} here" + (f"; did you mean {names[near[0]]}?" if near else ""))

    def properties(self, known: Table) -> dict[str, str]:
        """Of the client: looked at here, once, and not in tasks that fail."""
        found = {name.removeprefix(KAFKA): value for name, value in self.given.items() if name.startswith(KAFKA)}
        if not found.get("bootstrap.servers"):
            raise InvalidOption("kafka.bootstrap.servers is missing: host:port of a broker of the cluster, or of several")
        client_options(found, known)
        return found

    def text(self, name: str) -> str | None:
        return self.given.get(name.lower())

    def number(self, name: str) -> int | None:
        found = self.text(name)
        if found is None:
            return None
        if not found.isdecimal() or not 0 < int(found) <= OFFSET_MAX:
            raise InvalidOption(f"{name}={found}: it is a number from 1 on")
        return int(found)

    def boolean(self, name: str, *, default: bool) -> bool:
        return default if self.text(name) is None else bool(self.checked(name, boolean))

    def checked(self, name: str, read: Any) -> Any:
        found = self.text(name)
        try:
            return read(found)
        except (ValueError, TypeError, AttributeError, re.error) as error:
            raise InvalidOption(f"{name}={found}: {error}") from error

    def format(self, column: str) -> Format | None:
        name = self.text(f"{column}Format")
        if name is None or name == "binary":
            self.refuse(f"without {column}Format", f"{column}Schema", f"{column}Message")
            return None
        return Format(name, self.text(f"{column}Schema"), self.text(f"{column}Message"))

    def refuse(self, where: str, *names: str) -> None:
        for name in names:
            if self.text(name) is not None:
                raise InvalidOption(f"{name} means nothing {where}")


def position(options: Given, side: str, default: Position) -> Position:
    """The first of the options that say it, in the order of Spark's connector."""
    if (time := options.text(f"{side}Timestamp")) is not None:
        return Position(timestamp_ms=options.checked(f"{side}Timestamp", instant)) if time else default
    if options.text(f"{side}OffsetsByTimestamp") is not None:
        return Position(timestamps=options.checked(f"{side}OffsetsByTimestamp", by_partition))
    found = (options.text(f"{side}Offsets") or "").strip()
    match found.lower():
        case "":
            return default
        case "earliest":
            return Position(offset=EARLIEST)
        case "latest":
            return Position(offset=LATEST)
        case "live" if side == "ending":
            return Position(offset=LIVE)
        case "group":
            return Position(is_group=True)
    return Position(offsets=options.checked(f"{side}Offsets", by_partition))


def instant(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("it is a time in milliseconds since 1970, UTC")
    return int(text)


def by_partition(text: str) -> Offsets:
    """`{"topic": {"0": 23, "1": -2}}`"""
    return {place: int(number) for place, number in entries(json.loads(text))}


def entries(found: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[TopicPartition, Any]]:
    for topic, partitions in found.items():
        for partition, each in partitions.items():
            yield TopicPartition(topic, int(partition)), each


def assigned(text: str) -> list[TopicPartition]:
    """`{"topic": [0, 1]}`"""
    found = json.loads(text)
    return [TopicPartition(topic, int(partition)) for topic, partitions in found.items() for partition in partitions]


def milliseconds(text: str) -> int:
    """`15m`, `10s`, `500ms`"""
    found = re.fullmatch(r"(\d+)\s*([a-z]+)", text.strip().lower())
    if found is None or found[2] not in UNITS:
        raise ValueError(f"it is a number with one of {', '.join(UNITS)} after it")
    return int(found[1]) * UNITS[found[2]]


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """As Spark's connector has them in checkpoints."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return found


def from_json(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {place: int(offset) for place, offset in entries(found)}
