"""What all nodes have that are alive, as checks see it: the metadata, and the replicas of all partitions."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from odradek.core.metadata.image import MetadataImage
from odradek.core.partition.replica import TopicIdPartition
from odradek.log.log import Log
from odradek.node.node import Node
from odradek.node.partition import Partition
from tests.log.medium import Medium

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster


def newest_image(cluster: "SimCluster") -> MetadataImage:
    """The metadata, as far as anybody who is alive has heard of it."""
    images = [node.image for node in cluster.living.values() if hasattr(node, "image")]  # one that has just begun has none
    return max(images, key=lambda image: image.offset, default=MetadataImage())


class Replica(NamedTuple):
    """A partition on a node that leads or follows it."""

    node: Node
    medium: Medium
    key: TopicIdPartition
    name: str
    log: Log
    leader_epoch: int
    leading: Partition | None

    @property
    def who(self) -> str:
        return f"node {self.node.node_id}"


def replicas(node: Node, medium: Medium) -> Iterator[Replica]:
    partitions = getattr(node, "partitions", None)  # a controller has none, nor a broker that has not come as far
    if partitions is None:
        return
    for topic, led in partitions.by_name.items():
        for index, found in led.items():
            key = (found.topic_id, index)
            yield Replica(node, medium, key, f"{topic}-{index}", found.log, found.leader_epoch, found)
    if not hasattr(partitions, "replication"):
        return
    replication = partitions.replication
    for key, (follower, _) in replication.followers.items():
        name = f"{follower.topic}-{follower.index}"
        yield Replica(node, medium, key, name, replication.logs[follower], follower.leader_epoch, None)


def all_replicas(cluster: "SimCluster") -> list[Replica]:
    return [replica for number, node in cluster.nodes.items() for replica in replicas(node, cluster.members[number].disks.medium)]


def replicas_of(cluster: "SimCluster", key: TopicIdPartition) -> Iterator[Replica]:
    """Those of one partition, also on nodes that do not serve yet."""
    topic_id, index = key
    for number, node in cluster.living.items():
        partitions, medium = getattr(node, "partitions", None), cluster.members[number].disks.medium
        if partitions is None:
            continue
        if (led := partitions.by_id.get(topic_id, {}).get(index)) is not None:
            yield Replica(node, medium, key, str(led), led.log, led.leader_epoch, led)
        elif hasattr(partitions, "replication") and key in partitions.replication.followers:
            follower, _ = partitions.replication.followers[key]
            name, log = f"{follower.topic}-{index}", partitions.replication.logs[follower]
            yield Replica(node, medium, key, name, log, follower.leader_epoch, None)
