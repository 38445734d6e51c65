"""What a log refuses: an error code that the protocol has, and a sentence for a person."""

from odradek.wire.errors import ErrorCode


class LogError(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
