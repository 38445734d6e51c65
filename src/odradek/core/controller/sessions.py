"""Which brokers are alive: who was heard of when, and how far each is with the metadata. It is in no log.

Who is fenced or shutting down, the image says; here is what only the active controller knows, and a new one learns anew. Time is
monotonic and handed in.

Invariants
 1. A session is that of one epoch of a broker. It begins with a heartbeat, or with a controller that finds it unfenced, and
    ends when nothing was heard for `session_timeout_ms`, when the broker is fenced, or registers again.
 2. A broker that shuts down may stop when every active broker knows who leads in its place.
 3. Nothing here changes metadata: it answers, and learns from what was appended.
"""

import math
from collections.abc import Sequence
from enum import Enum, auto

import msgspec

from odradek.core.controller.decision import Versioned
from odradek.core.metadata.image import MetadataImage
from odradek.wire.messages import (
    BrokerHeartbeatRequest,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

UNKNOWN_OFFSET = -1


class BrokerState(Enum):
    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()

    @property
    def is_fenced(self) -> bool:
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


class Progress(msgspec.Struct, kw_only=True):
    """How far a broker is."""

    registered_offset: int  # where its registration stands in the metadata log
    metadata_offset: int = UNKNOWN_OFFSET  # up to where it has read the log, as it said last
    shutdown_offset: int = UNKNOWN_OFFSET  # what all others have to know before it may stop


class Sessions:
    def __init__(self, image: MetadataImage, session_timeout_ms: int, now_ms: int) -> None:
        """Of a controller that begins with this image: unfenced brokers have the whole time-out to be heard of."""
        self.session_timeout_ms = session_timeout_ms
        self.progress = {broker: Progress(registered_offset=image.offset) for broker in image.brokers}
        self.contacts: dict[tuple[int, int], int] = {}  # when a broker was last heard of, by id and epoch; the oldest first
        for broker in image.brokers.values():
            if not broker.fenced:
                self.contacts[broker.id, broker.epoch] = now_ms
            if broker.in_controlled_shutdown:
                self.progress[broker.id].shutdown_offset = image.offset

    # -- sessions

    def heard(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        self.contacts.pop((broker_id, broker_epoch), None)
        self.contacts[broker_id, broker_epoch] = now_ms

    def lost(self, broker_id: int, broker_epoch: int) -> None:
        """Somebody knows that a broker is gone: nobody waits for the time-out."""
        self.contacts.pop((broker_id, broker_epoch), None)

    def has_session(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        heard_ms = self.contacts.get((broker_id, broker_epoch))
        return heard_ms is not None and now_ms - heard_ms <= self.session_timeout_ms

    def expired(self, now_ms: int) -> tuple[int, int] | None:
        """The id and epoch of a broker that was silent for too long."""
        oldest = next(iter(self.contacts), None)
        return None if oldest is None or self.has_session(*oldest, now_ms) else oldest

    def next_expiry_ms(self) -> int | None:
        """When there is something to look for; None while no broker has a session."""
        heard_ms = next(iter(self.contacts.values()), None)
        return None if heard_ms is None else heard_ms + self.session_timeout_ms + 1

    # -- what a broker is told

    def next_state(self, image: MetadataImage, request: BrokerHeartbeatRequest) -> tuple[BrokerState, BrokerState]:
        """What the broker of a heartbeat is, and what it becomes."""
        broker, progress = image.brokers[request.broker_id], self.progress[request.broker_id]
        has_leaderships = broker.id in image.locations.leaders
        if broker.fenced:
            current = next_ = BrokerState.FENCED
            if request.want_shut_down:
                next_ = BrokerState.SHUTDOWN_NOW
            elif not request.want_fence and request.current_metadata_offset >= progress.registered_offset:
                next_ = BrokerState.UNFENCED
        elif progress.shutdown_offset != UNKNOWN_OFFSET:
            current = next_ = BrokerState.CONTROLLED_SHUTDOWN
            if not has_leaderships and progress.shutdown_offset <= self.lowest_active_offset(image):
                next_ = BrokerState.SHUTDOWN_NOW
        else:
            current = next_ = BrokerState.UNFENCED
            if request.want_shut_down:
                is_controlled = has_leaderships and not request.want_fence
                next_ = BrokerState.CONTROLLED_SHUTDOWN if is_controlled else BrokerState.SHUTDOWN_NOW
            elif request.want_fence:
                next_ = BrokerState.FENCED
        return current, next_

    def lowest_active_offset(self, image: MetadataImage) -> float:
        """Up to where every broker knows the metadata that goes on."""
        going_on = [
            progress.metadata_offset
            for broker, progress in self.progress.items()
            if progress.shutdown_offset == UNKNOWN_OFFSET and not image.brokers[broker].fenced
        ]
        return min(going_on, default=math.inf)

    def is_caught_up(self, request: BrokerHeartbeatRequest) -> bool:
        return request.current_metadata_offset >= self.progress[request.broker_id].registered_offset

    # -- what was appended

    def replay(self, records: Sequence[Versioned], first_offset: int) -> None:
        """Learns from a batch that was appended."""
        last_offset = first_offset + len(records) - 1
        for offset, (record, _) in enumerate(records, start=first_offset):
            match record:
                case RegisterBrokerRecord():
                    self._registered(record, offset)
                case UnregisterBrokerRecord():
                    self.lost(record.broker_id, record.broker_epoch)
                    self.progress.pop(record.broker_id, None)
                case BrokerRegistrationChangeRecord():
                    self._changed(record, last_offset)

    def _changed(self, record: BrokerRegistrationChangeRecord, last_offset: int) -> None:
        progress = self.progress[record.broker_id]
        progress.metadata_offset = UNKNOWN_OFFSET  # until it says again how far it is
        if record.fenced > 0:
            self.lost(record.broker_id, record.broker_epoch)
            progress.shutdown_offset = UNKNOWN_OFFSET
        if record.in_controlled_shutdown > 0:
            progress.shutdown_offset = last_offset

    def _registered(self, record: RegisterBrokerRecord, offset: int) -> None:
        """A new incarnation, or the same one, which says more about itself."""
        self.progress[record.broker_id] = Progress(registered_offset=offset)
        for contact in [contact for contact in self.contacts if contact[0] == record.broker_id]:
            if contact[1] != record.broker_epoch:
                del self.contacts[contact]
