"""What follows a write, where no group is concerned: an answer; and what comes before that where one is."""

from odradek.core.coordinator.events import Request, Sequel, Turn
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message


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


class Followed:
    """Something to be done first, and then what another sequel says."""

    __slots__ = ("sequel",)

    def __init__(self, sequel: Sequel) -> None:
        self.sequel = sequel

    def committed(self, turn: Turn) -> None:
        self.sequel.committed(turn)

    def failed(self, error: ErrorCode, turn: Turn) -> None:
        self.sequel.failed(error, turn)
