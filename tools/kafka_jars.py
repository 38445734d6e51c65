"""Fetches Apache Kafka's jars with Maven, once, into a cache folder outside the tree; prints the class path.

Tests and benchmarks hold Odradek beside Apache Kafka itself. Nothing of this is part of the product.
The folder is $ODRADEK_CACHE, or ~/.cache/odradek.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.3.1"
ARTIFACTS = ("kafka_2.13", "kafka-tools", "kafka-streams")

POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek</groupId><artifactId>kafka-jars</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>org.apache.kafka</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def cache_folder() -> Path:
    return Path(os.environ.get("ODRADEK_CACHE", Path.home() / ".cache" / "odradek"))


def jars_folder() -> Path:
    """The folder of the jars; fetched when not all of them are there."""
    folder = cache_folder() / f"kafka-{KAFKA_VERSION}"
    if not all((folder / f"{name}-{KAFKA_VERSION}.jar").is_file() for name in ARTIFACTS):
        fetch(folder)
    return folder


def fetch(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        dependencies = "".join(DEPENDENCY.format(name, KAFKA_VERSION) for name in ARTIFACTS)
        Path(scratch, "pom.xml").write_text(POM.format(dependencies=dependencies))
        command = ["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        subprocess.run(command, cwd=scratch, check=True, stdout=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(Path(scratch, "jars"), folder)


def class_path() -> str:
    return f"{jars_folder()}/*"


if __name__ == "__main__":
    sys.stdout.write(class_path() + "\n")
