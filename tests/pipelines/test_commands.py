"""`odradek pipeline`: one driver that runs several pipelines, and the commands that look after them while it does."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.client.admin import NewTopic
from odradek.sync import Admin, Consumer, Producer
from tests.cli.program import odradek, started
from tests.clients.waiting import until
from tests.pipelines.driver import QUICK, SECONDS_MAX, Driver

CITIES = """
from odradek.pipelines import Pipeline
from pyspark.sql import functions as F
from spelling import spelled  # a module of its folder

cities = Pipeline("cities")
people = cities.topic("people", value="name string, city string")
names = cities.latest("names", value="string")
known = people.where("city IS NOT NULL")  # made while the file is read

@cities.to_topic("cities")
def with_names():
    return known.join(names, known.city == names._key).select("name", F.udf(lambda city: spelled(city))("value").alias("city"))
"""
SPELLING = """
def spelled(name):
    return name.title()
"""
STRICT = """
from odradek.pipelines import Pipeline

strict = Pipeline("strict")
numbers = strict.topic("numbers", value="n int")
@strict.to_topic("strict")
def same():
    return numbers.select("n")
"""
ECHO = """
from odradek.pipelines import Pipeline

echo = Pipeline("echo")
names = echo.topic("names", value="string")
@echo.to_topic("echo")
def same():
    return names.select("value")
"""
OPTIONS = ["--master", "local[2]", "--failures", "2", "--conf", QUICK, "--conf", "spark.sql.shuffle.partitions=2"]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    folder = tmp_path_factory.mktemp("driver")
    (folder / "cities.py").write_text(CITIES)
    (folder / "strict.py").write_text(STRICT)
    (folder / "spelling.py").write_text(SPELLING)
    with started(folder / "data") as node:
        bootstrap = f"127.0.0.1:{node.port}"
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic(name) for name in ("people", "names", "numbers")])
        found = Driver(folder, bootstrap, "cities.py", "strict.py", *OPTIONS)
        try:
            yield found
        finally:
            found.kill()


def send(driver: Driver, topic: str, value: str, key: str | None = None) -> None:
    with Producer(driver.bootstrap) as producer:
        producer.send(topic, value, key=key)


def person(driver: Driver, name: str, city: str) -> None:
    send(driver, "people", json.dumps({"name": name, "city": city}))


def written(driver: Driver, count: int, topic: str = "cities") -> list[tuple[Any, ...]]:
    """The values of a topic, as soon as there are so many."""
    found: list[tuple[Any, ...]] = []
    with Consumer(bootstrap=driver.bootstrap) as consumer:
        consumer.assign({(topic, 0): 0})

        def are_there() -> bool:
            found.extend(tuple(json.loads(record.value or b"{}").values()) for record in consumer.poll(timeout_ms=100))
            assert driver.process.poll() is None, driver.said()
            return len(found) >= count

        until(are_there, f"{count} records in {topic}: {found}", SECONDS_MAX)
    return found


def test_a_table_is_read_anew_for_each_batch(driver: Driver) -> None:
    driver.wait_for("starting Spark (local[2]) for cities, strict\n")
    until(lambda: [task["state"] for task in driver.tasks().values()] == ["running"] * 2, "running pipelines", SECONDS_MAX)
    send(driver, "names", "OSLO", key="O")
    person(driver, "ann", "O")
    assert written(driver, 1) == [("ann", "Oslo")]
    send(driver, "names", "kristiania", key="O")
    person(driver, "bob", "O")
    assert written(driver, 2) == [("ann", "Oslo"), ("bob", "Kristiania")]


def test_progress_is_told(driver: Driver) -> None:
    driver.wait_for("cities: batch ")
    line = next(line for line in driver.said().splitlines() if line.startswith("cities: batch "))
    assert "in/s" in line
    assert "out/s" in line
    assert "lag 0" in line


def test_pipelines_are_listed_and_described(driver: Driver) -> None:
    table = driver.ask("list").splitlines()
    assert table[0].split() == ["pipeline", "output", "state", "batch", "in/s", "out/s", "ms", "lag", "restarts"]
    assert [line.split()[:3] for line in table[1:]] == [["cities", "cities", "running"], ["strict", "strict", "running"]]
    text = driver.ask("describe", "cities")
    for said in (
        "cities: running, 0 restarts",
        "reads people, names as group cities",
        "writes topic cities, append mode, exactly-once",
        "checkpoint ",
        "watermark",
        "Join",  # of the plan
    ):
        assert said in text
    assert [json.loads(line)["query"] for line in driver.ask("list", "--json").splitlines()] == ["cities", "strict"]
    task = json.loads(driver.ask("describe", "cities", "--json"))
    assert task["sink"] == {"kind": "topic", "where": "cities", "mode": "append"}
    assert sum(batch["rows_out"] for batch in task["batches"]) == 2
    assert "there is no pipeline nobody here; there are cities, strict" in driver.ask("describe", "nobody", is_refused=True)


def test_a_second_driver_is_refused_before_it_starts_spark(driver: Driver) -> None:
    done = odradek("pipeline", "run", str(driver.folder / "cities.py"), "--state", str(driver.state))
    assert done.returncode == 1
    assert "run by another driver; stop that one first, or choose another --state" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_stopped_pipeline_goes_on_where_it_was(driver: Driver) -> None:
    assert "is running; stop it first: odradek pipeline stop cities" in driver.ask("reset", "cities", "--yes", is_refused=True)
    assert driver.ask("stop", "cities") == "stopped cities; `odradek pipeline restart cities` goes on\n"
    assert driver.tasks()["cities"]["state"] == "stopped"
    person(driver, "eve", "O")
    assert driver.ask("restart", "cities") == "starting cities\n"
    assert written(driver, 3)[2:] == [("eve", "Kristiania")]


def test_a_reset_shows_what_it_deletes_and_then_everything_is_done_again(driver: Driver) -> None:
    driver.ask("stop", "cities")
    shown = odradek("pipeline", "reset", "cities", "--state", str(driver.state), **driver.environment)
    assert shown.returncode
    assert str(driver.state / "checkpoints" / "cities" / "cities") in shown.stdout.replace("\n", "")
    assert driver.ask("reset", "cities", "--yes").endswith("cities begins anew when it is run again\n")
    with Admin(driver.bootstrap) as admin:
        assert not admin.list_group_offsets(["cities"])["cities"]
    driver.ask("restart", "cities")
    assert sorted(written(driver, 6)[3:]) == [("ann", "Kristiania"), ("bob", "Kristiania"), ("eve", "Kristiania")]
    until(lambda: bool(driver.tasks()["cities"]["batches"][-1]["rows_out"]), "what it has done since", SECONDS_MAX)


def test_a_pipeline_that_fails_is_tried_again_given_up_and_does_not_disturb_others(driver: Driver) -> None:
    send(driver, "numbers", '{"n": 1}')
    assert written(driver, 1, "strict") == [(1,)]
    send(driver, "numbers", "nonsense")
    driver.wait_for("strict: failed (1 of 2), again in 1 s: ")
    driver.wait_for("strict: GIVEN UP after 2 failures. ")
    assert "numbers-0 offset 1: value: " in driver.said()
    assert {name: task["state"] for name, task in driver.tasks().items()} == {"cities": "running", "strict": "failed"}
    person(driver, "mia", "O")
    assert written(driver, 7)[6:] == [("mia", "Kristiania")]


def test_a_driver_that_is_stopped_tells_by_its_status_that_something_was_given_up(driver: Driver) -> None:
    assert driver.stop() == 1
    assert "Traceback" not in driver.said()
    assert "nobody runs pipelines in" in driver.ask("list", is_refused=True)
    assert (driver.state / "spark.log").exists()


def test_what_was_never_run_cannot_be_reset(driver: Driver) -> None:
    assert "there is no checkpoint of nothing in" in driver.ask("reset", "nothing", "--yes", is_refused=True)


def test_a_driver_whose_spark_is_gone_ends_and_says_so(driver: Driver, tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    bereft = Driver(tmp_path, driver.bootstrap, "echo.py", *OPTIONS)
    try:
        until(lambda: "echo" in bereft.tasks() and bool(bereft.tasks()["echo"]["batches"]), "a batch", SECONDS_MAX)
        os.kill(java_of(bereft), signal.SIGKILL)
        assert bereft.process.wait(SECONDS_MAX) == 1
    finally:
        bereft.kill()
    *_, last = bereft.said().splitlines()
    assert last == f"odradek: Spark has ended: the status of its Java process is -9; {bereft.state / 'spark.log'} may say why"


def java_of(driver: Driver) -> int:
    children = Path(f"/proc/{driver.process.pid}/task/{driver.process.pid}/children").read_text().split()
    (found,) = [int(each) for each in children if Path(f"/proc/{each}/comm").read_text() == "java\n"]
    return found
