"""Formatting a folder: it gets its ids, the features of the cluster, and, where the metadata is kept, its first voters.

    meta.properties                                    cluster, node and folder
    bootstrap.checkpoint                               the feature levels that an empty metadata log begins with
    __cluster_metadata-0/00000000000000000000-0000000000.checkpoint    the voters, kraft.version 1

Invariants
 1. A folder that has a meta.properties is formatted, and is not formatted again.
 2. meta.properties is written last: after a crash the folder is formatted as a whole, or not at all.
"""

import os
from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

from odradek.core.config.broker import BrokerConfig
from odradek.core.controller.bootstrap import new_features
from odradek.core.controller.decision import Versioned
from odradek.core.raft.batches import CorruptSnapshot, SnapshotId, decode_snapshot, encode_snapshot
from odradek.core.raft.voters import VoterSet
from odradek.log.disk import Disk, RealDisk, replace_file
from odradek.log.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties, write_meta_properties
from odradek.node.metadata_log import create_metadata_folder, write_snapshot
from odradek.wire.ids import id_text
from odradek.wire.message import Message

BOOTSTRAP = "bootstrap.checkpoint"
FIRST_SNAPSHOT = SnapshotId(0, 0)
META_VERSION = 1


class AlreadyFormatted(Exception):
    """The folder belongs to a cluster."""


def new_id(unique_id: Callable[[], UUID] = uuid4) -> bytes:
    """A random id, as Kafka makes them: as text it never begins with a dash, which would look like an option."""
    while id_text(found := unique_id().bytes).startswith("-"):
        pass
    return found


def format_folder(
    disk: Disk,
    path: str,
    *,
    node_id: int,
    cluster_id: str,
    directory_id: bytes,
    now_ms: int,
    features: Sequence[Versioned] = (),
    voters: VoterSet | None = None,
) -> None:
    """Formats one of `log.dirs`, with the features of a new cluster if none are given. With `voters` the metadata is kept in it,
    and they are the first."""
    meta = f"{path}/{META_PROPERTIES}"
    disk.make_folder(path)
    disk.sync_folder(os.path.dirname(os.path.abspath(path)))
    found = read_meta_properties(disk, meta)
    if found is not None:
        raise AlreadyFormatted(f"{path} is formatted already, as node {found.node_id} of cluster {found.cluster_id}: leave it so")
    bootstrap = encode_snapshot(features or new_features(), epoch=0, now_ms=now_ms, timestamp_ms=0)
    replace_file(disk, f"{path}/{BOOTSTRAP}", b"".join(bootstrap))
    if voters is not None:
        folder = create_metadata_folder(disk, path)
        first = encode_snapshot([], epoch=0, now_ms=now_ms, timestamp_ms=now_ms, kraft_version=1, voters=voters)
        write_snapshot(disk, folder, FIRST_SNAPSHOT, first)
    properties = MetaProperties(META_VERSION, cluster_id, node_id, UUID(bytes=directory_id), {})
    write_meta_properties(disk, meta, properties, now_ms)


def format_folders(
    config: BrokerConfig,
    *,
    cluster_id: str,
    features: Sequence[Versioned],
    voters: VoterSet | None,
    now_ms: int,
    ignore_formatted: bool = False,
    new_disk: Callable[[], Disk] = RealDisk,
    unique_id: Callable[[], UUID] = uuid4,
) -> list[str]:
    """Formats the folders of a node; gives those that were new. AlreadyFormatted when one was not and none is written, or when
    it belongs to another node or cluster."""
    metadata_path = os.path.abspath(config.metadata_log_dir)
    paths = list(dict.fromkeys(os.path.abspath(path) for path in (*config.log_dirs, metadata_path)))
    new = []
    for path in paths:
        found = read_meta_properties(new_disk(), f"{path}/{META_PROPERTIES}")
        if found is None:
            new.append(path)
        elif (found.cluster_id, found.node_id) != (cluster_id, config.node_id) or not ignore_formatted:
            raise AlreadyFormatted(f"{path} is formatted already, as node {found.node_id} of cluster {found.cluster_id}")
    mine = voters.find(config.node_id) if voters is not None else None
    for path in new:
        keeps_metadata = path == metadata_path and config.is_controller
        format_folder(
            new_disk(),
            path,
            node_id=config.node_id,
            cluster_id=cluster_id,
            directory_id=mine.directory_id if keeps_metadata and mine else new_id(unique_id),
            now_ms=now_ms,
            features=features,
            voters=voters if keeps_metadata else None,
        )
    return new


def read_bootstrap(disk: Disk, path: str) -> list[Message]:
    """The records that an empty metadata log begins with; none when the folder has no such file. CorruptSnapshot."""
    try:
        content = disk.read(f"{path}/{BOOTSTRAP}")
    except FileNotFoundError:
        return []
    try:
        return decode_snapshot(content).records
    except CorruptSnapshot as error:
        raise CorruptSnapshot(f"{path}/{BOOTSTRAP}: {error}; format a new folder, this one has no cluster yet") from error
