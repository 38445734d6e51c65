"""The Spark session of pipelines, with settings that fit them.

Invariants
 1. What the user sets goes before what is set here.
 2. Every Python process of Spark is the one that this is: same interpreter, same packages.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

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
LOCAL_DEFAULTS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # driver and executor are one process: after a machine has slept it would take itself for dead, and end ten minutes later
    "spark.storage.blockManagerHeartbeatTimeoutMs": "7d",
    "spark.executor.heartbeat.maxFailures": "1000000",
}
SHUFFLE_PARTITIONS_MAX: Final = 8
LOCAL: Final = "local"
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
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


class SparkEnded(RuntimeError):
    """The process that Spark runs in is gone, with all that ran there."""


class Wanted(NamedTuple):
    """Of the session, when it is started."""

    master: str | None = None
    settings: Mapping[str, str] | None = None
    log: Path | None = None  # the file that has what Spark has to say; without it, errors go to stderr


_wanted = Wanted()


def choose(*, master: str | None = None, settings: Mapping[str, str] | None = None, log: Path | None = None) -> None:
    """What the session will be, whoever needs it first: a file that declares pipelines may."""
    global _wanted  # noqa: PLW0603 - there is one session in a process
    _wanted = Wanted(master, settings, log)


def session(
    name: str = "odradek",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> "SparkSession":
    """The session of this process: the one that there is, or a new one. NoJava when Spark cannot be started."""
    from pyspark.sql import SparkSession

    found = SparkSession._instantiatedSession  # the active one is another in each thread
    if found is not None and found._sc._jsc is not None:
        return found
    java.check()
    chosen = master or _wanted.master or os.environ.get("ODRADEK_SPARK_MASTER") or "local[*]"
    log = log or _wanted.log
    own = {"spark.sql.shuffle.partitions": str(min(os.cpu_count() or 1, SHUFFLE_PARTITIONS_MAX)), **DEFAULTS}
    if chosen.startswith(LOCAL):
        os.environ.setdefault("PYSPARK_PYTHON", python.launcher())
        python.start_zygote()
        own |= LOCAL_DEFAULTS
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(chosen)
    theirs = {**(_wanted.settings or {}), **(settings or {})}
    if log is not None:
        logging = f"-Dlog4j2.configurationFile={log_configuration(log)}"
        theirs[JAVA_OPTIONS] = f"{logging} {theirs.get(JAVA_OPTIONS, '')}".strip()
    for key, value in {**own, **theirs}.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    if log is None:
        made.sparkContext.setLogLevel("ERROR")
    return made


def check(seconds: float = 0.0) -> None:
    """SparkEnded when its process is gone, or goes within this time."""
    status = ended(seconds)
    if status is not None:
        where = f"; {_wanted.log} may say why" if _wanted.log else ""
        raise SparkEnded(f"Spark has ended: the status of its Java process is {status}{where}")


def ended(seconds: float = 0.0) -> int | None:
    """The status with which Spark's process has ended, or does within this time; None if it goes on, or is not ours."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    try:
        return None if process is None else int(process.wait(seconds))
    except subprocess.TimeoutExpired:
        return None


def log_configuration(log: Path) -> Path:
    log.parent.mkdir(parents=True, exist_ok=True)
    path = log.with_suffix(".log4j2.properties")
    path.write_text(LOG.format(path=log.resolve()))
    return path.resolve()
