"""What must never be in a quorum, looked at in everything that its nodes do, from outside and with the knowledge of all of them.

Invariants
 1. An epoch has one leader, once. A node votes once in an epoch.
 2. What is committed stands: every leader has all of it, nobody ever has another record in its place, and no node takes back what
    it knows to be committed.
 3. Two logs that have a batch of one offset and epoch have the same before it.
 4. Voters change by one at a time, from a set that is committed, and who is added has caught up with its leader.
"""

from typing import Final, NamedTuple

from odradek.core.raft.effects import AppendControl, BecameLeader
from odradek.core.raft.election import NOBODY, Election
from odradek.core.raft.history import VoterHistory
from odradek.core.raft.machine import Raft
from odradek.core.raft.voters import ReplicaKey, VoterSet
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import VotersRecord
from tests.core.raft.memory import Batch, MemoryLog

BATCHES_LOOKED_AT: Final = 3  # of the end of a log that grew: no fetch brings more at once


class Broken(AssertionError):
    """What must never be was."""


def hold(condition: bool, what: str) -> None:
    if not condition:
        raise Broken(what)


class Written(NamedTuple):
    """A batch, and the epoch of the one before it."""

    end_offset: int
    epoch: int
    crc: int
    epoch_before: int


def written(log: MemoryLog, at: int) -> Written:
    batch = log.batches[at]
    before = log.batches[at - 1].epoch if at else log.start.epoch
    return Written(batch.end_offset, batch.epoch, batch.crc, before)


class Invariants:
    def __init__(self) -> None:
        self.leaders: dict[int, ReplicaKey] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.written: dict[tuple[int, int], Written] = {}  # by offset and epoch
        self.committed: dict[int, Batch] = {}  # by base offset
        self.committed_offset = 0

    def voted(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        before = self.votes.setdefault((voter, epoch), candidate)
        is_known = NIL_UUID not in (
            before.directory_id,
            candidate.directory_id,
        )  # where voters are fixed, no folder is written down
        is_same = before == candidate if is_known else before.id == candidate.id
        hold(is_same, f"{voter} votes in epoch {epoch} for {before} and {candidate}")

    def persisted(self, voter: ReplicaKey, election: Election) -> None:
        if election.voted_id != NOBODY:
            self.voted(voter, election.epoch, ReplicaKey(election.voted_id, election.voted_directory_id))

    def grew(self, log: MemoryLog) -> None:
        for at in range(max(len(log.batches) - BATCHES_LOOKED_AT, 0), len(log.batches)):
            batch, found = log.batches[at], written(log, at)
            before = self.written.setdefault((batch.base_offset, batch.epoch), found)
            hold(before == found, f"two logs have {before} and {found} at {batch.base_offset}")

    def leads(self, key: ReplicaKey, won: BecameLeader, log: MemoryLog) -> None:
        hold(won.epoch not in self.leaders, f"{self.leaders.get(won.epoch)} and {key} lead epoch {won.epoch}")
        self.leaders[won.epoch] = key
        self.has_committed(log, self.committed_offset)

    def commits(self, log: MemoryLog, before: int, offset: int) -> None:
        """A node that knew that what is below one offset is committed comes to know the same of another."""
        hold(offset > before, f"the high watermark goes from {before} to {offset}")
        for batch in log.batches:
            if batch.end_offset <= offset and batch.base_offset not in self.committed:
                self.committed[batch.base_offset] = batch
                self.committed_offset = max(self.committed_offset, batch.end_offset)
        self.has_committed(log, offset)

    def has_committed(self, log: MemoryLog, end_offset: int) -> None:
        """All that is committed below an offset is in a log, or below its start."""
        held = {batch.base_offset: batch for batch in log.batches}
        for base_offset, batch in self.committed.items():
            if log.start_offset <= base_offset and batch.end_offset <= end_offset:
                hold(held.get(base_offset) == batch, f"what was committed at {base_offset} is another, or lost")
        hold(log.end_offset >= end_offset, f"a log ends at {log.end_offset}, below {end_offset} which was committed")

    def appends(self, raft: Raft, append: AppendControl, before: VoterHistory, logs: dict[ReplicaKey, MemoryLog]) -> None:
        """A leader appends control records; `before` is what its log says of voters until then."""
        named = [VoterSet.of(message) for _, message in append.messages if isinstance(message, VotersRecord)]
        old, new = ({voter.key for voter in voters.voters} for voters in (before.voters, named[-1] if named else before.voters))
        if old == new or before.kraft_version == 0:
            return
        hold(len(old ^ new) == 1, f"the voters become {new} at once, from {old}")
        hold(before.voters_offset < self.committed_offset, f"the voters become {new} before {old} are committed")
        leadership = raft.leadership
        assert leadership is not None
        for added in new - old:
            caught_up = added in logs and logs[added].end_offset >= leadership.epoch_start
            hold(caught_up, f"{added} is added and has not caught up")
