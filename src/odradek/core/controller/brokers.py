"""Brokers and controllers register, are fenced and unfenced, shut down, and are forgotten.

A broker's epoch is the offset of the first record of its registration. It is fenced until it has read the metadata up to there.

Invariants
 1. A broker that registers with the epoch of its last clean stop stays eligible for what it had; any other loses it.
 2. A broker supports every feature at the level that is finalized, or it does not register.
 3. Whatever is said of a broker names its epoch.
"""

from odradek.core.controller.decision import Decision, Versioned
from odradek.core.controller.replication import ReplicationRules, changes, in_elr, in_isr, leaderless
from odradek.core.metadata.brokers import Broker
from odradek.core.metadata.features import ELR_VERSION, METADATA_VERSION, RecordVersions
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import is_reserved
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.ids import id_text
from odradek.wire.messages import (
    BrokerRegistrationChangeRecord,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
    UnregisterBrokerResponse,
)

FENCE, UNFENCE = 1, -1


def register_broker(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    rules: ReplicationRules,
    *,
    cluster_id: str,
    next_offset: int,
    has_session: bool = False,
) -> Decision[BrokerRegistrationResponse]:
    """A broker that starts. `has_session` says that one with its id is alive."""
    if request.cluster_id != cluster_id:
        reason = f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}"
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
    existing = image.brokers.get(request.broker_id)
    is_new = existing is None or existing.incarnation_id != request.incarnation_id
    if existing is not None and is_new and has_session:
        reason = (
            "Another broker is registered with that broker id. If the broker was recently restarted this should self-resolve "
            "once the heartbeat manager expires the broker's session."
        )
        raise Refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, reason)
    versions = RecordVersions(image.features[METADATA_VERSION])
    if versions.has_directories:
        check_directories(image, request)
    check_features(image, request)
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=next_offset,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=point.name, host=point.host, port=point.port, security_protocol=point.security_protocol
            )
            for point in request.listeners
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
        log_dirs=list(request.log_dirs) if versions.has_directories else [],
    )
    records: list[Versioned] = []
    if existing is not None and not is_new:
        record.fenced, record.in_controlled_shutdown = existing.fenced, existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
    else:
        is_clean = existing is not None and existing.epoch == request.previous_broker_epoch
        records += after_stop(image, request.broker_id, rules, is_clean=is_clean)
    records.append((record, versions.register_broker))
    return Decision(records, BrokerRegistrationResponse(broker_epoch=record.broker_epoch), is_atomic=False)


def check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    folders = request.log_dirs
    owners = {folder: broker.id for broker in image.brokers.values() for folder in broker.log_dirs}
    reason = None
    if not folders:
        reason = "No directories specified in request"
    elif any(map(is_reserved, folders)):
        reason = "Reserved directory ID in request"
    elif len(set(folders)) != len(folders):
        reason = "Duplicate directory ID in request"
    else:
        for folder in folders:
            if (owner := owners.get(folder, request.broker_id)) != request.broker_id:
                reason = f"Broker {owner} is already registered with directory {id_text(folder)}"
    if reason is not None:
        raise Refused(ErrorCode.INVALID_REGISTRATION, reason)


def check_features(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    ranges = {feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in request.features}
    if METADATA_VERSION not in ranges:
        raise Refused(ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")
    for name in {**ranges, **image.features}:
        low, high = ranges.get(name, (0, 0))
        finalized = image.features.get(name, 0)
        if not low <= finalized <= high:
            reason = (
                f"Unable to register because the broker does not support finalized version {finalized} of {name}. "
                f"The broker wants a version between {low} and {high}, inclusive."
            )
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, reason)


def after_stop(image: MetadataImage, broker_id: int, rules: ReplicationRules, *, is_clean: bool) -> list[Versioned]:
    """What is left to do of the stop of a broker's last incarnation."""
    if image.features.get(ELR_VERSION, 0) and not is_clean:
        chosen = [*in_isr(image, broker_id), *in_elr(image, broker_id)]
        return changes(image, chosen, rules, unclean_stop=broker_id)
    return changes(image, in_isr(image, broker_id), rules, leaving=broker_id)


def check_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> Broker:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refused(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        reason = f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        raise Refused(ErrorCode.STALE_BROKER_EPOCH, reason)
    return broker


def unfence(image: MetadataImage, broker_id: int, broker_epoch: int, rules: ReplicationRules) -> Decision[None]:
    """A broker has caught up: it may lead."""
    if not check_epoch(image, broker_id, broker_epoch).fenced:
        return Decision([], None)
    change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=UNFENCE)
    return Decision([(change, 0), *changes(image, leaderless(image), rules, coming=broker_id)], None, is_atomic=False)


def fence(image: MetadataImage, broker_id: int, rules: ReplicationRules) -> Decision[None]:
    """A broker is no longer heard of, or has said that it stops."""
    broker = image.brokers[broker_id]
    records = changes(image, in_isr(image, broker_id), rules, leaving=broker_id)
    if not broker.fenced:
        records.append((BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, fenced=FENCE), 0))
    return Decision(records, None, is_atomic=False)


def shut_down(image: MetadataImage, broker_id: int, broker_epoch: int, rules: ReplicationRules) -> Decision[None]:
    """A broker wants to stop: others lead what it led, and it is eligible until it comes back."""
    records: list[Versioned] = []
    if not check_epoch(image, broker_id, broker_epoch).in_controlled_shutdown:
        change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, in_controlled_shutdown=1)
        records.append((change, 1))
    return Decision([*records, *changes(image, in_isr(image, broker_id), rules, leaving=broker_id)], None, is_atomic=False)


def unregister_broker(image: MetadataImage, broker_id: int, rules: ReplicationRules) -> Decision[UnregisterBrokerResponse]:
    """A broker is gone for good."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    chosen = [*in_isr(image, broker_id), *in_elr(image, broker_id)]
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
    records = [*changes(image, chosen, rules, leaving=broker_id), (record, 0)]
    return Decision(records, UnregisterBrokerResponse(), is_atomic=False)


def register_controller(image: MetadataImage, request: ControllerRegistrationRequest) -> Decision[ControllerRegistrationResponse]:
    if not RecordVersions(image.features[METADATA_VERSION]).has_controllers:
        reason = "The current MetadataVersion is too old to support controller registrations."
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, reason)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                name=point.name, host=point.host, port=point.port, security_protocol=point.security_protocol
            )
            for point in request.listeners
        ],
        features=[
            RegisterControllerRecord.ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
    return Decision([(record, 0)], ControllerRegistrationResponse())
