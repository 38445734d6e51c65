"""What real clients are tried on: a node in a process of its own, or with SERVER=kafka in the environment Apache Kafka 4.3.1.

The same scenarios must pass on both. Where the two differ, Kafka is right, and the test says so.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka.broker import Broker

IS_KAFKA = os.environ.get("SERVER", "odradek") == "kafka"


class Node(Broker):
    """A node of ours, with the configuration that the Kafka of the tests has. It formats its folder by itself."""

    def _format(self, voters: tuple[str, ...]) -> None:
        pass

    def _command(self) -> list[str]:
        return node_command(self._properties)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        process = self.process
        super().stop(how)
        if process is not None and how is signal.SIGTERM:
            assert process.returncode == 0, self.output()


def node_command(properties: str) -> list[str]:
    return [str(Path(sys.executable).with_name("odradek")), "start", "--config", properties]


def new_server(folder: Path, **settings: str) -> Broker:
    folder.mkdir(parents=True, exist_ok=True)
    return (Broker if IS_KAFKA else Node)(folder, **settings)


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[Broker]:
    server = new_server(folder, **settings)
    with server.running():
        yield server
