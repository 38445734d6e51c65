"""Fetches Apache Kafka's jars with Maven, once, into a cache folder outside the tree; prints the class path.

Tests and benchmarks hold Odradek beside Apache Kafka itself, and beside Spark's own connector for it, whose jars are a second
set. Nothing of this is part of the product.
The folder is $ODRADEK_CACHE, or ~/.cache/odradek.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.3.1"
KAFKA = tuple(("org.apache.kafka", name, KAFKA_VERSION) for name in ("kafka_2.13", "kafka-tools", "kafka-streams"))
SPARK_VERSION = "4.2.0"
SPARK_CONNECTOR = (  # all of it, by name: of 4.2.0's own token provider Maven Central has nothing
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)

Artifacts = tuple[tuple[str, str, str], ...]

POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek</groupId><artifactId>kafka-jars</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def cache_folder() -> Path:
    return Path(os.environ.get("ODRADEK_CACHE", Path.home() / ".cache" / "odradek"))


def jars_folder() -> Path:
    """The folder of the jars; fetched when not all of them are there."""
    return fetched(f"kafka-{KAFKA_VERSION}", KAFKA)


def spark_connector_folder() -> Path:
    """The same of Spark's connector."""
    return fetched(f"spark-kafka-{SPARK_VERSION}", SPARK_CONNECTOR, ALONE)


def fetched(name: str, artifacts: Artifacts, exclusions: str = "") -> Path:
    folder = cache_folder() / name
    if not all((folder / f"{artifact}-{version}.jar").is_file() for _, artifact, version in artifacts):
        fetch(folder, artifacts, exclusions)
    return folder


def fetch(folder: Path, artifacts: Artifacts, exclusions: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        dependencies = "".join(DEPENDENCY.format(*artifact, exclusions) for artifact in artifacts)
        Path(scratch, "pom.xml").write_text(POM.format(dependencies=dependencies))
        command = ["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        subprocess.run(command, cwd=scratch, check=True, stdout=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(Path(scratch, "jars"), folder)


def class_path() -> str:
    return f"{jars_folder()}/*"


def spark_connector_class_path() -> str:
    return ":".join(str(path) for path in sorted(spark_connector_folder().glob("*.jar")))


if __name__ == "__main__":
    spark_connector_folder()
    sys.stdout.write(class_path() + "\n")
