"""The rules of the metadata quorum, and how to do without each.

First those that the machine of the quorum keeps (core/raft), then those that its host does (node/quorum.py, metadata_log.py,
snapshots.py, controller.py): syncs, temporary files, what is rolled back.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pytest

from odradek.core.metadata.image import MetadataImage
from odradek.core.raft import states
from odradek.core.raft.batches import CorruptSnapshot, Snapshot, SnapshotId
from odradek.core.raft.changing import Changing, Refusal
from odradek.core.raft.effects import Append, Effect, HighWatermark, Persist
from odradek.core.raft.electing import Electing
from odradek.core.raft.election import QUORUM_STATE, Election
from odradek.core.raft.leading import Leading
from odradek.core.raft.machine import Raft
from odradek.core.raft.quorum_state import QuorumState
from odradek.core.raft.states import Candidate, Follower, Leader
from odradek.core.raft.voters import ReplicaKey, Voter, VoterSet
from odradek.log.disk import Disk, replace_file
from odradek.node import metadata_log, snapshots
from odradek.node.controller import ControllerHost
from odradek.node.metadata_log import MetadataLog
from odradek.node.quorum import Quorum
from odradek.wire.errors import ErrorCode
from tests.sim.mutants.mutant import Mutant, Patch

# -- elections


def one_vote(patch: Patch) -> None:
    known = states.may_vote

    def may_vote(_: ReplicaKey | None, leader_id: int, candidate: ReplicaKey, *, pre_vote: bool, up_to_date: bool) -> bool:
        return known(None, leader_id, candidate, pre_vote=pre_vote, up_to_date=up_to_date)

    patch.setattr(states, "may_vote", may_vote)


def longest_log(patch: Patch) -> None:
    known = states.may_vote

    def may_vote(voted: ReplicaKey | None, leader_id: int, candidate: ReplicaKey, *, pre_vote: bool, up_to_date: bool) -> bool:
        return known(voted, leader_id, candidate, pre_vote=pre_vote, up_to_date=up_to_date or True)

    patch.setattr(states, "may_vote", may_vote)


def vote_before_answer(patch: Patch) -> None:
    known = Raft._settle
    patch.setattr(Raft, "_settle", lambda *given: sorted(known(*given), key=lambda effect: isinstance(effect, Persist)))


def new_epoch(patch: Patch) -> None:
    known = Electing.start

    def start(electing: Electing, now_ms: int) -> None:
        quorum, saved = electing.quorum, electing.quorum.persisted
        if saved.leader_id == quorum.config.node_id and quorum.is_voter:
            quorum.become(Candidate(saved.epoch, now_ms, quorum._own_ballot(), 0, quorum.config.key))
            electing.lead(quorum.state, now_ms)  # type: ignore[arg-type]
        else:
            known(electing, now_ms)

    patch.setattr(Electing, "start", start)


def pre_vote(patch: Patch) -> None:
    def campaign(electing: Electing, now_ms: int) -> None:
        electing.quorum.become_candidate(now_ms)
        electing._count(now_ms)

    patch.setattr(Electing, "_campaign", campaign)


def loyal_follower(patch: Patch) -> None:
    patch.setattr(Follower, "grants", lambda _, __, *, pre_vote, up_to_date: pre_vote and up_to_date)


def check_quorum(patch: Patch) -> None:
    known = Leading.poll

    def poll(leading: Leading, leader: Leader, now_ms: int) -> int:
        leader.check_deadline_ms = max(leader.check_deadline_ms, now_ms + 1)
        return known(leading, leader, now_ms)

    patch.setattr(Leading, "poll", poll)


# -- what is committed


def own_sync(patch: Patch) -> None:
    known = Leading.count

    def count(leading: Leading, leader: Leader) -> bool:
        leading.quorum.synced_offset = leading.quorum.log.end_offset
        return known(leading, leader)

    patch.setattr(Leading, "count", count)


def own_epoch(patch: Patch) -> None:
    known = Leading.count

    def count(leading: Leading, leader: Leader) -> bool:
        leader.epoch_start, before = 0, leader.epoch_start
        try:
            return known(leading, leader)
        finally:
            leader.epoch_start = before

    patch.setattr(Leading, "count", count)


def synced_fetch(patch: Patch) -> None:
    """What was appended counts as synced at once."""
    known = Quorum._do

    def do(quorum: Quorum, effect: Effect) -> None:
        known(quorum, effect)
        if isinstance(effect, Append):
            quorum._input(partial(quorum.machine.synced, quorum.log.end_offset))

    patch.setattr(Quorum, "_do", do)


def parting_logs(patch: Patch) -> None:
    known = Leading._is_apart

    def is_apart(leading: Leading, partition: Any, wanted: Any) -> bool:
        return known(leading, partition, wanted) and partition.diverging_epoch.epoch < 0

    patch.setattr(Leading, "_is_apart", is_apart)


def watermark(patch: Patch) -> None:
    def advance(quorum: QuorumState, offset: int) -> None:
        quorum.high_watermark = offset
        quorum.do(HighWatermark(offset))

    patch.setattr(QuorumState, "advance", advance)


def snapshot_for_late_followers(patch: Patch) -> None:
    known = Leading._is_apart

    def is_apart(leading: Leading, partition: Any, wanted: Any) -> bool:
        return known(leading, partition, wanted) and partition.snapshot_id.epoch < 0

    patch.setattr(Leading, "_is_apart", is_apart)


# -- voters


def one_change(patch: Patch) -> None:
    def settled_voters(changing: Changing, leader: Leader) -> Any:
        if leader.high_watermark < 0:
            raise Refusal(ErrorCode.REQUEST_TIMED_OUT)
        return changing.quorum.history.voters

    patch.setattr(Changing, "_settled_voters", settled_voters)


def caught_up(patch: Patch) -> None:
    patch.setattr(Changing, "_check_caught_up", lambda *_: None)


def leaver_resigns(patch: Patch) -> None:
    known = Changing.committed

    def committed(changing: Changing, leader: Leader) -> None:
        known(changing, leader)
        leader.leaves = False

    patch.setattr(Changing, "committed", committed)


def own_folder(patch: Patch) -> None:
    def without(voters: VoterSet, key: ReplicaKey) -> VoterSet | None:
        left = tuple(voter for voter in voters.voters if voter.id != key.id)
        return VoterSet(left) if 0 < len(left) < len(voters.voters) else None

    patch.setattr(Voter, "matches", lambda voter, key: voter.id == key.id)
    patch.setattr(VoterSet, "without", without)


# -- what the host does


def vote_on_disk(patch: Patch) -> None:
    """Votes are only in memory: a node that starts again knows the epoch of its log, and nothing of its vote."""

    def write_election(log: MetadataLog, election: Election, kraft_version: int, voter_ids: list[int]) -> None:
        forgetful = Election(epoch=election.epoch)
        replace_file(log.disk, f"{log.folder}/{QUORUM_STATE}", forgetful.to_json(kraft_version, voter_ids))

    patch.setattr(MetadataLog, "write_election", write_election)


def vote_synced(patch: Patch) -> None:
    """The vote is written, and not synced."""

    def write_election(log: MetadataLog, election: Election, kraft_version: int, voter_ids: list[int]) -> None:
        path = f"{log.folder}/{QUORUM_STATE}"
        log.disk.remove(path + ".tmp")
        log.disk.open(path + ".tmp", create=True).append([election.to_json(kraft_version, voter_ids)])
        log.disk.rename(path + ".tmp", path)

    patch.setattr(MetadataLog, "write_election", write_election)


def snapshot_beside(patch: Patch) -> None:
    """A snapshot is written under its own name from the first byte on."""

    def write_snapshot(disk: Disk, folder: str, snapshot: SnapshotId, batches: Iterable[bytes | bytearray]) -> int:
        file = disk.open(f"{folder}/{snapshot.name}", create=True)
        file.truncate(0)
        for batch in batches:
            file.append([batch])
        file.sync()
        disk.sync_folder(folder)
        return file.size

    patch.setattr(snapshots, "write_snapshot", write_snapshot)


def snapshot_synced(patch: Patch) -> None:
    """A snapshot is renamed before it is synced, which it never is."""

    def write_snapshot(disk: Disk, folder: str, snapshot: SnapshotId, batches: Iterable[bytes | bytearray]) -> int:
        path = f"{folder}/{snapshot.name}"
        disk.remove(path + metadata_log.PART)
        file = disk.open(path + metadata_log.PART, create=True)
        for batch in batches:
            file.append([batch])
        disk.rename(path + metadata_log.PART, path)
        disk.sync_folder(folder)
        return file.size

    patch.setattr(snapshots, "write_snapshot", write_snapshot)


def snapshot_has_its_name(patch: Patch) -> None:
    """A snapshot is renamed, and its folder is not synced."""

    def write_snapshot(disk: Disk, folder: str, snapshot: SnapshotId, batches: Iterable[bytes | bytearray]) -> int:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(disk, "sync_folder", lambda _: None)
            return metadata_log.write_snapshot(disk, folder, snapshot, batches)

    patch.setattr(snapshots, "write_snapshot", write_snapshot)


def snapshot_at_the_start(patch: Patch) -> None:
    """The log is cut before the snapshot that is to stand at its start: with the newest one all go."""

    def clean_while(log: MetadataLog, _: object, now_ms: int) -> None:
        newest = log.newest_snapshot
        if newest is None or newest.offset <= log.log.start_offset:
            return
        log.log.move_start(newest.offset)
        log.log.delete_expired(now_ms)
        for snapshot in list(log.snapshots):
            log.disk.remove(f"{log.folder}/{snapshot.name}")
            log.snapshots.remove(snapshot)

    patch.setattr(MetadataLog, "_clean_while", clean_while)


def corrupt_snapshot_erases_nothing(patch: Patch) -> None:
    """One that cannot be read counts as one that holds nothing."""
    known = MetadataLog.read_snapshot

    def read_snapshot(log: MetadataLog, snapshot: SnapshotId) -> Snapshot:
        with suppress(CorruptSnapshot):
            return known(log, snapshot)
        return Snapshot(0, 0, None, [])

    patch.setattr(MetadataLog, "read_snapshot", read_snapshot)


def rolled_back(patch: Patch) -> None:
    """A controller that is active again goes on with what it thought before."""
    leave, activate = ControllerHost._deactivate, ControllerHost._activate
    thoughts: dict[ControllerHost, MetadataImage] = {}

    def deactivate(host: ControllerHost) -> None:
        if host.controller is not None:
            thoughts[host] = host.controller.image
        leave(host)

    def begin(host: ControllerHost) -> None:
        image, before = host.quorum.image, thoughts.get(host)
        if before is None:
            activate(host)
            return
        image.copy = lambda: before  # type: ignore[method-assign]
        try:
            activate(host)
        finally:
            del image.copy

    patch.setattr(ControllerHost, "_deactivate", deactivate)
    patch.setattr(ControllerHost, "_activate", begin)


MUTANTS: Final = (
    Mutant("a node votes once in an epoch", one_vote, "elections", "quorum", nodes=5),
    Mutant("a vote goes to a log that is no shorter", longest_log, "elections", "quorum"),
    Mutant("there is a pre-vote before a vote", pre_vote, "links"),
    Mutant("who hears from the leader refuses a pre-vote", loyal_follower, "elections", "quorum"),
    Mutant("a leader from which no majority fetches resigns", check_quorum, "links"),
    Mutant("a vote is on disk before it is answered", vote_on_disk, "elections", "quorum"),
    Mutant("a vote is synced before it is answered", vote_synced, "elections", "quorum"),
    Mutant("a node never leads an epoch again that it led before a start", new_epoch, "processes"),
    Mutant("the leader counts itself up to its own sync", own_sync, "elections", "quorum"),
    Mutant("what is of earlier epochs is committed with a record of the leader's own", own_epoch, "elections", "quorum"),
    Mutant("the next fetch leaves when what was fetched is synced", synced_fetch, "elections", "quorum"),
    Mutant("who fetches is told where the logs part", parting_logs, "elections", "quorum"),
    Mutant("the high watermark never goes back", watermark, "elections", "quorum"),
    Mutant("who is below the start of the log gets the snapshot", snapshot_for_late_followers, "metadata", "quorum"),
    Mutant("a snapshot is written to a temporary file", snapshot_beside, "metadata", "quorum"),
    Mutant("a snapshot is synced before it has its name", snapshot_synced, "metadata", "quorum"),
    Mutant("so is the name of a snapshot", snapshot_has_its_name, "power at metadata", "snapshots"),
    Mutant("the start of the log always has a snapshot", snapshot_at_the_start, "metadata", "quorum"),
    Mutant("a corrupt snapshot erases nothing", corrupt_snapshot_erases_nothing, "rot of files", "snapshots"),
    Mutant("voters change one at a time", one_change, "elections", "quorum", nodes=5),
    Mutant("who becomes a voter has caught up", caught_up, "elections", "quorum", nodes=5),
    Mutant("a leader that is no voter any more resigns", leaver_resigns, "elections", "quorum", nodes=5),
    Mutant("a voter is known by its folder", own_folder, "elections", "quorum"),
    Mutant("what a controller decided ahead of the commit is gone with its leadership", rolled_back, "elections", "quorum"),
)
