"""Requests to other nodes: one at a time to each, with a timeout, and a pause after a failure.

Invariants
 1. A node has at most one request that counts; the answer to an earlier one is not expected any more.
 2. After a failure nothing goes to a node for `retry_backoff_ms`.
"""

import msgspec

from odradek.core.raft.effects import Node, Send
from odradek.wire.message import Message


class Pending(msgspec.Struct, frozen=True):
    correlation_id: int
    node: Node
    request: Message
    deadline_ms: int


class Outbox:
    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self.request_timeout_ms = request_timeout_ms
        self.retry_backoff_ms = retry_backoff_ms
        self.pending: dict[int, Pending] = {}  # by node; nodes are voters, bootstrap servers, and one that is to vote
        self.paused_until_ms: dict[int, int] = {}
        self._next_id = 0

    def reset(self) -> None:
        """Nothing that was sent counts any more."""
        self.pending.clear()
        self.paused_until_ms.clear()

    def is_paused(self, node_id: int, now_ms: int) -> bool:
        return self.paused_until_ms.get(node_id, 0) > now_ms

    def has_timed_out(self, node_id: int, now_ms: int) -> bool:
        pending = self.pending.get(node_id)
        return pending is not None and pending.deadline_ms <= now_ms

    def ready_ms(self, node_id: int, now_ms: int) -> int:
        """When the node can be sent something; `now_ms` or earlier when it can be now."""
        pending = self.pending.get(node_id)
        waited = pending.deadline_ms if pending is not None else now_ms
        return max(waited, self.paused_until_ms.get(node_id, 0))

    def send(self, node: Node, request: Message, now_ms: int) -> Send:
        assert self.ready_ms(node.id, now_ms) <= now_ms
        self._next_id += 1
        self.pending[node.id] = Pending(self._next_id, node, request, now_ms + self.request_timeout_ms)
        return Send(self._next_id, node, request)

    def take(self, correlation_id: int) -> Pending | None:
        """The request that is answered; None when nobody waits for that any more."""
        for node_id, pending in self.pending.items():
            if pending.correlation_id == correlation_id:
                return self.pending.pop(node_id)
        return None

    def pause(self, node_id: int, now_ms: int) -> None:
        self.paused_until_ms[node_id] = now_ms + self.retry_backoff_ms
