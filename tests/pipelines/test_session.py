"""The session of Spark: one for the process, with settings that fit pipelines, behind those of the user."""

import threading
from pathlib import Path

from pyspark.sql import SparkSession

from odradek.pipelines.session import DEFAULTS, log_configuration, session
from tests.spark.session import SETTINGS


def test_every_thread_has_the_same_session_and_changes_nothing_of_it(spark: SparkSession) -> None:
    found: list[SparkSession] = []
    thread = threading.Thread(target=lambda: found.append(session(settings={"spark.sql.shuffle.partitions": "77"})))
    thread.start()
    thread.join()
    assert found == [spark]
    assert spark.conf.get("spark.sql.shuffle.partitions") == SETTINGS["spark.sql.shuffle.partitions"]


def test_state_is_kept_in_rocksdb_with_its_changes_and_nothing_is_done_twice_on_speculation() -> None:
    assert DEFAULTS["spark.sql.streaming.stateStore.providerClass"].endswith(".RocksDBStateStoreProvider")
    assert DEFAULTS["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] == "true"
    assert DEFAULTS["spark.speculation"] == "false"


def test_what_spark_says_goes_to_a_file_of_limited_size(tmp_path: Path) -> None:
    found = log_configuration(tmp_path / "state" / "spark.log").read_text()
    assert f"fileName = {tmp_path}/state/spark.log\n" in found
    assert "SizeBasedTriggeringPolicy" in found
