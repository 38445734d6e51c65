"""The simulated cluster itself: it is the production node that runs, one seed is one run, and a node ends when it should."""

import pytest

from odradek.log.names import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import DeleteRecordsRequest, DeleteRecordsResponse
from tests.sim.cluster import SimCluster
from tests.sim.faults import DAY_MS
from tests.sim.loop import World
from tests.sim.steady import Client, steady_cluster, tell

START_SECONDS_MAX = 5.0


def cluster_of(count: int, seed: str = "1") -> SimCluster:
    return SimCluster(World(seed), count, {})


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_cluster_starts_and_stops(count: int) -> None:
    cluster = cluster_of(count)
    cluster.start()
    cluster.world.run(START_SECONDS_MAX)
    assert len(cluster.nodes) == count
    assert sum(node.controller.is_active for node in cluster.nodes.values()) == 1
    for member in cluster.members.values():
        member.stop()
    cluster.world.run(2 * START_SECONDS_MAX)
    assert not any(member.is_up for member in cluster.members.values())
    assert [loop.complaints for loop in cluster.loops if loop.complaints] == []


def test_a_node_that_waits_for_others_ends_when_it_is_stopped() -> None:
    cluster = cluster_of(3)
    alone = cluster.members[1]
    alone.start()
    cluster.world.run(START_SECONDS_MAX)
    assert alone.node is None
    assert alone.loop is not None
    alone.is_wanted = False
    alone.loop.call_soon(alone.starting.stop)
    cluster.world.run(2 * START_SECONDS_MAX)
    assert not alone.is_up


def test_a_node_whose_disk_fails_while_it_waits_for_others_ends() -> None:
    cluster = cluster_of(3)
    alone = cluster.members[1]
    alone.start()
    cluster.world.run(START_SECONDS_MAX)
    assert alone.loop is not None
    alone.is_wanted = False
    alone.disks.fail(("sync", "append"))
    cluster.members[2].start()  # with which there is something to write
    cluster.world.run(2 * START_SECONDS_MAX)
    assert not alone.is_up
    assert alone.ends


@pytest.mark.parametrize("pause_s", [0.0, 0.0005, 0.001, 0.002, 0.01, 0.05])
def test_a_controller_that_slept_still_sees_that_a_broker_has_ended(pause_s: float) -> None:
    """Which has started again meanwhile, and is not to wait until the session of its past life is over."""
    cluster = SimCluster(World("1"), 3, {"broker.session.timeout.ms": "600000"}, controllers=1)
    cluster.start()
    cluster.world.run(START_SECONDS_MAX)
    sleeper, ended = cluster.members[1], cluster.members[3]
    ended.kill()
    cluster.world.run(cluster.world.now_s + pause_s)
    sleeper.pause()
    ended.start()
    cluster.world.run(cluster.world.now_s + START_SECONDS_MAX)
    sleeper.resume()
    cluster.world.run(cluster.world.now_s + START_SECONDS_MAX, lambda: len(cluster.nodes) == 3)
    assert len(cluster.nodes) == 3


@pytest.mark.parametrize("count", [1, 3])
def test_records_that_were_deleted_do_not_come_back_when_all_nodes_are_killed(count: int) -> None:
    cluster, name, start = steady_cluster(count), TopicPartition("t", 0), 5

    async def delete(client: Client) -> None:
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=name.partition, offset=start)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=name.topic, partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=5000)
        answer = await client.ask(client.leader(name.topic, name.partition), request, 2, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        for member in cluster.members.values():
            member.kill()

    tell(cluster, delete)
    cluster.start()
    cluster.world.run(cluster.world.now_s + START_SECONDS_MAX, lambda: len(cluster.nodes) == count)
    logs = [node.partitions.log_of(name) for node in cluster.nodes.values()]
    assert [log and log.start_offset for log in logs] == [start] * count


def test_a_leader_hears_where_the_log_of_a_follower_starts_after_retention() -> None:
    cluster, name = steady_cluster(3), TopicPartition("t", 0)
    by_node = {number: node.partitions.by_name.get(name.topic, {}) for number, node in cluster.nodes.items()}
    (leader,) = [led[name.partition] for led in by_node.values() if name.partition in led]
    follower = next(number for number, led in by_node.items() if name.partition not in led)
    cluster.members[follower].clock.ahead_ms += 30 * DAY_MS
    cluster.nodes[follower].background.expire()
    log = cluster.nodes[follower].partitions.log_of(name)
    assert log is not None
    assert log.start_offset == log.end_offset > leader.log.start_offset
    cluster.world.run(cluster.world.now_s + 2.0)
    assert leader.leader.replicas[follower].log_start == log.start_offset
