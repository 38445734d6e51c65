"""Answers commands in the driver that runs pipelines, while it runs them."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from odradek.client.errors import KafkaError
from odradek.pipelines.asking import NoDriver, address, ask
from odradek.pipelines.runner import Runner, reason

LINE_BYTES_MAX: Final = 1024 * 1024


def check(state: Path) -> None:
    """KafkaError when another driver is at work in the folder."""
    try:
        ask(state, {"what": "list"})
    except NoDriver:
        return
    raise KafkaError(f"pipelines of {state} are run by another driver; stop that one first, or choose another --state")


@contextmanager
def serving(runner: Runner, state: Path) -> Iterator[None]:
    check(state)
    state.mkdir(parents=True, exist_ok=True)
    path = Path(address(state))
    path.unlink(missing_ok=True)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                answer = runner.ask(json.loads(self.rfile.readline(LINE_BYTES_MAX)))
            except Exception as error:  # noqa: BLE001 - whatever Spark has to say: it is told to who asked
                answer = {"error": reason(error)}
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="odradek-control", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            path.unlink(missing_ok=True)
