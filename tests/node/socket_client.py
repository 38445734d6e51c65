"""A client made of a bare socket, for what no real client sends."""

import socket
from typing import Self, TypeVar

from odradek.wire.frames import decode_response, encode_request
from odradek.wire.message import Message

ANSWER_SECONDS_MAX = 20

Answer = TypeVar("Answer", bound=Message)


class Closed(Exception):
    """The server has closed the connection."""


class SocketClient:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX)
        self.correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise Closed from error

    def send_frame(self, frame: bytes) -> None:
        self.send(len(frame).to_bytes(4, "big") + frame)

    def send_request(self, request: Message, version: int) -> int:
        """Gives the correlation id."""
        self.correlation_id += 1
        self.send(b"".join(encode_request(request, version, self.correlation_id, "socket")))  # type: ignore[arg-type]
        return self.correlation_id

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionError as error:
                raise Closed from error
            if not part:
                raise Closed
            data += part
        return data

    def frame(self) -> bytes:
        return self.receive(int.from_bytes(self.receive(4), "big"))

    def answer(self, response: type[Answer], version: int) -> Answer:
        """The next answer; its correlation id must be that of the last request."""
        correlation_id, answer = decode_response(response, self.frame(), version)
        assert correlation_id == self.correlation_id
        return answer

    def ask(self, request: Message, version: int, response: type[Answer]) -> Answer:
        self.send_request(request, version)
        return self.answer(response, version)

    def is_closed(self) -> bool:
        """Waits for the end of the connection, or for anything else that comes."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
