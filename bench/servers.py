"""The two that are measured side by side: a node of ours, and Apache Kafka 4.3.1 with a heap of 1 GB."""

import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from odradek.core.config.single_node import file_text, listening, single_node
from odradek.wire.frames import decode_response, encode_request
from odradek.wire.message import Message
from odradek.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from tests.kafka.broker import CLUSTER_ID, free_port
from tools.kafka_jars import class_path

START_SECONDS_MAX = 60
HUGE_PAGE_BYTES = 2 * 1024 * 1024
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # as users have it


def touch_memory(size: int) -> None:
    """Has the machine own so much free memory. A virtual one that gives its free pages back to the host pays four seconds for
    each GB that it takes again: whatever a broker writes would cost that, and nothing else could be seen."""
    size = -(-size // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for position in range(0, size, mmap.PAGESIZE):
            memory[position] = 1


class Server(ABC):
    """A broker under measurement. `start` gives the seconds until it answered for the first time."""

    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        self.properties = folder / "server.properties"
        self.properties.write_text(file_text(single_node(str(folder / "data"), listening("127.0.0.1", self.port, ""))))

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    def start(self) -> float:
        begin = time.perf_counter()
        with (self.folder / "out.txt").open("ab") as out:
            self.process = subprocess.Popen(self.command(), stdout=out, stderr=out, env=ENVIRONMENT)
        while True:
            assert self.process.poll() is None, (self.folder / "out.txt").read_text()[-2000:]
            assert time.perf_counter() - begin < START_SECONDS_MAX
            try:
                with Client(self.port) as client:
                    client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
                    return time.perf_counter() - begin
            except OSError:
                time.sleep(0.01)

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(START_SECONDS_MAX)

    def cpu_seconds(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def memory_bytes(self) -> int:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024


class Odradek(Server):
    name = "odradek"

    def command(self) -> list[str]:
        return [str(Path(sys.executable).parent / "odradek"), "start", "--config", str(self.properties)]


class Kafka(Server):
    name = "kafka"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._format()

    def _java(self, *arguments: str) -> list[str]:
        return ["java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-cp", class_path(), *arguments]

    def _format(self) -> None:
        arguments = ("format", "--standalone", "-t", CLUSTER_ID, "-c", str(self.properties))
        subprocess.run(self._java("kafka.tools.StorageTool", *arguments), check=True, capture_output=True)

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self.properties))


class Client:
    """A connection that asks one thing at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def receive(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionError("the server closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def frame(self) -> bytes:
        return self.receive(int.from_bytes(self.receive(4), "big"))

    def ask(self, request: Message, version: int, response: type[Message]) -> Message:
        self.socket.sendall(b"".join(encode_request(request, version, 1, "bench")))  # type: ignore[arg-type]
        return decode_response(response, self.frame(), version)[1]
