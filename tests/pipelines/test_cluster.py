"""Pipelines on a cluster of Spark, a master and two workers, of which one dies: what is written is exact all the same."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from odradek.client.admin import NewTopic
from odradek.client.records import Record
from odradek.sync import Admin, Consumer, Producer
from tests.cli.program import started
from tests.clients.waiting import until
from tests.kafka.broker import free_port
from tests.pipelines.driver import PATHS, QUICK, SECONDS_MAX, Driver
from tests.spark.session import QUICK_JAVA

SPARK = Path(pyspark.__file__).parent
RECORDS, KEYS, PARTITIONS, BATCH = 12_000, 7, 3, 1_500
PROGRAM = f"""
from odradek.pipelines import Pipeline
from pyspark.sql import functions as F

counting = Pipeline("counting")
numbers = counting.topic("numbers", value="n bigint", max_per_batch={BATCH})

@counting.to_topic("doubled")
def doubled():
    return numbers.selectExpr("n * 2 AS n", "_key")

@counting.table("totals", key="_key")
def totals():
    return numbers.groupBy("_key").agg(F.count("*").alias("count"), F.sum("n").alias("sum"))
"""
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.sql.shuffle.partitions": "2",
}


class Workers:
    """A standalone cluster, of the Spark that is installed with pyspark. Each process has a group of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = f"spark://127.0.0.1:{free_port()}"
        self.running: list[subprocess.Popen[bytes]] = []
        self._start("master.Master", "--host", "127.0.0.1", "--port", self.master.rpartition(":")[2])
        for _ in range(2):
            self._start("worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "600m", self.master)

    def _start(self, what: str, *arguments: str) -> None:
        number = len(self.running)
        environment = {
            **os.environ,
            "PYTHONPATH": PATHS,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
            "SPARK_WORKER_DIR": str(self.folder / f"worker-{number}"),
        }
        command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *arguments, "--webui-port", "0"]
        with (self.folder / f"{what}-{number}.txt").open("wb") as said:
            self.running.append(
                subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
            )

    def are_ready(self) -> bool:
        (said,) = self.folder.glob("master.Master-*.txt")
        assert all(process.poll() is None for process in self.running), said.read_text()
        return said.read_text().count("Registering worker") == 2

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """With all that it started."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.running.remove(process)


@contextmanager
def cluster(folder: Path) -> Iterator[Workers]:
    folder.mkdir()
    found = Workers(folder)
    try:
        yield found
    finally:
        for process in [*found.running]:
            found.kill(process)


def records(bootstrap: str, topic: str) -> list[Record]:
    """All that are committed."""
    with Consumer(bootstrap=bootstrap) as consumer:
        places = [(topic, index) for index in range(PARTITIONS)]
        ends = consumer.end_offsets(*places)
        consumer.assign(dict.fromkeys(places, 0), ends)
        found: list[Record] = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += consumer.poll(10_000)
    return found


def test_a_worker_that_dies_costs_and_doubles_nothing(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(PROGRAM)
    with started(tmp_path / "data") as node, cluster(tmp_path / "spark") as spark:
        bootstrap = f"127.0.0.1:{node.port}"
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic(name, partitions=PARTITIONS) for name in ("numbers", "doubled", "totals")])
        with Producer(bootstrap) as producer:
            for number in range(RECORDS):
                producer.send("numbers", f'{{"n": {number}}}', key=f"k{number % KEYS}", partition=number % PARTITIONS)
        until(spark.are_ready, "a cluster of Spark", SECONDS_MAX)
        settings = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
        driver = Driver(tmp_path, bootstrap, "counting.py", "--until-end", "--master", spark.master, "--conf", QUICK, *settings)
        try:
            driver.wait_for("counting.doubled: batch 1 ")
            spark.kill(spark.running[-1])
            assert driver.process.wait(SECONDS_MAX) == 0, driver.said()
        finally:
            driver.kill()
        assert "Lost executor" in (driver.state / "spark.log").read_text()
        doubled = Counter(record.value for record in records(bootstrap, "doubled"))
        totals = {record.key: record.value for record in records(bootstrap, "totals")}
    assert doubled == Counter(b'{"n":%d}' % (number * 2) for number in range(RECORDS))
    expected = {f"k{key}".encode(): range(key, RECORDS, KEYS) for key in range(KEYS)}
    assert totals == {key: b'{"count":%d,"sum":%d}' % (len(each), sum(each)) for key, each in expected.items()}
