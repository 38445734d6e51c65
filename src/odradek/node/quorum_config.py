"""The settings of this node's part in the metadata quorum: `controller.quorum.*` and `metadata.log.*`."""

from collections.abc import Sequence

import msgspec

from odradek.core.config.broker import BrokerConfig
from odradek.core.raft.effects import RaftConfig
from odradek.node.metadata_log import MetadataLogConfig


class QuorumConfig(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    directory_id: bytes
    endpoints: tuple[tuple[str, str, int], ...]  # of the controller's listeners: name, host, port; none where it cannot vote
    cluster_id: str = ""
    listener: str = "CONTROLLER"
    static_voters: str = ""  # controller.quorum.voters
    bootstrap: tuple[tuple[str, int], ...] = ()
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    auto_join: bool = False
    log: MetadataLogConfig = MetadataLogConfig()

    @classmethod
    def of(
        cls, config: BrokerConfig, cluster_id: str, directory_id: bytes, endpoints: Sequence[tuple[str, str, int]]
    ) -> "QuorumConfig":
        return cls(
            node_id=config.node_id,
            directory_id=directory_id,
            endpoints=tuple(endpoints) if config.is_controller else (),
            cluster_id=cluster_id,
            listener=config.names("controller.listener.names")[0].upper(),
            static_voters=",".join(config.names("controller.quorum.voters")),
            bootstrap=config.bootstrap_servers,
            election_timeout_ms=config.integer("controller.quorum.election.timeout.ms"),
            election_backoff_max_ms=config.integer("controller.quorum.election.backoff.max.ms"),
            fetch_timeout_ms=config.integer("controller.quorum.fetch.timeout.ms"),
            request_timeout_ms=config.integer("controller.quorum.request.timeout.ms"),
            retry_backoff_ms=config.integer("controller.quorum.retry.backoff.ms"),
            auto_join=config.is_controller and config.flag("controller.quorum.auto.join.enable"),
            log=MetadataLogConfig(
                segment_bytes=config.integer("metadata.log.segment.bytes"),
                segment_ms=config.integer("metadata.log.segment.ms"),
                max_record_bytes_between_snapshots=config.integer("metadata.log.max.record.bytes.between.snapshots"),
                max_snapshot_interval_ms=config.integer("metadata.log.max.snapshot.interval.ms"),
                max_retention_bytes=config.integer("metadata.max.retention.bytes"),
                max_retention_ms=config.integer("metadata.max.retention.ms"),
            ),
        )

    def raft(self) -> RaftConfig:
        return RaftConfig(
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            directory_id=self.directory_id,
            endpoints=self.endpoints,
            listener=self.listener,
            bootstrap=self.bootstrap,
            election_timeout_ms=self.election_timeout_ms,
            election_backoff_max_ms=self.election_backoff_max_ms,
            fetch_timeout_ms=self.fetch_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            auto_join=self.auto_join,
        )
