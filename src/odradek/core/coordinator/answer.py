"""What follows a write that somebody waits for: an answer."""

from abc import ABC, abstractmethod

from odradek.core.coordinator.events import Request, Turn
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message


class Answer(ABC):
    """The response to a request, when what it says is committed."""

    __slots__ = ("request", "response")

    def __init__(self, request: Request, response: Message) -> None:
        self.request = request
        self.response = response

    def committed(self, turn: Turn) -> None:
        turn.reply(self.request.ticket, self.response)

    def failed(self, error: ErrorCode, turn: Turn) -> None:
        turn.reply(self.request.ticket, self._refusal(error))

    @abstractmethod
    def _refusal(self, error: ErrorCode) -> Message:
        """The response to the same request, when it could not be done."""
