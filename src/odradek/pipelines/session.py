"""The Spark session of pipelines, with settings that fit them.

Invariants
 1. What the user sets goes before what is set here.
 2. Every Python process of Spark is the one that this is: same interpreter, same packages.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.pipelines import java, python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMING: Final = "org.apache.spark.sql.execution.streaming"
DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",  # two tasks that write the same would only be in each other's way
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": f"{STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.python.unix.domain.socket.enabled": "true",  # that of TCP waits 40 ms for the end of a task
    "spark.python.daemon.module": "odradek.spark.daemon",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
SHUFFLE_PARTITIONS_MAX: Final = 8
LOCAL: Final = "local"
LOG: Final = """rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {path}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


def session(
    name: str = "odradek",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> "SparkSession":
    """The session of this process: the one that there is, or a new one. NoJava when Spark cannot be started.

    `log`: the file that has what Spark has to say; without it, errors go to stderr."""
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is not None:
        return found
    java.check()
    chosen = master or os.environ.get("ODRADEK_SPARK_MASTER") or "local[*]"
    own = {"spark.sql.shuffle.partitions": str(min(os.cpu_count() or 1, SHUFFLE_PARTITIONS_MAX)), **DEFAULTS}
    if chosen.startswith(LOCAL):
        os.environ.setdefault("PYSPARK_PYTHON", python.launcher())
        python.start_zygote()
        own["spark.driver.host"] = own["spark.driver.bindAddress"] = "127.0.0.1"
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(chosen)
    if log is not None:
        own["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log_configuration(log)}"
    for key, value in {**own, **(settings or {})}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    if log is None:
        made.sparkContext.setLogLevel("ERROR")
    return made


def log_configuration(log: Path) -> Path:
    log.parent.mkdir(parents=True, exist_ok=True)
    path = log.with_suffix(".log4j2.properties")
    path.write_text(LOG.format(path=log.resolve()))
    return path.resolve()
