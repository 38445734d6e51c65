"""How commands reach the driver that runs pipelines: a socket in its state folder, a line of JSON each way. Needs no Spark."""

import json
import socket
from pathlib import Path
from typing import Any, Final

from odradek.client.errors import KafkaError

SOCKET: Final = "driver.sock"
ANSWER_SECONDS: Final = 120.0  # a stop waits for the batch at work


class NoDriver(KafkaError):
    """Nobody runs pipelines there."""


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
