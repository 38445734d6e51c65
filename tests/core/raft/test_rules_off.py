"""Each rule of the quorum, switched off, is found out by random histories: so these would find it broken.

A rule stands in the module that keeps it; here is how to do without. Some are found out by what must never be, others only when
all is well again and the quorum should be at peace.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from odradek.core.raft import states
from odradek.core.raft.changing import Changing, Refusal
from odradek.core.raft.effects import HighWatermark, Persist, QuorumBroken
from odradek.core.raft.electing import Electing
from odradek.core.raft.following import Following
from odradek.core.raft.leading import Leading
from odradek.core.raft.machine import Raft
from odradek.core.raft.quorum_state import QuorumState
from odradek.core.raft.states import Candidate, Follower, Leader
from odradek.core.raft.voters import ReplicaKey, Voter
from odradek.wire.errors import ErrorCode
from tests.core.raft.histories import SHAPES, begin, check_stays, disturb
from tests.core.raft.invariants import Broken

SEEDS_MAX = 300
THREE = "3 voters"


class Rule(NamedTuple):
    switch_off: Callable[[pytest.MonkeyPatch], None]
    shape: str = THREE
    keeps_peace: bool = False  # nothing is lost without it


def one_vote(patch: pytest.MonkeyPatch) -> None:
    known = states.may_vote

    def may_vote(_: ReplicaKey | None, leader_id: int, candidate: ReplicaKey, *, pre_vote: bool, up_to_date: bool) -> bool:
        return known(None, leader_id, candidate, pre_vote=pre_vote, up_to_date=up_to_date)

    patch.setattr(states, "may_vote", may_vote)


def longest_log(patch: pytest.MonkeyPatch) -> None:
    known = states.may_vote

    def may_vote(voted: ReplicaKey | None, leader_id: int, candidate: ReplicaKey, *, pre_vote: bool, up_to_date: bool) -> bool:
        return known(voted, leader_id, candidate, pre_vote=pre_vote, up_to_date=up_to_date or True)

    patch.setattr(states, "may_vote", may_vote)


def vote_on_disk(patch: pytest.MonkeyPatch) -> None:
    known = Raft._settle
    patch.setattr(Raft, "_settle", lambda *given: sorted(known(*given), key=lambda effect: isinstance(effect, Persist)))


def new_epoch(patch: pytest.MonkeyPatch) -> None:
    known = Electing.start

    def start(electing: Electing, now_ms: int) -> None:
        quorum, saved = electing.quorum, electing.quorum.persisted
        if saved.leader_id == quorum.config.node_id and quorum.is_voter:
            quorum.become(Candidate(saved.epoch, now_ms, quorum._own_ballot(), 0, quorum.config.key))
            electing.lead(quorum.state, now_ms)  # type: ignore[arg-type]
        else:
            known(electing, now_ms)

    patch.setattr(Electing, "start", start)


def pre_vote(patch: pytest.MonkeyPatch) -> None:
    def campaign(electing: Electing, now_ms: int) -> None:
        electing.quorum.become_candidate(now_ms)
        electing._count(now_ms)

    patch.setattr(Electing, "_campaign", campaign)


def loyal_follower(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Follower, "grants", lambda _, __, *, pre_vote, up_to_date: pre_vote and up_to_date)


def check_quorum(patch: pytest.MonkeyPatch) -> None:
    known = Leading.poll

    def poll(leading: Leading, leader: Leader, now_ms: int) -> int:
        leader.check_deadline_ms = max(leader.check_deadline_ms, now_ms + 1)
        return known(leading, leader, now_ms)

    patch.setattr(Leading, "poll", poll)


def own_sync(patch: pytest.MonkeyPatch) -> None:
    known = Leading.count

    def count(leading: Leading, leader: Leader) -> bool:
        leading.quorum.synced_offset = leading.quorum.log.end_offset
        return known(leading, leader)

    patch.setattr(Leading, "count", count)


def own_epoch(patch: pytest.MonkeyPatch) -> None:
    known = Leading.count

    def count(leading: Leading, leader: Leader) -> bool:
        leader.epoch_start, before = 0, leader.epoch_start
        try:
            return known(leading, leader)
        finally:
            leader.epoch_start = before

    patch.setattr(Leading, "count", count)


def synced_fetch(patch: pytest.MonkeyPatch) -> None:
    known = Following.is_busy

    def is_busy(following: Following, state: Follower) -> bool:
        following.quorum.synced_offset = following.quorum.log.end_offset
        return known(following, state)

    patch.setattr(Following, "is_busy", is_busy)


def parting_logs(patch: pytest.MonkeyPatch) -> None:
    known = Leading._is_apart

    def is_apart(leading: Leading, partition: Any, wanted: Any) -> bool:
        return known(leading, partition, wanted) and partition.diverging_epoch.epoch < 0

    patch.setattr(Leading, "_is_apart", is_apart)


def snapshots(patch: pytest.MonkeyPatch) -> None:
    known = Leading._is_apart

    def is_apart(leading: Leading, partition: Any, wanted: Any) -> bool:
        return known(leading, partition, wanted) and partition.snapshot_id.epoch < 0

    patch.setattr(Leading, "_is_apart", is_apart)


def one_change(patch: pytest.MonkeyPatch) -> None:
    def settled_voters(changing: Changing, leader: Leader) -> Any:
        if leader.high_watermark < 0:
            raise Refusal(ErrorCode.REQUEST_TIMED_OUT)
        return changing.quorum.history.voters

    patch.setattr(Changing, "_settled_voters", settled_voters)


def caught_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Changing, "_check_caught_up", lambda *_: None)


def leaver_resigns(patch: pytest.MonkeyPatch) -> None:
    known = Changing.committed

    def committed(changing: Changing, leader: Leader) -> None:
        known(changing, leader)
        leader.leaves = False

    patch.setattr(Changing, "committed", committed)


def own_folder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Voter, "matches", lambda voter, key: voter.id == key.id)


def watermark(patch: pytest.MonkeyPatch) -> None:
    def advance(quorum: QuorumState, offset: int) -> None:
        quorum.high_watermark = offset
        quorum.do(HighWatermark(offset))

    patch.setattr(QuorumState, "advance", advance)


RULES = {
    "a node votes once in an epoch": Rule(one_vote),
    "a vote goes to a log that is no shorter": Rule(longest_log),
    "a vote is on disk before it is answered": Rule(vote_on_disk),
    "a node never leads an epoch again that it led before a start": Rule(new_epoch),
    "there is a pre-vote before a vote": Rule(pre_vote, keeps_peace=True),
    "who hears from the leader refuses a pre-vote": Rule(loyal_follower, keeps_peace=True),
    "a leader from which no majority fetches resigns": Rule(check_quorum, keeps_peace=True),
    "the leader counts itself up to its own sync": Rule(own_sync),
    "what is of earlier epochs is committed with a record of the leader's own": Rule(own_epoch),
    "the next fetch leaves when what was fetched is synced": Rule(synced_fetch),
    "who fetches is told where the logs part": Rule(parting_logs),
    "who is below the start of the log gets the snapshot": Rule(snapshots, keeps_peace=True),
    "voters change one at a time": Rule(one_change),
    "who becomes a voter has caught up": Rule(caught_up, "1 voter and an observer"),
    "a leader that is no voter any more resigns": Rule(leaver_resigns, keeps_peace=True),
    "a voter is known by its folder": Rule(own_folder, "3 voters, one of which loses its folder"),
    "the high watermark never goes back": Rule(watermark),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_is_switched_off_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = RULES[name]
    rule.switch_off(monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            cluster = begin(SHAPES[rule.shape], seed)
            disturb(cluster, SHAPES[rule.shape])
            if rule.keeps_peace:
                check_stays(cluster)
        except (Broken, QuorumBroken):
            return
    raise AssertionError(f"{SEEDS_MAX} histories do without it")
