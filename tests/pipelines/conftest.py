"""What the tests of pipelines share: one session of Spark for all of them in a process."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.pipelines.session import DEFAULTS, session

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
    found = session(master=MASTER, settings=SETTINGS)
    for name, value in {**DEFAULTS, **SETTINGS}.items():
        if found.conf.isModifiable(name):
            found.conf.set(name, value)
    yield found
    found.stop()
