"""Brokers and controllers as they registered, and what the log says happened to them since.

Invariants
 1. A registration is a value: a change makes a new one.
 2. A change names the epoch of the registration that it changes; one of another epoch is refused.
"""

import msgspec

from odradek.core.metadata.topics import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from odradek.wire.messages import BrokerRegistrationChangeRecord, RegisterBrokerRecord, RegisterControllerRecord


class Endpoint(msgspec.Struct, frozen=True):
    """Where a listener is reached."""

    host: str
    port: int
    security_protocol: int = 0


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    epoch: int
    incarnation_id: bytes
    listeners: dict[str, Endpoint]
    features: dict[str, tuple[int, int]]  # the levels that it can serve, the lowest and the highest
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    is_migrating_zk_broker: bool = False
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and be in their ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def has_uncordoned_log_dirs(self) -> bool:
        """Whether new partitions may be placed on it."""
        if not self.log_dirs or self.cordoned_log_dirs is None:
            return True
        return not set(self.log_dirs) <= set(self.cordoned_log_dirs)

    def has_online(self, directory: bytes) -> bool:
        """Whether it can reach a folder, as far as is known."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        return directory != LOST_DIRECTORY and (not self.log_dirs or directory in self.log_dirs)

    @classmethod
    def of(cls, record: RegisterBrokerRecord) -> "Broker":
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners={point.name: Endpoint(point.host, point.port, point.security_protocol) for point in record.end_points},
            features={
                feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in record.features
            },
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            is_migrating_zk_broker=record.is_migrating_zk_broker,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )

    def changed(self, change: BrokerRegistrationChangeRecord) -> "Broker":
        """Fenced is 1 for yes, -1 for no, 0 for no change; a controlled shutdown only begins."""
        cordoned = self.cordoned_log_dirs if change.cordoned_log_dirs is None else tuple(change.cordoned_log_dirs)
        return msgspec.structs.replace(
            self,
            fenced=self.fenced if change.fenced == 0 else change.fenced > 0,
            in_controlled_shutdown=self.in_controlled_shutdown or change.in_controlled_shutdown > 0,
            log_dirs=tuple(change.log_dirs) or self.log_dirs,
            cordoned_log_dirs=cordoned,
        )

    def with_fenced(self, fenced: bool) -> "Broker":
        return msgspec.structs.replace(self, fenced=fenced)


class ControllerNode(msgspec.Struct, frozen=True, kw_only=True):
    """A controller that registered itself."""

    id: int
    incarnation_id: bytes
    listeners: dict[str, Endpoint]
    features: dict[str, tuple[int, int]]
    zk_migration_ready: bool = False

    @classmethod
    def of(cls, record: RegisterControllerRecord) -> "ControllerNode":
        return cls(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            listeners={point.name: Endpoint(point.host, point.port, point.security_protocol) for point in record.end_points},
            features={
                feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in record.features
            },
            zk_migration_ready=record.zk_migration_ready,
        )
