"""The controller: decides about the cluster, on an image that is ahead of what is committed.

    decision = controller.create_topics(request)      # changes nothing
    offset = quorum.append(decision.records)
    controller.replay(decision.records)               # now the next decision builds on this one
    ...                                               # and the response is given when the offset is committed

Invariants
 1. Only `replay` changes its image, and every record that it replays has been appended.
 2. Decisions are made one after another; none is made between another's append and its replay.
"""

from collections.abc import Sequence

import msgspec

from odradek.core.controller.bootstrap import activation
from odradek.core.controller.brokers import (
    check_epoch,
    fence,
    register_broker,
    register_controller,
    shut_down,
    unfence,
    unregister_broker,
)
from odradek.core.controller.decision import Decision, Versioned
from odradek.core.controller.elections import elect_leaders
from odradek.core.controller.features import update_features
from odradek.core.controller.partitions import create_partitions
from odradek.core.controller.producer_ids import allocate_producer_ids
from odradek.core.controller.reassignments import list_reassignments
from odradek.core.controller.replication import ReplicationRules
from odradek.core.controller.topic_deletion import delete_topics
from odradek.core.controller.topics import TopicRules, create_topics
from odradek.core.metadata.image import MetadataImage
from odradek.wire.message import Message
from odradek.wire.messages import (
    AllocateProducerIdsResponse,
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
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


class ControllerConfig(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    cluster_id: str
    topics: TopicRules
    replication: ReplicationRules = ReplicationRules()


class Controller:
    def __init__(self, image: MetadataImage, config: ControllerConfig) -> None:
        self.image = image
        self.config = config
        self.next_offset = 0  # of the next record, as the host knows it
        self.kraft_version = 0

    def replay(self, records: Sequence[Versioned]) -> None:
        for record, _ in records:
            self.image.replay(record)

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

    # -- the cluster

    def update_features(self, request: UpdateFeaturesRequest, version: int) -> Decision[UpdateFeaturesResponse]:
        return update_features(
            self.image,
            request,
            version=version,
            node_id=self.config.node_id,
            kraft_version=self.kraft_version,
            min_insync_replicas=self.config.replication.min_insync_replicas,
        )

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Decision[AllocateProducerIdsResponse]:
        return allocate_producer_ids(self.image, broker_id, broker_epoch)

    def register_broker(
        self, request: BrokerRegistrationRequest, *, has_session: bool = False
    ) -> Decision[BrokerRegistrationResponse]:
        return register_broker(
            self.image,
            request,
            self.config.replication,
            cluster_id=self.config.cluster_id,
            next_offset=self.next_offset,
            has_session=has_session,
        )

    def register_controller(self, request: ControllerRegistrationRequest) -> Decision[ControllerRegistrationResponse]:
        return register_controller(self.image, request)

    def unfence(self, broker_id: int, broker_epoch: int) -> Decision[None]:
        return unfence(self.image, broker_id, broker_epoch, self.config.replication)

    def shut_down(self, broker_id: int, broker_epoch: int) -> Decision[None]:
        return shut_down(self.image, broker_id, broker_epoch, self.config.replication)

    def fence(self, broker_id: int, broker_epoch: int) -> Decision[None]:
        check_epoch(self.image, broker_id, broker_epoch)
        return fence(self.image, broker_id, self.config.replication)

    def unregister_broker(self, broker_id: int) -> Decision[None]:
        return unregister_broker(self.image, broker_id, self.config.replication)
