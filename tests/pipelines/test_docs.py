"""The programs of docs/pipelines.md do what they are there for: all that declare pipelines in one run, the others as they are."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.pipelines import PipelineTest
from odradek.spark.options import READ, WITHOUT_EFFECT, WRITE

PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FILES = {"shouts": 0, "order_totals": 1, "shop": 2, "clicks": 3, "visits": 4}  # those that declare pipelines
TESTING, BATCH, STREAM = 5, 6, 7


def test_every_program_is_tried() -> None:
    assert sorted([*FILES.values(), TESTING, BATCH, STREAM]) == [*range(len(PROGRAMS))]


def test_the_page_has_every_option() -> None:
    for option in (*READ, *WRITE):
        assert f"`{option}" in PAGE, option
    assert "groupidprefix" in WITHOUT_EFFECT


def at(minute: int, second: int = 0) -> str:
    return f"2024-05-17T10:{minute:02}:{second:02}Z"


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipelineTest]:
    folder = tmp_path_factory.mktemp("programs")
    for name, number in FILES.items():
        (folder / f"{name}.py").write_text(PROGRAMS[number])
    with PipelineTest(*(folder / f"{name}.py" for name in FILES)) as test:
        test.send("words", "hello", "again")
        test.send("orders", {"customer": "alice", "amount": 9.5, "at": at(0)}, {"customer": "bob", "amount": 1, "at": at(2)})
        test.send("customers", {"name": "Alice", "city": "Oslo"}, key="a")
        test.send("web-orders", {"order_id": "1", "customer": "a", "amount": 5}, {"order_id": "2", "customer": "b", "amount": 0})
        test.send("phone-orders", {"order_id": "3", "customer": "a", "amount": 500})
        test.send("people", {"city": "Rome"}, key="ann")
        test.send("ad-views", {"user": "ann", "ad": "soap", "seen": at(0)})
        test.send("page-clicks", {"user": "ann", "page": "/", "at": at(0, 30)}, {"user": "ann", "page": "/", "at": at(5)})
        for minute in (0, 0, 1, 30):
            test.send("views", {"user": "ann", "page": "/", "at": at(minute)})
        test.send("buys", {"buyer": "ann", "item": "soap", "bought": at(5)}, {"buyer": "bob", "item": "x", "bought": at(40)})
        test.run()
        yield test


def rows(test: PipelineTest, topic: str, *fields: str) -> list[tuple[object, ...]]:
    return sorted(tuple(each[field] for field in fields) for each in test.values(topic))


def test_the_first_three_lines(ran: PipelineTest) -> None:
    assert [record.value for record in ran.records("loud-words")] == [b"HELLO", b"AGAIN"]


def test_the_real_one(ran: PipelineTest) -> None:
    assert rows(ran, "order-totals", "customer", "total") == [("alice", 9.5)]


def test_branches_a_table_and_one_to_join_with(ran: PipelineTest) -> None:
    assert rows(ran, "large-orders", "order_id") == [("3",)]
    assert rows(ran, "small-orders", "order_id") == [("1",), ("2",)]
    assert rows(ran, "letters", "order_id", "text", "city") == [("1", "Dear Alice", "Oslo")]
    assert {record.key: record.value is None for record in ran.records("balances")} == {b"a": False, b"b": True}


def test_sql(ran: PipelineTest) -> None:
    assert rows(ran, "clicks-by-city", "city", "clicks") == [("Rome", 2)]
    assert rows(ran, "clicked-ads", "user", "ad", "page") == [("ann", "soap", "/")]


def test_windows_joins_and_duplicates(ran: PipelineTest) -> None:
    assert rows(ran, "views-hopping", "count") == [(1,), (1,), (2,), (2,)]
    assert rows(ran, "views-sessions", "count") == [(3,)]
    assert rows(ran, "bought-pages", "page", "item") == [("/", "soap")] * 3
    assert rows(ran, "first-views", "user", "page")[:1] == [("ann", "/")]


def test_the_test(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("order_totals.py").write_text(PROGRAMS[FILES["order_totals"]])
    exec(compile(PROGRAMS[TESTING], "docs/pipelines.md", "exec"), {})


def test_spark_without_pipelines(ran: PipelineTest) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for number in (BATCH, STREAM):
            exec(compile(PROGRAMS[number].replace("127.0.0.1:9092", ran.bootstrap), "docs/pipelines.md", "exec"), {})
    assert said.getvalue() == "[1, 2]\n2\n2 copies\n"
