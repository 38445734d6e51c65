"""kraft.version rises by UpdateFeatures: when every voter has told the leader who it is, and that it supports it."""

import pytest

from odradek.core.controller.decision import Decision
from odradek.core.controller.features import UPGRADE, update_features
from odradek.core.metadata.features import KRAFT_VERSION
from odradek.core.raft.voters import Voter, VoterSet
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import NoOpRecord, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.core.controller.cluster import cluster


def voter(node_id: int, *, directory_id: bytes = b"1" * 16, highest: int = 1) -> Voter:
    return Voter(node_id, directory_id, (("CONTROLLER", "here", node_id),), 0, highest)


def raised(*voters: Voter, validate_only: bool = False, kraft_version: int = 0) -> Decision[UpdateFeaturesResponse]:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=KRAFT_VERSION, max_version_level=1, upgrade_type=UPGRADE)
    request = UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only)
    return update_features(
        cluster([]),
        request,
        version=2,
        node_id=1,
        kraft_version=kraft_version,
        voters=VoterSet(voters),
        min_insync_replicas=1,
    )


def test_it_rises_with_a_record_that_is_waited_for() -> None:
    decision = raised(voter(1), voter(2))
    assert decision.response.error_code == ErrorCode.NONE
    assert decision.kraft_version == 1
    assert decision.records == [(NoOpRecord(), 0)]


def test_validation_and_a_level_that_is_there_raise_nothing() -> None:
    for decision in (raised(voter(1), validate_only=True), raised(voter(1), kraft_version=1)):
        assert decision.response.error_code == ErrorCode.NONE
        assert decision.kraft_version is None


@pytest.mark.parametrize(
    ("other", "reason"),
    [(voter(2, directory_id=NIL_UUID), "have not told the leader"), (voter(2, highest=0), "do not support it")],
    ids=["silent", "old"],
)
def test_a_voter_that_is_silent_or_old_is_named(other: Voter, reason: str) -> None:
    decision = raised(voter(1), other)
    assert decision.response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"the voters [2] {reason}" in (decision.response.error_message or "")
    assert (decision.records, decision.kraft_version) == ([], None)
