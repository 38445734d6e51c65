"""The first records of a cluster, and what a controller writes when it takes over.

`bootstrap.checkpoint` holds the feature levels that a folder was formatted with. They go into an empty log, as one metadata
transaction, when its first controller starts.

Invariants
 1. An empty log gets features before anything else: they say how to read the rest.
 2. A transaction that another controller left open is aborted before anything is decided.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.core.controller.decision import Decision, Versioned
from odradek.core.controller.replication import MIN_INSYNC_REPLICAS
from odradek.core.metadata.features import (
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    SERVED,
    TRANSACTION_VERSION,
    RecordVersions,
    release,
)
from odradek.core.metadata.image import BROKER_RESOURCE, MetadataImage
from odradek.wire.message import Message
from odradek.wire.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

TRANSACTION_NAME = "Bootstrap records"
ABORT_REASON = "Controller failover"
DEFAULT_SINCE: Final = {  # the metadata.version from which on a new cluster has them
    GROUP_VERSION: 22,
    TRANSACTION_VERSION: 24,
    ELR_VERSION: 26,
}
NEEDED_BY: Final = {ELR_VERSION: 23}  # the metadata.version without which they cannot be


def new_features(metadata_version: int = METADATA_VERSION_MAX, wanted: Mapping[str, int] | None = None) -> list[Versioned]:
    """The feature levels of a new cluster: metadata.version first, then what is served and was a default by then, unless another
    level is wanted; kraft.version stands elsewhere. ValueError when a level is not served, or needs a higher metadata.version."""
    levels = {METADATA_VERSION: metadata_version}
    for name in sorted(name for name in SERVED if name not in (METADATA_VERSION, KRAFT_VERSION)):
        levels[name] = SERVED[name][1] if metadata_version >= DEFAULT_SINCE[name] else 0
    for name, level in (wanted or {}).items():
        low, high = SERVED.get(name, (0, 0))
        if name in (METADATA_VERSION, KRAFT_VERSION) or high == 0:
            raise ValueError(f"{name} cannot be set, only {', '.join(sorted(DEFAULT_SINCE))}")
        if not low <= level <= high:
            raise ValueError(f"{name} has the levels {low} to {high}, not {level}")
        if level and metadata_version < NEEDED_BY.get(name, 0):
            raise ValueError(f"{name}={level} needs metadata.version {release(NEEDED_BY[name])} or higher")
        levels[name] = level
    return [(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in levels.items() if level]


def activation(image: MetadataImage, bootstrap: Sequence[Message], min_insync_replicas: int) -> Decision[None]:
    """What a controller writes before its first decision. `bootstrap` are the records of bootstrap.checkpoint."""
    records: list[Versioned] = []
    if image.transaction is not None:
        records.append((AbortTransactionRecord(reason=ABORT_REASON), 0))
    if not image.features:
        records += first_records(bootstrap, min_insync_replicas)
    return Decision(records, None)


def first_records(bootstrap: Sequence[Message], min_insync_replicas: int) -> list[Versioned]:
    given: list[Versioned] = [(record, 0) for record in bootstrap] or new_features()
    levels = {record.name: record.feature_level for record, _ in given if isinstance(record, FeatureLevelRecord)}
    if levels.get(ELR_VERSION):
        given += elr_settings(MetadataImage(), min_insync_replicas)
    if not RecordVersions(levels[METADATA_VERSION]).has_transactions:
        return given
    return [(BeginTransactionRecord(name=TRANSACTION_NAME), 0), *given, (EndTransactionRecord(), 0)]


def elr_settings(image: MetadataImage, min_insync_replicas: int) -> list[Versioned]:
    """Eligible leader replicas need one min.insync.replicas for the whole cluster, and none of single brokers."""
    records: list[Versioned] = []
    if MIN_INSYNC_REPLICAS not in image.configs.get((BROKER_RESOURCE, ""), {}):
        records.append((min_insync_config("", str(min_insync_replicas)), 0))
    for (kind, name), entries in image.configs.items():
        if kind == BROKER_RESOURCE and name and MIN_INSYNC_REPLICAS in entries:
            records.append((min_insync_config(name, None), 0))
    return records


def min_insync_config(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name=MIN_INSYNC_REPLICAS, value=value)
