"""Metadata that Odradek left is served by Apache Kafka, and what Apache Kafka left by Odradek; back and forth."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odradek.core.metadata.image import MetadataImage
from odradek.log.disk import RealDisk
from odradek.log.meta_properties import META_PROPERTIES, read_meta_properties
from odradek.node.controller import ControllerHost
from odradek.node.machine import Machine
from odradek.node.quorum_config import QuorumConfig
from odradek.wire.ids import id_text
from tests.kafka.broker import Broker
from tests.kafka.dump import FAULTS, dump
from tests.kafka.oracle import Oracle
from tests.node.metadata import CONFIG, NODE, beat, create, formatted, register, started, with_log

SEEN_SECONDS_MAX = 60
SESSION = {"broker_heartbeat_interval_ms": "500", "broker_session_timeout_ms": "3000"}  # a killed broker is let in again soon
SMALL = {"metadata_log_max_record_bytes_between_snapshots": "800"}


def config_of(broker: Broker, *, static_voters: bool = False, of: QuorumConfig = CONFIG) -> QuorumConfig:
    """The settings that make us the voter that a Kafka node is."""
    meta = read_meta_properties(RealDisk(), str(broker.data / META_PROPERTIES))
    assert meta is not None
    assert meta.directory_id is not None
    address = f"127.0.0.1:{broker.controller_port}"
    return msgspec.structs.replace(
        of,
        directory_id=meta.directory_id.bytes,
        endpoints=(("CONTROLLER", "127.0.0.1", broker.controller_port),),
        static_voters=f"1@{address}" if static_voters else "",
    )


def seen_by_odradek(image: MetadataImage) -> dict[str, Any]:
    return {
        name: {"id": id_text(topic.id), "partitions": len(topic.partitions), "configs": image.configs.get((2, name), {})}
        for name, topic in sorted(image.topics.items())
    }


def seen_by_kafka(oracle: Oracle, broker: Broker, *names: str) -> tuple[dict[str, Any], dict[str, int], int]:
    """Topics, features and the quorum's epoch, as soon as these topics are there and every partition has a leader."""
    deadline = time.monotonic() + SEEN_SECONDS_MAX
    while True:
        seen = oracle.call("Admins.cluster", bootstrap=broker.bootstrap)
        leaders = [leader for topic in seen["topics"].values() for leader in topic["leaders"]]
        if set(leaders) <= {NODE} and set(names) <= set(seen["topics"]):
            break
        assert time.monotonic() < deadline, seen
    topics = {
        name: {"id": topic["id"], "partitions": len(topic["leaders"]), "configs": topic["configs"]}
        for name, topic in sorted(seen["topics"].items())
    }
    return topics, seen["features"], seen["leader_epoch"]


def check_files(oracle: Oracle, broker: Broker) -> None:
    """Kafka's own tool reads every file of the metadata."""
    folder = broker.data / "__cluster_metadata-0"
    files = [str(path) for path in sorted(folder.iterdir()) if path.name.endswith((".log", ".checkpoint"))]
    printed = dump(oracle, "--cluster-metadata-decoder", "--files", ",".join([*files, str(broker.data / "bootstrap.checkpoint")]))
    assert not [line for line in printed.splitlines() if any(fault in line for fault in FAULTS)]
    assert "isvalid: true" in printed


async def stop(host: ControllerHost, epoch: int) -> None:
    """A controlled shutdown, as a broker does it."""
    await beat(host, epoch, want_shut_down=True)
    await host.submit(lambda found: found.fence(NODE, epoch))
    await host.quorum.close()


def test_kafka_serves_the_metadata_that_we_left(tmp_path: Path, oracle: Oracle) -> None:
    disk = RealDisk()
    formatted(disk, str(tmp_path / "data"))
    broker = Broker(tmp_path, **SESSION)
    config = config_of(broker, of=with_log(max_record_bytes_between_snapshots=600))

    async def story() -> dict[str, Any]:
        host = await started(disk, str(broker.data), config, Machine())
        epoch = await register(host, b"1" * 16, directory_id=config.directory_id)
        await create(host, "plain")
        await create(host, "configured", 3, retention_ms="12345", cleanup_policy="compact")
        await host.submit(lambda found: found.allocate_producer_ids(NODE, epoch))
        await stop(host, epoch)
        assert len(host.quorum.metadata_log.snapshots) > 1
        return seen_by_odradek(host.quorum.image)

    ours = asyncio.run(story())
    assert ours["configured"]["configs"] == {"retention.ms": "12345", "cleanup.policy": "compact"}
    check_files(oracle, broker)
    with broker.running():
        topics, features, epoch = seen_by_kafka(oracle, broker)
        assert topics == ours
        assert features == {
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "kraft.version": 1,
            "metadata.version": 30,
            "transaction.version": 2,
        }
        assert epoch > 1


@pytest.mark.parametrize("static_voters", [False, True], ids=["voters in the log", "static voters"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_kafka_and_we_take_turns_on_one_folder(tmp_path: Path, oracle: Oracle, static_voters: bool, how: signal.Signals) -> None:
    broker = Broker(tmp_path, static_voters, **SESSION, **SMALL)
    disk = RealDisk()
    config = config_of(broker, static_voters=static_voters, of=with_log(max_record_bytes_between_snapshots=500))

    async def turn(number: int) -> tuple[dict[str, Any], dict[str, Any], int]:
        """What we find in the folder, what we leave, and our epoch."""
        host = await started(disk, str(broker.data), config, Machine())
        found = seen_by_odradek(host.quorum.image)
        assert host.quorum.kraft_version == (0 if static_voters else 1)
        epoch = await register(host, bytes([number]) * 16, directory_id=config.directory_id)
        leaders = {part.leader for topic in host.quorum.image.topics.values() for part in topic.partitions.values()}
        assert leaders == {NODE}
        await create(host, f"ours-{number}", 2, retention_ms=str(number + 1))
        if how is signal.SIGTERM:
            await stop(host, epoch)
        return found, seen_by_odradek(host.quorum.image), host.quorum.epoch

    kafkas_features: dict[str, int] = {}
    last_epoch = 0
    for number in range(2):
        broker.start()
        try:
            name, configs = f"theirs-{number}", {"retention.ms": "99"}
            oracle.call("Clients.create", bootstrap=broker.bootstrap, topic=name, partitions=2, configs=configs)
            topics, features, epoch = seen_by_kafka(oracle, broker, name)
            assert epoch > last_epoch
            assert features == (kafkas_features or features)
            kafkas_features = features
        finally:
            broker.stop(how)
        found, left, last_epoch = asyncio.run(turn(number))
        assert found == topics
        assert last_epoch > epoch
        check_files(oracle, broker)
        broker.start()
        try:
            topics, features, epoch = seen_by_kafka(oracle, broker, *left)
            assert topics == left
            assert features == kafkas_features
            assert epoch > last_epoch
        finally:
            broker.stop(how)
        last_epoch = epoch
