"""One request sent to a running node, and its answer: for what no client lets itself be made to ask."""

import socket
from typing import TypeVar

from odradek.wire.frames import SIZE, decode_response, encode_request
from odradek.wire.message import Message

Answer = TypeVar("Answer", bound=Message)
ANSWER_SECONDS_MAX = 30


def ask(port: int, request: Message, version: int, answer: type[Answer]) -> Answer:
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX) as connection:
        connection.sendall(b"".join(encode_request(request, version, correlation_id=1)))  # type: ignore[arg-type]
        with connection.makefile("rb") as answers:
            (size,) = SIZE.unpack(answers.read(SIZE.size))
            _, response = decode_response(answer, answers.read(size), version)
    return response
