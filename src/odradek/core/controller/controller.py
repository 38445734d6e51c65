"""The controller: decides about the cluster, on an image that is ahead of what is committed.

    controller.next_offset = quorum.end_offset
    decision = controller.create_topics(request)      # changes no metadata
    for batch in decision.batches():
        offset = quorum.append(batch)
        controller.replay(batch)                      # now the next decision builds on this one
    ...                                               # and the response is given when the offset is committed

A controller is active as long as its node leads the quorum. When it no longer does, its host lets go of it: with it goes
everything that was decided and not committed, and what it knew of sessions. Who waits for an answer gets NOT_CONTROLLER. A node
that leads again makes a new one, `Controller(committed_image.copy(), config, now_ms)`, when its committed image has everything up
to its own epoch; `activate` is its first decision. There is nothing to undo.

Now and then a host asks for `fence_stale` (at `sessions.next_expiry_ms()`), `balance_leaders` and `elect_unclean_leaders`; each
says whether it should be asked for again at once.

Invariants
 1. Only `replay` changes its image, and every record that it replays has been appended.
 2. Decisions are made one after another; none is made between another's append and its replay.
"""

from collections.abc import Sequence

import msgspec

from odradek.core.controller.alter_partition import alter_partition
from odradek.core.controller.assign_replicas_to_dirs import assign_replicas_to_dirs
from odradek.core.controller.bootstrap import activation
from odradek.core.controller.brokers import (
    check_epoch,
    fence,
    register_broker,
    register_controller,
    unregister_broker,
)
from odradek.core.controller.decision import Decision, Versioned
from odradek.core.controller.elections import elect_leaders
from odradek.core.controller.features import update_features
from odradek.core.controller.heartbeats import fence_stale, heartbeat
from odradek.core.controller.leadership import balance_leaders, elect_unclean_leaders
from odradek.core.controller.partitions import create_partitions
from odradek.core.controller.producer_ids import allocate_producer_ids
from odradek.core.controller.reassignments import alter_reassignments, list_reassignments
from odradek.core.controller.replication import ReplicationRules
from odradek.core.controller.sessions import Sessions
from odradek.core.controller.topic_deletion import delete_topics
from odradek.core.controller.topics import TopicRules, create_topics
from odradek.core.metadata.image import MetadataImage
from odradek.core.raft.voters import VoterSet
from odradek.wire.message import Message
from odradek.wire.messages import (
    AllocateProducerIdsResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


class ControllerConfig(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    cluster_id: str
    topics: TopicRules
    session_timeout_ms: int = 9_000  # broker.session.timeout.ms
    replication: ReplicationRules = ReplicationRules()


class Controller:
    def __init__(self, image: MetadataImage, config: ControllerConfig, now_ms: int = 0) -> None:
        """Of a committed image, which is its own from now on. `now_ms` is monotonic."""
        self.image = image
        self.config = config
        self.sessions = Sessions(image, config.session_timeout_ms, now_ms)
        self.next_offset = 0  # of the next record, as the host knows it
        self.kraft_version = 0
        self.voters = VoterSet(())  # of the quorum, as the host knows them

    def replay(self, records: Sequence[Versioned]) -> None:
        """Takes a batch that was appended at `next_offset`."""
        for record, _ in records:
            self.image.replay(record)
        self.sessions.replay(records, self.next_offset)
        self.next_offset += len(records)

    def activate(self, bootstrap: Sequence[Message]) -> Decision[None]:
        """What has to be in the log before anything else is decided."""
        return activation(self.image, bootstrap, self.config.replication.min_insync_replicas)

    # -- topics

    def create_topics(self, request: CreateTopicsRequest) -> Decision[CreateTopicsResponse]:
        return create_topics(self.image, request, self.config.topics)

    def delete_topics(self, request: DeleteTopicsRequest) -> Decision[DeleteTopicsResponse]:
        return delete_topics(self.image, request)

    def create_partitions(self, request: CreatePartitionsRequest) -> Decision[CreatePartitionsResponse]:
        return create_partitions(self.image, request, self.config.topics.chance)

    def elect_leaders(self, request: ElectLeadersRequest) -> Decision[ElectLeadersResponse]:
        return elect_leaders(self.image, request, self.config.replication)

    def list_reassignments(self, request: ListPartitionReassignmentsRequest) -> Decision[ListPartitionReassignmentsResponse]:
        return Decision([], list_reassignments(self.image, request))

    def alter_partition(self, request: AlterPartitionRequest, version: int) -> Decision[AlterPartitionResponse]:
        return alter_partition(self.image, request, self.config.replication, version=version)

    def alter_reassignments(self, request: AlterPartitionReassignmentsRequest) -> Decision[AlterPartitionReassignmentsResponse]:
        return alter_reassignments(self.image, request, self.config.replication)

    def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> Decision[AssignReplicasToDirsResponse]:
        return assign_replicas_to_dirs(self.image, request, self.config.replication)

    def balance_leaders(self) -> Decision[bool]:
        return balance_leaders(self.image, self.config.replication)

    def elect_unclean_leaders(self) -> Decision[bool]:
        return elect_unclean_leaders(self.image, self.config.replication)

    # -- the cluster

    def update_features(self, request: UpdateFeaturesRequest, version: int) -> Decision[UpdateFeaturesResponse]:
        return update_features(
            self.image,
            request,
            version=version,
            node_id=self.config.node_id,
            kraft_version=self.kraft_version,
            voters=self.voters,
            min_insync_replicas=self.config.replication.min_insync_replicas,
        )

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Decision[AllocateProducerIdsResponse]:
        return allocate_producer_ids(self.image, broker_id, broker_epoch)

    # -- brokers

    def register_broker(
        self, request: BrokerRegistrationRequest, now_ms: int | None = None
    ) -> Decision[BrokerRegistrationResponse]:
        """Without a time it is the broker of this very process, and there is no other with its id."""
        existing = self.image.brokers.get(request.broker_id)
        has_session = (
            now_ms is not None and existing is not None and self.sessions.has_session(existing.id, existing.epoch, now_ms)
        )
        return register_broker(
            self.image,
            request,
            self.config.replication,
            cluster_id=self.config.cluster_id,
            next_offset=self.next_offset,
            has_session=has_session,
        )

    def heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Decision[BrokerHeartbeatResponse]:
        return heartbeat(self.image, self.sessions, request, self.config.replication, now_ms)

    def fence_stale(self, now_ms: int) -> Decision[bool]:
        return fence_stale(self.image, self.sessions, self.config.replication, now_ms)

    def register_controller(self, request: ControllerRegistrationRequest) -> Decision[ControllerRegistrationResponse]:
        return register_controller(self.image, request)

    def fence(self, broker_id: int, broker_epoch: int) -> Decision[None]:
        """Of a broker that is known to be gone: its connection was reset, and it takes no other. Silence has its time-out."""
        check_epoch(self.image, broker_id, broker_epoch)
        return fence(self.image, broker_id, self.config.replication)

    def unregister_broker(self, broker_id: int) -> Decision[UnregisterBrokerResponse]:
        return unregister_broker(self.image, broker_id, self.config.replication)
