"""What the tests of pipelines share: one session of Spark for all of them in a process, and for those of `tests/spark`, which may
run in the same one, before them or after.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.pipelines.session import DEFAULTS, session
from tools.kafka_jars import spark_connector_class_path

REPOSITORY = Path(__file__).parents[2]
MASTER = "local[2,2]"
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # it does not live long enough for more
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """With the defaults of pipelines, whoever has started it."""
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(REPOSITORY / "src"), str(REPOSITORY), *sys.path]))
    jars = {"spark.driver.extraClassPath": spark_connector_class_path()}  # of Spark's own connector
    found = session(master=MASTER, settings={**SETTINGS, **jars})
    for name, value in {**DEFAULTS, **SETTINGS}.items():
        if found.conf.isModifiable(name):
            found.conf.set(name, value)
    yield found
    found.stop()
