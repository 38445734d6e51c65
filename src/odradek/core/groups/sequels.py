"""What follows a write, where no group is concerned: an answer; and what comes before that where one is."""

from odradek.core.coordinator import answer
from odradek.core.coordinator.events import Sequel, Turn
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message


class Answer(answer.Answer):
    __slots__ = ()

    def _refusal(self, error: ErrorCode) -> Message:
        return refusal(self.request.message, error, self.request.version)


class Followed:
    """Something to be done first, and then what another sequel says."""

    __slots__ = ("sequel",)

    def __init__(self, sequel: Sequel) -> None:
        self.sequel = sequel

    def committed(self, turn: Turn) -> None:
        self.sequel.committed(turn)

    def failed(self, error: ErrorCode, turn: Turn) -> None:
        self.sequel.failed(error, turn)
