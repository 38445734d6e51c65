"""A host for a coordinator of any kind: a log in memory, timers on a clock that the test moves, and the answers by ticket.

Invariants
 1. A ticket is answered at most once; `answer` fails where it was not answered.
 2. Every record is encoded and decoded on its way, so that what is replayed is what a log would give back.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from odradek.core.coordinator.coordinator import Coordinator
from odradek.core.coordinator.events import (
    CancelTimer,
    Committed,
    Effect,
    Now,
    Reply,
    Request,
    SetTimer,
    TimerFired,
    TimerKey,
    Write,
    WriteFailed,
)
from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import CoordinatorRecord, decode_coordinator_record, encode_coordinator_record
from odradek.wire.message import Message

WAIT_SECONDS_MAX = 3_600
WALL_MS = 1_700_000_000_000
RESPONSES = {api.request: api.response for api in APIS.values()}


Machine = TypeVar("Machine", bound=Coordinator)


class Host(ABC, Generic[Machine]):
    """Runs one coordinator. With `is_replicated` the test moves the high watermark itself."""

    topic: str

    def __init__(self, is_replicated: bool = False) -> None:
        self.is_replicated = is_replicated
        self.log: list[CoordinatorRecord] = []
        self.ends: list[int] = [0]  # where a write ends: it is one batch, which is committed or cut as a whole
        self.high_watermark = 0
        self.refusing: ErrorCode | None = None  # what the partition says to appends
        self.now = Now(monotonic_ms=0, wall_ms=WALL_MS)
        self.timers: dict[TimerKey, int] = {}
        self.answers: dict[int, Message] = {}
        self.asked: dict[int, tuple[type[Message], int]] = {}
        self.coordinator = self.new_coordinator()
        self.do(self.coordinator.loaded(self.now))

    @abstractmethod
    def new_coordinator(self) -> Machine:
        """Which has replayed nothing."""

    # Events

    def send(self, message: Message, version: int, client_id: str = "client") -> int:
        ticket = len(self.asked)
        self.asked[ticket] = (RESPONSES[type(message)], version)
        sent = type(message).decode(message.to_bytes(version), version)
        self.step(Request(ticket, sent, version, client_id, "/127.0.0.1"))
        return ticket

    def send_as_it_is(self, message: Message, version: int) -> int:
        """For what an API makes for the coordinator, which is in no version."""
        ticket = len(self.asked)
        self.asked[ticket] = (RESPONSES[type(message)], -1)
        self.step(Request(ticket, message, version, "client", "/127.0.0.1"))
        return ticket

    def call(self, message: Message, version: int, client_id: str = "client") -> Message:
        """A request that is answered at once."""
        return self.answer(self.send(message, version, client_id))

    def answer(self, ticket: int) -> Message:
        assert ticket in self.answers, "it waits"
        return self.answers[ticket]

    def step(self, event: Any) -> None:
        self.do(self.coordinator.step(event, self.now))

    def commit(self, high_watermark: int | None = None) -> None:
        self.high_watermark = len(self.log) if high_watermark is None else high_watermark
        self.step(Committed(self.high_watermark))

    def pass_time(self, ms: int) -> None:
        """Lets time pass, and timers fire in order."""
        end_ms = self.now.monotonic_ms + ms
        while due := [(deadline, key) for key, deadline in self.timers.items() if deadline <= end_ms]:
            deadline_ms, key = min(due)
            del self.timers[key]
            self._move_clock(max(deadline_ms, self.now.monotonic_ms))
            self.step(TimerFired(key))
        self._move_clock(end_ms)

    def wait_for(self, *tickets: int) -> None:
        """Lets time pass until all are answered."""
        for _ in range(WAIT_SECONDS_MAX):
            if self.answers.keys() >= set(tickets):
                return
            self.pass_time(1_000)
        raise AssertionError("nobody answers")

    def _move_clock(self, monotonic_ms: int) -> None:
        self.now = Now(monotonic_ms, self.now.wall_ms + monotonic_ms - self.now.monotonic_ms)

    # Effects

    def do(self, effects: list[Effect]) -> None:
        failed: list[WriteFailed] = []
        for effect in effects:
            match effect:
                case Reply():
                    self._reply(effect)
                case Write():
                    if self.refusing is None:
                        self._write(effect)
                    else:
                        failed.append(WriteFailed(effect, self.refusing))
                case SetTimer():
                    if not (effect.is_first and effect.key in self.timers):
                        self.timers[effect.key] = effect.deadline_ms
                case CancelTimer():
                    self.timers.pop(effect.key, None)
                case _:
                    self.do_own(effect)
        for event in failed:
            self.step(event)
        if not self.is_replicated and self.high_watermark < len(self.log):
            self.commit()

    def do_own(self, effect: Any) -> None:
        raise AssertionError(f"{type(effect).__name__} is not done here")

    def _reply(self, reply: Reply) -> None:
        assert isinstance(reply.ticket, int)
        assert reply.ticket not in self.answers, "a request is answered once"
        kind, version = self.asked[reply.ticket]
        response = reply.response
        self.answers[reply.ticket] = response if version < 0 else kind.decode(response.to_bytes(version), version)

    def _write(self, write: Write) -> None:
        base_offset = len(self.log)
        for record in write.records:
            self.log.append(decode_coordinator_record(self.topic, *encode_coordinator_record(*record)))
        self.ends.append(len(self.log))
        self.coordinator.appended(write, base_offset)

    # Failover

    def open_ends(self) -> list[int]:
        """Where the log can be cut, or the high watermark can come to."""
        return [end for end in self.ends if self.high_watermark <= end <= len(self.log)]

    def cut(self, end: int) -> None:
        del self.log[end:]
        self.ends = [found for found in self.ends if found <= end]

    def loaded_again(self) -> Machine:
        """Another coordinator that has replayed the same log."""
        fresh = self.new_coordinator()
        for offset, record in enumerate(self.log):
            fresh.replay(offset, record.key, record.value)
        return fresh

    def fail_over(self) -> None:
        self.do(self.coordinator.unloaded(self.now))
        assert self.answers.keys() == self.asked.keys()
        self.coordinator = self.loaded_again()
        self.timers.clear()
        self.do(self.coordinator.loaded(self.now))
