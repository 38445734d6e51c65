"""Apache Kafka's own classes, asked over a pipe: what they make of our bytes, and which bytes they would write.

The Java side is tests/kafka/java: `Oracle.java` reads one JSON line a call and runs the static method that it names.
"""

import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tools.kafka_jars import cache_folder, class_path

SOURCES = Path(__file__).parent / "java"


class OracleError(Exception):
    """What Apache Kafka's class threw."""


def compiled() -> Path:
    """The folder of the compiled Java sources, named after what they say: compiled once for each change."""
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    folder = cache_folder() / f"oracle-{digest}"
    if not folder.is_dir():
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
            classes = Path(scratch, "classes")
            command = ["javac", "-nowarn", "-cp", class_path(), "-d", str(classes), *map(str, sources)]
            subprocess.run(command, check=True, capture_output=True)
            try:
                os.rename(classes, folder)
            except OSError:
                assert folder.is_dir()  # another process was first
    return folder


class Oracle:
    """One Java process that answers calls until it is closed."""

    def __init__(self) -> None:
        command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{compiled()}:{class_path()}", "Oracle"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
        )

    def call(self, name: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"call": name, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the oracle died in {name}, exit status {self.process.wait()}"
        answer = json.loads(line)
        if "error" in answer:
            raise OracleError(answer["error"])
        return answer["result"]

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
