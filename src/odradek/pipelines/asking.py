"""How commands reach the driver that runs pipelines: a socket in its state folder, a line of JSON each way. Needs no Spark."""

import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from odradek.client.errors import KafkaError

SOCKET: Final = "driver.sock"
PATH_BYTES_MAX: Final = 100  # that the system takes for a socket
ANSWER_SECONDS: Final = 120.0  # a stop waits for the batch at work


class NoDriver(KafkaError):
    """Nobody runs pipelines there."""


def address(state: Path) -> str:
    """Of the socket; beside other temporary files, where the name of the folder is too long for one."""
    path = str(state.resolve() / SOCKET)
    if len(path.encode()) <= PATH_BYTES_MAX:
        return path
    return f"{tempfile.gettempdir()}/odradek-{crc32(path.encode()):08x}-{os.getuid()}.sock"


def ask(state: Path, request: dict[str, Any]) -> list[dict[str, Any]]:
    """What the driver says of the pipelines that a command is about."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(address(state))
        except OSError:
            raise NoDriver(f"nobody runs pipelines in {state}; start them with: odradek pipeline run FILE") from None
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as said:
            answer = json.loads(said.readline() or b'{"error": "the driver is gone, or does not understand"}')
    if "error" in answer:
        raise KafkaError(answer["error"])
    found: list[dict[str, Any]] = answer["tasks"]
    return found
