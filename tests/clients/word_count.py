"""A program of Kafka Streams, in a process of its own (tests/kafka/java/WordCount.java)."""

import signal
import subprocess
from pathlib import Path

from tests.kafka.broker import HEAP
from tests.kafka.oracle import compiled
from tools.kafka_jars import class_path


class Application:
    """The program, which can be killed and started again."""

    def __init__(self, bootstrap: str, folder: Path, source: str, target: str, *, group: str, protocol: str) -> None:
        self.log = folder / "application.log"
        at = f"{compiled()}:{class_path()}"
        arguments = [bootstrap, group, str(folder / "state"), source, target, protocol]
        self.command = ["java", *HEAP, f"-Djava.io.tmpdir={folder}", "-cp", at, "WordCount", *arguments]
        self.process: subprocess.Popen[bytes]

    def start(self) -> None:
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output)

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait()
