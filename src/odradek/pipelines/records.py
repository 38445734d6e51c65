"""Rows as records: a key, a value, and where they go.

A frame of records already (a column `value`, and none but those that records have) stays as it is; any other becomes JSON.
Where a row came from (`_topic`, `_offset` and so on) is no part of a value; `_key` stays the key, where no other is named.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from odradek.client.errors import InvalidOption
from odradek.pipelines.topics import HEADERS, PLACE
from odradek.spark.columns import WRITTEN

DELETED: Final = "_deleted"  # a row of a table that has it, and true in it, deletes its key
ORIGIN: Final = frozenset({*PLACE.values(), HEADERS})
BYTES: Final = ("binary", "string")
Key = str | Column | Sequence[str] | None


def records(frame: DataFrame, key: Key, *, topic: str | None, is_table: bool = False) -> DataFrame:
    columns = [name for name in frame.columns if name != DELETED and name not in ORIGIN]
    is_raw = "value" in columns and set(columns) <= WRITTEN
    check_value(dict(frame.dtypes), columns, is_raw=is_raw)
    if key is None and PLACE["key"] in frame.columns and not (is_raw and "key" in columns):
        key = PLACE["key"]
    if is_table and key is None and "key" not in columns:
        raise InvalidOption("a table has a key: say which column it is")
    if topic is None and "topic" not in columns:
        raise InvalidOption("name the topic, or give rows a column topic")
    found = {name: key_of(frame, name) if name == "key" else F.col(name) for name in columns if is_raw}
    if not is_raw:
        found["value"] = F.to_json(F.struct(*[F.col(quoted(name)) for name in columns if name != "topic" or topic is not None]))
        if topic is None:
            found["topic"] = F.col("topic")
    if key is not None:
        found["key"] = key_of(frame, key)
    if is_table and DELETED in frame.columns:
        found["value"] = F.when(~F.coalesce(F.col(DELETED), F.lit(False)), found["value"])
    return frame.select(*[column.alias(name) for name, column in found.items()])


def check_value(kinds: dict[str, str], columns: Sequence[str], *, is_raw: bool) -> None:
    if not columns:
        raise InvalidOption("there is no column to write; what begins with _ says where a row came from: give it another name")
    if is_raw and kinds["value"] not in BYTES:
        raise InvalidOption(
            f"value is {kinds['value']}: cast it to string, or give it another name, and rows are written as JSON"
        )


def key_of(frame: DataFrame, key: Key) -> Column:
    if isinstance(key, Column):
        return key
    if isinstance(key, str):
        kind = dict(frame.dtypes).get(key)
        check_key(key, frame.columns)
        return F.col(quoted(key)) if kind == "binary" else F.col(quoted(key)).cast("string")
    assert key is not None
    for name in key:
        check_key(name, frame.columns)
    return F.to_json(F.struct(*[F.col(quoted(name)) for name in key]))


def check_key(name: str, columns: Sequence[str]) -> None:
    if name not in columns:
        raise InvalidOption(f"key={name!r}: there is no such column; there are {', '.join(columns)}")


def quoted(name: str) -> str:
    return f"`{name}`"
