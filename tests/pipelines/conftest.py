"""What the tests of pipelines share: one session of Spark for all of them in a process, the same as that of `tests/spark`."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.session import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    found = session(tmp_path_factory.mktemp("spark"))
    yield found
    found.stop()
