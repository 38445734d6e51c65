"""BrokerHeartbeat (0-2): a broker says how far it is and what it wants, and is fenced, let in, or allowed to stop.

v1 adds folders that failed, v2 folders that take no new partitions (KIP-1066).

Invariants
 1. A broker is let in when it has read its own registration. When it says that a folder has failed, it is let in with the next
    heartbeat: what it leads then is decided with that folder known.
 2. A broker that wants to stop first leads nothing and is in no ISR; then it is told to stop, and is fenced.
"""

from odradek.core.controller.brokers import check_epoch, fence, shut_down, unfence
from odradek.core.controller.decision import Decision, Versioned
from odradek.core.controller.replication import ReplicationRules, changes
from odradek.core.controller.sessions import BrokerState, Sessions
from odradek.core.metadata.features import METADATA_VERSION, RecordVersions
from odradek.core.metadata.image import MetadataImage
from odradek.wire.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationChangeRecord

LOG_DIRS_VERSION = 2  # of BrokerRegistrationChange
CORDONED_LOG_DIRS_VERSION = 3


def heartbeat(
    image: MetadataImage, sessions: Sessions, request: BrokerHeartbeatRequest, rules: ReplicationRules, now_ms: int
) -> Decision[BrokerHeartbeatResponse]:
    broker_id, epoch = request.broker_id, request.broker_epoch
    check_epoch(image, broker_id, epoch)
    sessions.heard(broker_id, epoch, now_ms)
    current, next_ = sessions.next_state(image, request)
    offline = offline_directories(image, request, rules)
    records: list[Versioned] = []
    if next_ is BrokerState.CONTROLLED_SHUTDOWN:  # again and again, should another controller have begun it
        records += shut_down(image, broker_id, epoch, rules).records
    elif next_.is_fenced and next_ is not current:
        records += fence(image, broker_id, rules).records
        if current.is_fenced:  # which no record says again: it stops now, and may come back at once
            sessions.lost(broker_id, epoch)
    elif next_ is not current and offline:
        next_ = current
    elif next_ is not current:
        records += unfence(image, broker_id, epoch, rules).records
    sessions.progress[broker_id].metadata_offset = request.current_metadata_offset
    response = BrokerHeartbeatResponse(
        is_caught_up=sessions.is_caught_up(request),
        is_fenced=next_.is_fenced,
        should_shut_down=next_ is BrokerState.SHUTDOWN_NOW,
    )
    return Decision([*records, *offline, *cordoned_directories(image, request)], response, is_atomic=False)


def offline_directories(image: MetadataImage, request: BrokerHeartbeatRequest, rules: ReplicationRules) -> list[Versioned]:
    """Others lead what is in folders that failed."""
    broker = image.brokers[request.broker_id]
    failed = [directory for directory in broker.log_dirs if directory in request.offline_log_dirs]
    if not failed or not RecordVersions(image.features[METADATA_VERSION]).has_directories:
        return []
    records: list[Versioned] = []
    for directory in failed:
        records += changes(image, image.locations.directories.get(directory, ()), rules, leaving=broker.id)
    online = [directory for directory in broker.log_dirs if directory not in failed]
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=online)
    return [*records, (change, LOG_DIRS_VERSION)]


def cordoned_directories(image: MetadataImage, request: BrokerHeartbeatRequest) -> list[Versioned]:
    broker, cordoned = image.brokers[request.broker_id], request.cordoned_log_dirs
    if cordoned is None or not RecordVersions(image.features[METADATA_VERSION]).has_cordoned_log_dirs:
        return []
    if broker.cordoned_log_dirs is not None and set(broker.cordoned_log_dirs) == set(cordoned):
        return []
    change = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned))
    return [(change, CORDONED_LOG_DIRS_VERSION)]


def fence_stale(image: MetadataImage, sessions: Sessions, rules: ReplicationRules, now_ms: int) -> Decision[bool]:
    """Fences one broker that was silent for too long, if there is one; then there may be another. One at a time, so that none of
    them is elected where another has just gone."""
    stale = sessions.expired(now_ms)
    if stale is None:
        return Decision([], False)
    broker = image.brokers.get(stale[0])
    if broker is None or broker.epoch != stale[1] or broker.fenced:
        sessions.lost(*stale)
        return Decision([], True)
    return Decision(fence(image, broker.id, rules).records, True, is_atomic=False)
