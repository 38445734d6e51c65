"""How commands reach the driver that runs pipelines: a socket in its state folder, a line of JSON each way."""

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from odradek.client.errors import KafkaError
from odradek.pipelines.runner import Runner

SOCKET: Final = "driver.sock"
ANSWER_SECONDS: Final = 120.0  # a stop waits for the batch at work
LINE_BYTES_MAX: Final = 1024 * 1024


class NoDriver(KafkaError):
    """Nobody runs pipelines there."""


@contextmanager
def serving(runner: Runner, state: Path) -> Iterator[None]:
    """Answers commands meanwhile. NoDriver when somebody does already."""
    state.mkdir(parents=True, exist_ok=True)
    path = state / SOCKET
    with suppress(NoDriver):
        ask(state, {"what": "list"})
        raise KafkaError(f"pipelines of {state} are run by another driver; stop that one first, or choose another --state")
    path.unlink(missing_ok=True)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = json.loads(self.rfile.readline(LINE_BYTES_MAX))
            self.wfile.write(json.dumps(runner.ask(request)).encode() + b"\n")

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="odradek-control", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            path.unlink(missing_ok=True)


def ask(state: Path, request: dict[str, Any]) -> list[dict[str, Any]]:
    """What the driver says of the pipelines that a command is about."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(str(state / SOCKET))
        except OSError:
            raise NoDriver(f"nobody runs pipelines in {state}; start them with: odradek pipeline run FILE") from None
        connection.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(connection.makefile("rb").readline())
    if "error" in answer:
        raise KafkaError(answer["error"])
    found: list[dict[str, Any]] = answer["tasks"]
    return found
