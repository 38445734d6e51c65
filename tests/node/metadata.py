"""A formatted folder, and the quorum and the controller on it, for tests."""

import asyncio
from collections.abc import Coroutine

import msgspec

from odradek.core.controller.controller import ControllerConfig
from odradek.core.controller.replication import ReplicationRules
from odradek.core.metadata.features import supported_features
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.snapshot import snapshot_records
from odradek.core.raft.batches import encode_snapshot
from odradek.core.raft.voters import Voter, VoterSet
from odradek.log.disk import Disk
from odradek.node.controller import ControllerHost
from odradek.node.format import format_folder, read_bootstrap
from odradek.node.machine import Machine
from odradek.node.metadata_log import MetadataLogConfig
from odradek.node.quorum import Quorum
from odradek.node.quorum_config import QuorumConfig
from odradek.wire.message import Message
from odradek.wire.messages import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FeatureLevelRecord,
    TopicRecord,
)
from tests.core.controller.cluster import rules
from tests.log.disk import SimDisk

NODE = 1
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAQQ"
DIRECTORY_ID = b"directory id 16b"
ENDPOINTS = (("CONTROLLER", "127.0.0.1", 9093),)
CONFIG = QuorumConfig(node_id=NODE, directory_id=DIRECTORY_ID, endpoints=ENDPOINTS)
FOLDER = "/disk/data"
LOG = f"{FOLDER}/__cluster_metadata-0"


def with_log(**settings: int) -> QuorumConfig:
    return msgspec.structs.replace(CONFIG, log=MetadataLogConfig(**settings))


class TickingMachine(Machine):
    """Its wall clock goes on a little whenever somebody looks."""

    now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        self.now_ms += 1
        return self.now_ms


def formatted(disk: Disk, path: str) -> None:
    format_folder(
        disk,
        path,
        node_id=NODE,
        cluster_id=CLUSTER_ID,
        directory_id=DIRECTORY_ID,
        now_ms=1_700_000_000_000,
        voters=VoterSet((Voter(NODE, DIRECTORY_ID, ENDPOINTS),)),
    )


def controller_config() -> ControllerConfig:
    return ControllerConfig(
        node_id=NODE, cluster_id=CLUSTER_ID, topics=rules(), replication=ReplicationRules(min_insync_replicas=1)
    )


async def started(disk: Disk, path: str, config: QuorumConfig = CONFIG, machine: Machine | None = None) -> ControllerHost:
    """An active controller on what is in the folder."""
    host = ControllerHost(Quorum(disk, path, config, machine or TickingMachine()), controller_config())
    await host.start(read_bootstrap(disk, path))
    return host


async def register(
    host: ControllerHost, incarnation_id: bytes, *, directory_id: bytes = DIRECTORY_ID, previous_epoch: int = -1
) -> int:
    """Registers controller and broker of a node, and lets the broker in; gives the broker's epoch."""
    features = supported_features(host.quorum.image.features)
    controller = ControllerRegistrationRequest(
        controller_id=NODE,
        incarnation_id=incarnation_id,
        listeners=[ControllerRegistrationRequest.Listener(name=name, host=at, port=port) for name, at, port in ENDPOINTS],
        features=[
            ControllerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in features.items()
        ],
    )
    await host.submit(lambda found: found.register_controller(controller))
    broker = BrokerRegistrationRequest(
        broker_id=NODE,
        cluster_id=CLUSTER_ID,
        incarnation_id=incarnation_id,
        listeners=[BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)],
        features=[
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in features.items()
        ],
        log_dirs=[directory_id],
        previous_broker_epoch=previous_epoch,
    )
    epoch = (await host.submit(lambda found: found.register_broker(broker))).broker_epoch
    await beat(host, epoch)
    return epoch


async def beat(host: ControllerHost, epoch: int, *, want_shut_down: bool = False) -> None:
    """A heartbeat of a broker that has read all of the metadata."""
    request = BrokerHeartbeatRequest(
        broker_id=NODE, broker_epoch=epoch, current_metadata_offset=host.quorum.end_offset, want_shut_down=want_shut_down
    )
    await host.submit(lambda found: found.heartbeat(request, host.monotonic_ms()))


def topic_request(name: str, partitions: int = 1, **configs: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ]
    )


async def create(host: ControllerHost, name: str, partitions: int = 1, **configs: str) -> CreateTopicsResponse:
    return await host.submit(lambda found: found.create_topics(topic_request(name, partitions, **configs)))


def run(story: Coroutine[object, object, None]) -> None:
    asyncio.run(story)


def new_disk() -> SimDisk:
    disk = SimDisk()
    formatted(disk, FOLDER)
    return disk


def content(image: MetadataImage) -> list[tuple[Message, int]]:
    return list(snapshot_records(image))


def topic(number: int) -> tuple[Message, int]:
    return TopicRecord(name=f"topic-{number}", topic_id=number.to_bytes(16, "big")), 0


def snapshot_batches() -> list[bytearray]:
    """What a leader of another epoch sends: one topic."""
    voters = VoterSet((Voter(NODE, DIRECTORY_ID, ENDPOINTS),))
    image = MetadataImage()
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=30))
    image.replay(topic(7)[0])
    return [*encode_snapshot(snapshot_records(image), epoch=5, now_ms=1, timestamp_ms=1, kraft_version=1, voters=voters)]
