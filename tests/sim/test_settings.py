"""Settings that every node of a cluster has to go by, whoever leads: those of the cluster, and how much may be unsynced."""

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from odradek.core.controller.bootstrap import new_features
from odradek.log.log import Log
from odradek.node.groups import CONSUMER_OFFSETS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from tests.sim import cluster as simulated
from tests.sim.cluster import SimCluster
from tests.sim.steady import Client, steady_cluster, tell

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS
BROKER, TOPIC = 4, 2  # kinds of resources
SET, DELETE = 0, 1
FOLLOW_SECONDS = 2.0


def logs(cluster: SimCluster, topic: str) -> Iterator[Log]:
    """On all nodes, of all its partitions."""
    for node in cluster.nodes.values():
        for folder in node.partitions.folders:
            yield from (log for name, log in folder.logs.items() if name.topic == topic)


def alter(cluster: SimCluster, kind: int, name: str, operation: int, key: str, value: str | None = None) -> None:
    async def story(client: Client) -> None:
        config = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        answer = await client.ask(1, IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE

    tell(cluster, story)
    cluster.world.run(cluster.world.now_s + FOLLOW_SECONDS)


def test_a_setting_of_the_cluster_reaches_logs_that_are_followed() -> None:
    """Retention is everybody's: what a follower has deleted, the others delete when it leads."""
    cluster = steady_cluster()
    alter(cluster, BROKER, "", SET, "log.retention.ms", str(HOUR_MS))
    assert [log.config.retention_ms for log in logs(cluster, "t")] == [HOUR_MS] * 6


@pytest.mark.parametrize("features", [{}, {"eligible.leader.replicas.version": 0}], ids=["", "without settings of the cluster"])
def test_a_log_is_not_kept_by_settings_that_were_changed_while_its_node_was_away(
    monkeypatch: pytest.MonkeyPatch, features: dict[str, int]
) -> None:
    """It is opened with what the last snapshot of the metadata has."""
    monkeypatch.setattr(simulated, "new_features", partial(new_features, wanted=features))
    cluster = steady_cluster(4)
    alter(cluster, TOPIC, "t", SET, "retention.ms", "1000")
    away = cluster.members[4]  # no voter
    assert away.loop is not None
    assert away.node is not None
    away.loop.run_soon(away.node.quorum.snapshots.take())
    cluster.world.run(cluster.world.now_s + FOLLOW_SECONDS)
    away.kill()
    alter(cluster, TOPIC, "t", DELETE, "retention.ms")
    away.start()
    cluster.world.run(cluster.world.now_s + 5 * FOLLOW_SECONDS)
    assert [log.config.retention_ms for log in logs(cluster, "t")] == [WEEK_MS] * 6


@pytest.mark.parametrize("topic", ["t", "compacted", "__consumer_offsets"])
def test_what_is_to_be_synced_when_it_is_acknowledged_is_so_on_every_node(topic: str) -> None:
    cluster = steady_cluster(log_flush_interval_messages="1")
    found = [(log.recovery_point, log.end_offset) for log in logs(cluster, topic)]
    assert any(end for _, end in found)
    assert [each for each in found if each[0] != each[1]] == []


def test_what_a_coordinator_writes_goes_to_the_others_while_it_is_synced_and_counts_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for followers that came before the leader's own sync."""
    cluster = steady_cluster(log_flush_interval_messages="1", replica_lag_time_max_ms="600000")
    synced: list[bool] = []

    async def story(client: Client) -> None:
        work = cluster.nodes[await client.coordinator("simple")].partitions.work
        flush = work.flush

        async def late(log: Log) -> None:
            await asyncio.sleep(1.0)
            copies = [each for each in logs(cluster, CONSUMER_OFFSETS) if each.folder.rpartition("/")[2] in log.folder]
            assert [each.recovery_point for each in copies if each is not log] == [log.end_offset] * 2
            await flush(log)
            synced.append(log.recovery_point == log.end_offset)

        monkeypatch.setattr(work, "flush", late)
        await client.commit("simple", 8)
        assert synced == [True]

    tell(cluster, story)
