"""Rows as records: a key, a value, and where they go.

A frame of records already (a column `value`, and none but those that records have) stays as it is; any other becomes JSON.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from odradek.client.errors import InvalidOption

DELETED: Final = "_deleted"  # a row of a table that has it, and true in it, deletes its key
RECORD: Final = frozenset({"key", "value", "headers", "timestamp", "partition", "topic"})
Key = str | Column | Sequence[str] | None


def records(frame: DataFrame, key: Key, *, topic: str | None, is_table: bool = False) -> DataFrame:
    columns = [name for name in frame.columns if name != DELETED]
    is_raw = "value" in columns and set(columns) <= RECORD
    if is_table and key is None and "key" not in columns:
        raise InvalidOption("a table has a key: say which column it is")
    if topic is None and "topic" not in columns:
        raise InvalidOption("name the topic, or give rows a column topic")
    found = {name: F.col(name) for name in columns if is_raw}
    if not is_raw:
        found["value"] = F.to_json(F.struct(*[F.col(quoted(name)) for name in columns if name != "topic" or topic is not None]))
        if topic is None:
            found["topic"] = F.col("topic")
    if key is not None:
        found["key"] = key_of(frame, key)
    if is_table and DELETED in frame.columns:
        found["value"] = F.when(~F.coalesce(F.col(DELETED), F.lit(False)), found["value"])
    return frame.select(*[column.alias(name) for name, column in found.items()])


def key_of(frame: DataFrame, key: Key) -> Column:
    if isinstance(key, Column):
        return key
    if isinstance(key, str):
        kind = dict(frame.dtypes).get(key)
        if kind is None:
            raise InvalidOption(f"key={key!r}: there is no such column; there are {', '.join(frame.columns)}")
        return F.col(quoted(key)) if kind == "binary" else F.col(quoted(key)).cast("string")
    assert key is not None
    return F.to_json(F.struct(*[F.col(quoted(name)) for name in key]))


def quoted(name: str) -> str:
    return f"`{name}`"
