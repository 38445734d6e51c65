"""A real Apache Kafka 4.3.1, broker and controller in one Java process, in a folder of its own.

It is the other implementation: what it wrote we must read, and what we wrote it must serve.
"""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from odradek.core.config.single_node import CONTROLLER_PORT_DISTANCE
from tools.kafka_jars import class_path

START_SECONDS_MAX = 180  # of a machine that does much else; it is a few otherwise
PORTS_FIRST, PORTS_OF_A_PROCESS = 10_000, 1_000  # up to where those of clusters begin
_numbers = itertools.count(os.getpid())  # that were given
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAQQ"
HEAP = ("-Xmx512m", "-XX:TieredStopAtLevel=1")

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
{quorum}
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.enable=false
log.retention.check.interval.ms=3600000
{more}
"""


def free_port() -> int:
    """One that nobody has, and that neither connections get from the system nor other test processes take; the one that is
    CONTROLLER_PORT_DISTANCE above it, where a single node has its controller, is free as well."""
    first = PORTS_FIRST + PORTS_OF_A_PROCESS * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 2)
    while True:
        port = first + next(_numbers) % PORTS_OF_A_PROCESS
        with (
            contextlib.suppress(OSError),
            socket.create_server(("127.0.0.1", port)),
            socket.create_server(("127.0.0.1", port + CONTROLLER_PORT_DISTANCE)),
        ):
            return port


class Broker:
    """One Kafka node. `data` is its log folder; it is formatted when the node is made, unless something is in it already.

    The voter stands in the metadata log, or with `static_voters` only in the configuration."""

    def __init__(self, folder: Path, static_voters: bool = False, /, **settings: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.controller_port = free_port()
        more = "\n".join(f"{key.replace('_', '.')}={value}" for key, value in settings.items())
        address = f"127.0.0.1:{self.controller_port}"
        quorum = f"controller.quorum.voters=1@{address}" if static_voters else f"controller.quorum.bootstrap.servers={address}"
        properties = PROPERTIES.format(
            client=self.port, controller=self.controller_port, data=self.data, quorum=quorum, more=more
        )
        (folder / "server.properties").write_text(properties)
        self.process: subprocess.Popen[bytes] | None = None
        if not self.data.exists():
            self._format(() if static_voters else ("--standalone",))

    def _format(self, voters: tuple[str, ...]) -> None:
        self.run_tool("kafka.tools.StorageTool", "format", *voters, "-t", CLUSTER_ID, "-c", self._properties)

    def _command(self) -> list[str]:
        return ["java", *HEAP, "-cp", class_path(), "kafka.Kafka", self._properties]

    @property
    def _properties(self) -> str:
        return str(self.folder / "server.properties")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def run_tool(self, name: str, *arguments: str, given: bytes | None = None) -> str:
        """Runs a program of Kafka's; gives what it printed. AssertionError with all its output when it fails."""
        command = ["java", *HEAP, "-cp", class_path(), name, *arguments]
        done = subprocess.run(command, check=False, input=given, capture_output=True)
        assert done.returncode == 0, f"{name} {arguments}: {done.stdout.decode()}\n{done.stderr.decode()}"
        return done.stdout.decode()

    def start(self) -> None:
        self.spawn()
        self.listens()

    def spawn(self) -> None:
        assert self.process is None
        with open(self.folder / "server.log", "ab") as output:
            self.process = subprocess.Popen(self._command(), stdout=output, stderr=output)

    def listens(self) -> None:
        """Waits until it does."""
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.output()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.02)
        raise AssertionError("it does not listen: " + self.output())

    def output(self) -> str:
        """What it has printed so far."""
        return (self.folder / "server.log").read_text()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            os.kill(self.process.pid, how)
            self.process.wait()
            self.process = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stop()
