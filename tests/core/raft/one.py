"""One machine of a quorum, with a host that does what it says at once and keeps all of it for the test to look at."""

from collections.abc import Iterable
from typing import TypeVar

from odradek.core.raft.batches import SnapshotId, control_batch
from odradek.core.raft.effects import Answer, Append, AppendControl, Effect, RaftConfig, Send, Truncate
from odradek.core.raft.election import Election
from odradek.core.raft.machine import Raft
from odradek.core.raft.requests import (
    Asked,
    KnownLeader,
    begin_quorum_epoch_request,
    begin_quorum_epoch_response,
    fetch_request,
    fetch_response,
    vote_request,
    vote_response,
)
from odradek.core.raft.voters import VoterSet
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import FetchResponse, VoteRequest, VoteResponse
from tests.core.raft.memory import CLUSTER_ID, MemoryLog, data_batch, snapshot_bytes, voter_of, voters_of

Kind = TypeVar("Kind")
NEWEST = 99
TICKS_MAX = 10_000


def fetch_of(node_id: int, epoch: int, last: tuple[int, int], **fields: int) -> Message:
    request = fetch_request(CLUSTER_ID, voter_of(node_id).key, epoch, last, fields.pop("high_watermark", 2**63 - 1), 1 << 20)
    request.max_wait_ms = fields.pop("max_wait_ms", 0)
    assert not fields
    return request


def vote_of(node_id: int, epoch: int, last: tuple[int, int], *, to: int = 1, pre_vote: bool = False) -> Message:
    return vote_request(CLUSTER_ID, epoch, voter_of(node_id).key, voter_of(to).key, last, pre_vote=pre_vote)


def begin_of(node_id: int, epoch: int, *, to: int = 1) -> Message:
    return begin_quorum_epoch_request(CLUSTER_ID, known(node_id, epoch), voter_of(to).key)


def known(node_id: int, epoch: int) -> KnownLeader:
    return KnownLeader(node_id, epoch, voter_of(node_id).endpoints if node_id >= 0 else ())


def granted(epoch: int, *, yes: bool = True) -> VoteResponse:
    return vote_response(known(-1, epoch), Asked(2, ""), ErrorCode.NONE, granted=yes)


def fetched(leader_id: int, epoch: int, records: bytes = b"", high_watermark: int = -1) -> FetchResponse:
    response = fetch_response(known(leader_id, epoch), Asked(17, ""), ErrorCode.NONE, high_watermark=high_watermark)
    response.responses[0].partitions[0].records = records
    return response


def begun(epoch: int, leader_id: int) -> Message:
    return begin_quorum_epoch_response(known(leader_id, epoch), Asked(1, ""), ErrorCode.NONE)


class One:
    def __init__(
        self,
        node_id: int = 1,
        voters: VoterSet | None = None,
        *,
        election: Election = Election(),  # noqa: B008
        log: MemoryLog | None = None,
        dynamic: bool = True,
        auto_join: bool = False,
        syncs: bool = True,
    ) -> None:
        voters = voters or voters_of(1, 2, 3)
        self.log = log or MemoryLog()
        self.now_ms = 1000
        self.syncs = syncs
        config = RaftConfig(
            cluster_id=CLUSTER_ID,
            node_id=node_id,
            directory_id=voter_of(node_id).directory_id,
            endpoints=voter_of(node_id).endpoints,
            auto_join=auto_join,
        )
        history = self.log.history(VoterSet(()) if dynamic else voters, voters if dynamic else None)
        self.raft = Raft(config, self.log, history, election, lambda _: 0)
        self.effects: list[Effect] = []
        self.done: list[Effect] = []
        self.does(self.raft.start(self.now_ms))

    def does(self, effects: Iterable[Effect]) -> list[Effect]:
        """Does the effects, and those that follow from that; gives all of them."""
        self.effects = list(effects)
        for effect in self.effects:
            match effect:
                case AppendControl(messages, base_offset, epoch):
                    self.log.append(control_batch(messages, base_offset=base_offset, epoch=epoch, now_ms=0))
                case Append(records, _):
                    self.log.append(records)
                case Truncate(end_offset):
                    self.log.truncate(end_offset)
                case _:
                    pass
        found = self.effects
        if any(isinstance(effect, Append | AppendControl) for effect in found) and self.syncs:
            found = found + self.sync()
        self.effects = found
        self.done += found
        return found

    def sync(self) -> list[Effect]:
        self.log.synced_offset = self.log.end_offset
        return self.does(self.raft.synced(self.log.end_offset, self.now_ms))

    def passes(self, duration_ms: int) -> list[Effect]:
        """Time passes, with a tick whenever one is asked for."""
        found: list[Effect] = []
        end_ms = self.now_ms + duration_ms
        ticks = 0
        while self.raft.deadline_ms <= end_ms:
            ticks += 1
            assert ticks < TICKS_MAX, "time does not pass"
            self.now_ms = max(self.raft.deadline_ms, self.now_ms)
            found += self.does(self.raft.tick(self.now_ms))
        self.now_ms = end_ms
        self.effects = found + self.does(self.raft.tick(self.now_ms))
        return self.effects

    def asked(self, request: Message, version: int = NEWEST) -> list[Effect]:
        return self.does(self.raft.receive("ticket", request, version, self.now_ms))

    def answers(self, request: Message, version: int = NEWEST) -> Message:
        """The answer to a request that is answered at once, with nothing to be read."""
        self.asked(request, version)
        return self.only(Answer).response

    def all(self, kind: type[Kind]) -> list[Kind]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def only(self, kind: type[Kind]) -> Kind:
        (found,) = self.all(kind)
        return found

    def sent(self, kind: type[Message]) -> dict[int, Send]:
        """What was sent last, by node, in this life."""
        return {send.node.id: send for send in self.done if isinstance(send, Send) and isinstance(send.request, kind)}

    def hears(self, send: Send, response: Message | None) -> list[Effect]:
        return self.does(self.raft.responded(send.correlation_id, response, self.now_ms))

    # -- ways into a state

    def campaigns(self) -> "One":
        """Asks the others for their pre-votes."""
        for _ in range(TICKS_MAX):
            if self.sent(VoteRequest):
                return self
            self.passes(max(self.raft.deadline_ms - self.now_ms, 1))
        raise AssertionError("it does not campaign")

    def wins(self) -> "One":
        """Is elected by node 2."""
        self.campaigns()
        self.hears(self.sent(VoteRequest)[2], granted(self.raft.epoch))
        self.hears(self.sent(VoteRequest)[2], granted(self.raft.epoch))
        assert self.raft.is_leader
        return self

    def commits(self) -> "One":
        """Nodes 2 and 3 have fetched all of the log."""
        for node_id in (2, 3):
            self.fetches(node_id)
        return self

    def fetches(self, node_id: int) -> list[Effect]:
        last = self.log.last_epoch, self.log.end_offset
        return self.asked(fetch_of(node_id, self.raft.epoch, last, max_wait_ms=0))

    def appends(self, value: bytes = b"x") -> list[Effect]:
        """What a controller does that leads."""
        self.log.append(data_batch(self.log.end_offset, self.raft.epoch, value))
        found = self.does(self.raft.appended(self.now_ms))
        return found + (self.sync() if self.syncs else [])

    def follows(self, leader_id: int = 2, epoch: int = 1) -> "One":
        self.asked(begin_of(leader_id, epoch))
        assert self.raft.leader.leader_id == leader_id
        return self


def log_of(*epochs: int, start: SnapshotId | None = None, voters: VoterSet | None = None) -> MemoryLog:
    """A log with one record of each epoch, after a snapshot perhaps."""
    log = MemoryLog()
    if start is not None:
        log.begin_at(start, snapshot_bytes(start, 1, voters or voters_of(1, 2, 3)))
    for epoch in epochs:
        log.append(data_batch(log.end_offset, epoch))
    log.synced_offset = log.end_offset
    return log
