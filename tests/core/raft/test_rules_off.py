"""Each rule of the quorum, switched off, is found out by random histories: so these would find it broken.

How to do without a rule stands in tests/sim/mutants, but for what is up to the host, which is another here. Some are found out by
what must never be, others only when all is well again and the quorum should be at peace.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from odradek.core.raft.effects import QuorumBroken
from odradek.core.raft.following import Following
from tests.core.raft.histories import SHAPES, begin, check_stays, disturb
from tests.core.raft.invariants import Broken
from tests.sim.mutants import quorum
from tests.sim.mutants.mutant import Patch

SEEDS_MAX = 300
THREE = "3 voters"


class Rule(NamedTuple):
    switch_off: Callable[[Patch], None]
    shape: str = THREE
    keeps_peace: bool = False  # nothing is lost without it


def synced_fetch(patch: Patch) -> None:
    known = Following.is_busy

    def is_busy(following: Following) -> bool:
        following.quorum.synced_offset = following.quorum.log.end_offset
        return known(following)

    patch.setattr(Following, "is_busy", is_busy)


RULES = {
    "a node votes once in an epoch": Rule(quorum.one_vote),
    "a vote goes to a log that is no shorter": Rule(quorum.longest_log),
    "a vote is on disk before it is answered": Rule(quorum.vote_before_answer),
    "a node never leads an epoch again that it led before a start": Rule(quorum.new_epoch),
    "there is a pre-vote before a vote": Rule(quorum.pre_vote, keeps_peace=True),
    "who hears from the leader refuses a pre-vote": Rule(quorum.loyal_follower, keeps_peace=True),
    "a leader from which no majority fetches resigns": Rule(quorum.check_quorum, keeps_peace=True),
    "the leader counts itself up to its own sync": Rule(quorum.own_sync),
    "what is of earlier epochs is committed with a record of the leader's own": Rule(quorum.own_epoch),
    "the next fetch leaves when what was fetched is synced": Rule(synced_fetch),
    "who fetches is told where the logs part": Rule(quorum.parting_logs),
    "who is below the start of the log gets the snapshot": Rule(quorum.snapshot_for_late_followers, keeps_peace=True),
    "voters change one at a time": Rule(quorum.one_change),
    "who becomes a voter has caught up": Rule(quorum.caught_up, "1 voter and an observer"),
    "a leader that is no voter any more resigns": Rule(quorum.leaver_resigns, keeps_peace=True),
    "a voter is known by its folder": Rule(quorum.own_folder, "3 voters, one of which loses its folder"),
    "the high watermark never goes back": Rule(quorum.watermark),
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
