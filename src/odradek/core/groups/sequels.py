"""What follows a write, where no group is concerned: an answer, or nothing."""

from odradek.core.groups.events import Request, Turn
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message


class Nothing:
    """Nobody waits. What could not be written, an expiry say, comes up again."""

    __slots__ = ()

    def committed(self, turn: Turn) -> None: ...

    def failed(self, error: ErrorCode, turn: Turn) -> None: ...


class Answer:
    """The response to a request, when what it says is committed."""

    __slots__ = ("request", "response")

    def __init__(self, request: Request, response: Message) -> None:
        self.request = request
        self.response = response

    def committed(self, turn: Turn) -> None:
        turn.reply(self.request.ticket, self.response)

    def failed(self, error: ErrorCode, turn: Turn) -> None:
        turn.reply(self.request.ticket, refusal(self.request.message, error, self.request.version))
