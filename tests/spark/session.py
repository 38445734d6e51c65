"""A session of Spark as the tests have it: two tasks at a time, each of which may be tried twice, and little of everything."""

import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tools.kafka_jars import spark_connector_class_path

REPOSITORY = Path(__file__).parents[2]
MASTER = "local[2,2]"
CONFIGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "60000",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def session(folder: Path, **more: str) -> SparkSession:
    assert shutil.which("java"), "the tests of Spark need java (17 or later) on the PATH"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [str(REPOSITORY / "src"), str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    builder = SparkSession.builder.master(MASTER).appName("odradek")
    configs = {
        **CONFIGS,
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraClassPath": spark_connector_class_path(),
        **more,
    }
    for name, value in configs.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found
