"""Answers commands in the driver that runs pipelines, while it runs them."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from odradek.client.errors import KafkaError
from odradek.pipelines.asking import SOCKET, NoDriver, ask
from odradek.pipelines.runner import Runner

LINE_BYTES_MAX: Final = 1024 * 1024


@contextmanager
def serving(runner: Runner, state: Path) -> Iterator[None]:
    """KafkaError when another driver is at work in the folder."""
    state.mkdir(parents=True, exist_ok=True)
    path = state / SOCKET
    try:
        ask(state, {"what": "list"})
    except NoDriver:
        path.unlink(missing_ok=True)
    else:
        raise KafkaError(f"pipelines of {state} are run by another driver; stop that one first, or choose another --state")

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
