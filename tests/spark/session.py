"""The session of pipelines as the tests have it: two tasks at a time, each of which may be tried twice, and little of everything.

Spark takes for Python what `odradek.pipelines.python` makes: this interpreter."""

import os
from pathlib import Path

from pyspark.sql import SparkSession

from odradek.pipelines.session import session as pipelines_session
from tools.kafka_jars import spark_connector_class_path

REPOSITORY = Path(__file__).parents[2]
MASTER = "local[2,2]"
# it does not live long enough for more, but for all that is compiled there must be room: where there is none, Spark ends itself
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
}


def session(folder: Path) -> SparkSession:
    os.environ.pop("PYSPARK_PYTHON", None)
    paths = [str(REPOSITORY / "src"), str(REPOSITORY), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    own = {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraClassPath": spark_connector_class_path(),
    }
    return pipelines_session(master=MASTER, settings={**SETTINGS, **own})
