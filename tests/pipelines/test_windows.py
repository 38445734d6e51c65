"""Windows, their results when they are final or whenever they change, what comes late; duplicates."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from odradek.pipelines import Pipeline, PipelineTest

CLICK = "user string, amount double, at timestamp"


def clicked(user: str, minute: int, second: int = 0, amount: float = 1.0) -> dict[str, Any]:
    return {"user": user, "amount": amount, "at": f"2024-05-17T10:{minute:02}:{second:02}Z"}


def counting(window: Any, emit: Any = "final", name: str = "") -> Pipeline:
    """Of the clicks of each user in a window, with ten seconds of grace."""
    pipeline = Pipeline(name)
    clicks = pipeline.topic("clicks", value=CLICK)

    @pipeline.to_topic(name, key="user", emit=emit)
    def counted() -> DataFrame:
        windows = clicks.withWatermark("at", "10 seconds").groupBy(window, "user")
        return windows.agg(F.count("*").alias("clicks"), F.sum("amount").alias("amount"))

    return pipeline


def distinct() -> Pipeline:
    pipeline = Pipeline("distinct")
    clicks = pipeline.topic("clicks", value=CLICK)

    @pipeline.to_topic("distinct", key="user")
    def once() -> DataFrame:
        return clicks.withWatermark("at", "10 seconds").dropDuplicatesWithinWatermark(["user"]).select("user", "at")

    return pipeline


def pipelines() -> list[Pipeline]:
    return [
        counting(F.window("at", "1 minute"), name="tumbling"),
        counting(F.window("at", "1 minute"), "changes", name="changing"),
        counting(F.window("at", "1 minute", "30 seconds"), name="hopping"),
        counting(F.session_window("at", "20 seconds"), name="sessions"),
        distinct(),
    ]


@pytest.fixture(scope="module")
def ran(spark: SparkSession) -> Iterator[PipelineTest]:
    with PipelineTest(*pipelines()) as test:
        test.send("clicks", clicked("ann", 0, 5), clicked("ann", 0, 20), clicked("bob", 0, 50), clicked("ann", 1, 5))
        test.run()
        assert not test.values("tumbling")  # 10:01:05 less ten seconds is within the first minute
        test.send("clicks", clicked("ann", 0, 56, 5.0), clicked("bob", 1, 20))  # late, and within the grace
        test.run()
        test.send("clicks", clicked("ann", 0, 59, 100.0), clicked("bob", 9))  # later than that
        test.run()
        yield test


def results(test: PipelineTest, topic: str) -> set[tuple[str, str, str, int, float]]:
    return {
        (each["user"], each["window"]["start"][11:19], each["window"]["end"][11:19], each["clicks"], each["amount"])
        for each in (({"window": value.get("session_window")} | value) for value in test.values(topic))
    }


def test_a_tumbling_window_is_told_once_when_it_is_over_with_what_came_within_its_grace(ran: PipelineTest) -> None:
    assert len(ran.values("tumbling")) == 4
    assert results(ran, "tumbling") == {
        ("ann", "10:00:00", "10:01:00", 3, 7.0),
        ("bob", "10:00:00", "10:01:00", 1, 1.0),
        ("ann", "10:01:00", "10:02:00", 1, 1.0),
        ("bob", "10:01:00", "10:02:00", 1, 1.0),
    }
    assert {record.key for record in ran.records("tumbling")} == {b"ann", b"bob"}


def test_changes_are_told_as_they_come(ran: PipelineTest) -> None:
    ann = [each["clicks"] for each in ran.values("changing") if each["user"] == "ann" and "10:00:" in each["window"]["start"]]
    assert ann == [2, 3]
    assert results(ran, "changing") > results(ran, "tumbling")


def test_a_click_is_in_two_hopping_windows(ran: PipelineTest) -> None:
    first = {each for each in results(ran, "hopping") if each[0] == "ann" and each[1] < "10:00:30"}
    assert first == {("ann", "09:59:30", "10:00:30", 2, 2.0), ("ann", "10:00:00", "10:01:00", 3, 7.0)}


def test_a_session_ends_after_a_pause_and_grows_by_what_came_late(ran: PipelineTest) -> None:
    assert {each for each in results(ran, "sessions") if each[0] == "ann"} == {
        ("ann", "10:00:05", "10:00:40", 2, 2.0),
        ("ann", "10:00:56", "10:01:25", 3, 106.0),  # that one was not over yet
    }


def test_a_duplicate_within_the_watermark_is_left_out(ran: PipelineTest) -> None:
    ann = [each["at"][11:19] for each in ran.values("distinct") if each["user"] == "ann"]
    assert ann[0] == "10:00:05"
    assert "10:00:20" not in ann
