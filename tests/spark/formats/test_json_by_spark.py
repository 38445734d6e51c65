"""JSON as Spark's own from_json reads it: the same rows, but for the differences that `json_rows` names."""

import os
import pickle
import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from odradek.spark.formats import decoder
from odradek.spark.formats.ddl import parse

DDL = (
    "b boolean, y tinyint, i int, l bigint, f float, d double, s string, t timestamp, z timestamp_ntz, a date, m decimal(10,2), "
    "n binary, r array<int>, o struct<i: int, s: string>, p map<string,int>, `x y` int"
)
SAME = [
    "{}",
    "",
    "  ",
    '{"b": true, "y": -128, "i": 5, "l": 9223372036854775807, "f": 0.1, "d": 1, "s": "a\\u00e9", "x y": 3}',
    '{"d": 1.5e3, "f": 3}',
    '{"d": "NaN", "f": "-INF"}',
    '{"d": "Infinity"}',
    '{"s": 1.5}',
    '{"s": {"a":[1,2]}}',
    '{"s": true}',
    '{"s": null}',
    '{"S": "a", "unknown": {"deep": [1]}}',
    '{"t": "2024-03-01T12:00:00Z"}',
    '{"t": "2024-03-01T12:00:00"}',
    '{"t": "2024-03-01 12:00:00.5"}',
    '{"t": "2024-03-01T14:00:00.123456+02:00"}',
    '{"t": "2024-03-01T12:00:00.123456789Z"}',
    '{"t": "2024-03-01"}',
    '{"t": "0001-01-01T00:00:00Z"}',
    '{"t": 1709294400}',
    '{"z": "2024-03-01T12:00:00.5"}',
    '{"a": "2024-03-01"}',
    '{"a": "2024-3-1"}',
    '{"m": 12.3}',
    '{"m": "12.3"}',
    '{"m": 12.345}',
    '{"m": -12.345}',
    '{"n": "AAEC"}',
    '{"r": [1, null, 3]}',
    '{"r": []}',
    '{"o": {"s": "a"}}',
    '{"o": null, "p": {"a": 1, "b": null}}',
    '{"i": 1, "i": 2}',
    '\n{"i":\n1}\n',
]
# A field of another type, or no object: all of it is null here, and that field there, or all of its fields.
BAD = [
    '{"i": 1.0}',
    '{"i": "1"}',
    '{"b": "true"}',
    '{"d": "1.5"}',
    '{"t": "noon"}',
    '{"z": "2024-03-01T12:00:00Z"}',
]
BAD += ['{"m": 123456789}', '{"r": 1}', '{"o": []}', "[1]", "1", "{", '{"i": 1,}', '{"i": 1]', '{"n": 5}', '{"a": 5}']


@pytest.fixture(scope="module")
def by_spark() -> dict[str, object]:
    """What from_json makes of each text, out of a process of its own: a session leaves threads and a JVM behind."""
    program = f"""
        import pickle, sys
        from pyspark.sql import SparkSession, functions as F
        spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
                 .config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "1").getOrCreate())
        texts = pickle.load(sys.stdin.buffer)
        rows = spark.createDataFrame([(n, text) for n, text in enumerate(texts)], "n int, text string")
        parsed = rows.select("n", F.from_json("text", {DDL!r}).alias("v")).orderBy("n").coalesce(1).toArrow()
        sys.stdout.buffer.write(pickle.dumps(parsed.column("v").to_pylist()))
        sys.stdout.flush()
        spark.stop()
    """
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        input=pickle.dumps(SAME + BAD),
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:].decode()
    return dict(zip(SAME + BAD, pickle.loads(done.stdout)))


def test_rows_are_those_of_from_json(by_spark: dict[str, object]) -> None:
    array, bad = decoder("json", DDL).decode(pa.array([text.encode() for text in SAME], pa.binary()))
    assert not bad
    different = {text: (row, by_spark[text]) for text, row in zip(SAME, array.to_pylist()) if str(row) != str(by_spark[text])}
    assert different == {}


def test_what_is_bad_here_lacks_something_there(by_spark: dict[str, object]) -> None:
    array, bad = decoder("json", DDL).decode(pa.array([text.encode() for text in BAD], pa.binary()))
    assert [row for row, _ in bad] == list(range(len(BAD)))
    assert array.null_count == len(BAD)
    kind = parse(DDL)
    assert isinstance(kind, StructType)
    nothing = dict.fromkeys(kind.fieldNames())
    assert {text: by_spark[text] for text in BAD} == dict.fromkeys(BAD, nothing)
