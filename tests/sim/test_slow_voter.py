"""A voter that is far from the others comes back when its connections are lost, as long as the time-outs allow for the way.

A new connection costs a way there and back before anything can be asked on it. Who gave it up with the request that it was made
for would connect anew for ever: alive to the controller, and without any news of what it leads.
"""

from typing import Final

import pytest

from tests.sim.cluster import SimCluster, SimNode
from tests.sim.network import Link
from tests.sim.steady import steady_cluster

NEAR_SECONDS: Final = 0.001
BACK_SECONDS_MAX: Final = 30.0
LOOKS: Final = 4
LOOK_SECONDS: Final = 5.0


def removed(cluster: SimCluster, far: SimNode, way_s: float) -> None:
    """From now on a node is far from the others, and its connections to them are lost."""

    def latency_s(link: Link) -> float:
        return way_s if far.host in link else NEAR_SECONDS

    cluster.network.latency_s = latency_s  # type: ignore[method-assign]
    for end in cluster.network.connections():
        if far.host in end.out.link:
            cluster.network.break_connection(end)


@pytest.mark.parametrize("is_leader", [False, True], ids=["a follower", "the leader"])
@pytest.mark.parametrize("there_and_back_s", [0.8, 1.2, 1.4])  # of two seconds, and a fetch may be held back for half a one
def test_a_voter_far_away_comes_back(there_and_back_s: float, is_leader: bool) -> None:
    cluster = steady_cluster()
    leader = next(node.quorum.leader.leader_id for node in cluster.nodes.values())
    far = cluster.members[leader if is_leader else leader % 3 + 1]
    removed(cluster, far, there_and_back_s / 2)
    cluster.world.run(cluster.world.now_s + BACK_SECONDS_MAX)
    node = far.node
    assert node is not None
    for _ in range(LOOKS):
        known = node.quorum.image.offset
        cluster.world.run(cluster.world.now_s + LOOK_SECONDS)
        assert node.quorum.image.offset > known  # something is committed twice a second
        assert node.session.is_certain(node.partitions.monotonic_ms())
