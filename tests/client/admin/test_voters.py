"""Voters that come and go by an Admin, in a quorum of ours and in Apache Kafka's."""

from pathlib import Path

import pytest

from odradek.client.admin import Admin, Endpoint
from odradek.client.errors import Refused
from odradek.wire.errors import ErrorCode
from tests.client.admin.scenario import administer, seen
from tests.clients.members import Members
from tests.kafka.broker import CLUSTER_ID
from tests.kafka.oracle import Oracle

FIRST, OTHER, BROKER = 1, 2, 11
ALL = {FIRST, OTHER, BROKER}
ANOTHER_ID = "BBBBBBBBBBBBBBBBBBBBQQ"


@pytest.mark.parametrize("ours", [ALL, set()], ids=["ours", "Kafka"])
def test_a_controller_becomes_a_voter_and_is_none_again(oracle: Oracle, tmp_path: Path, ours: set[int]) -> None:
    members = Members(tmp_path, oracle, ours, ALL - ours)
    members[FIRST].format_by(oracle, "--standalone")
    members[OTHER].format_by(oracle, "--no-initial-controllers")
    members[BROKER].format_by(oracle)

    async def scenario(admin: Admin) -> None:
        other = members[OTHER]
        where = [Endpoint("CONTROLLER", "127.0.0.1", other.port)]
        before = await seen(admin.describe_quorum, "it reads", as_wanted=lambda found: OTHER in found.observers)
        assert set(before.voters) == {FIRST}
        with pytest.raises(Refused) as caught:
            await admin.add_voter(OTHER, other.directory_id, where, cluster_id=ANOTHER_ID)
        assert caught.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID

        async def add() -> bool:
            """It is refused until the controller has caught up."""
            await admin.add_voter(OTHER, other.directory_id, where, cluster_id=CLUSTER_ID)
            return True

        await seen(add, "it has caught up")
        during = await seen(admin.describe_quorum, "it votes", as_wanted=lambda found: OTHER in found.voters)
        assert during.voters[OTHER].directory_id == other.directory_id
        assert during.endpoints[OTHER] == tuple(where)
        await admin.remove_voter(OTHER, other.directory_id, cluster_id=CLUSTER_ID)
        after = await seen(admin.describe_quorum, "it reads only", as_wanted=lambda found: OTHER in found.observers)
        assert set(after.voters) == {FIRST}

    with members.running():
        members.start(*ALL)
        administer(members[BROKER], scenario)
