"""Formatting a folder: it gets its ids, the features of the cluster, and, where the metadata is kept, its first voter.

    meta.properties                                    cluster, node and folder
    bootstrap.checkpoint                               the feature levels that an empty metadata log begins with
    __cluster_metadata-0/00000000000000000000-0000000000.checkpoint    the voters, kraft.version 1

Invariants
 1. A folder that has a meta.properties is formatted, and is not formatted again.
 2. meta.properties is written last: after a crash the folder is formatted as a whole, or not at all.
"""

import os
from uuid import UUID

from odradek.core.controller.bootstrap import new_features
from odradek.core.raft.batches import CorruptSnapshot, SnapshotId, decode_snapshot, encode_snapshot
from odradek.core.raft.voters import Voter, VoterSet
from odradek.log.disk import Disk, replace_file
from odradek.log.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties, write_meta_properties
from odradek.node.metadata_log import create_metadata_folder, write_snapshot
from odradek.wire.message import Message

BOOTSTRAP = "bootstrap.checkpoint"
FIRST_SNAPSHOT = SnapshotId(0, 0)
META_VERSION = 1


class AlreadyFormatted(Exception):
    """The folder belongs to a cluster."""


def format_folder(
    disk: Disk,
    path: str,
    *,
    node_id: int,
    cluster_id: str,
    directory_id: bytes,
    now_ms: int,
    endpoints: tuple[tuple[str, str, int], ...] | None = None,
) -> None:
    """Formats one of `log.dirs`. With `endpoints`, those of the controller's listeners (name, host, port), the metadata is kept
    in it, and this node is the only voter."""
    meta = f"{path}/{META_PROPERTIES}"
    disk.make_folder(path)
    disk.sync_folder(os.path.dirname(os.path.abspath(path)))
    found = read_meta_properties(disk, meta)
    if found is not None:
        raise AlreadyFormatted(f"{path} is formatted already, as node {found.node_id} of cluster {found.cluster_id}: leave it so")
    bootstrap = encode_snapshot(new_features(), epoch=0, now_ms=now_ms, timestamp_ms=0)
    replace_file(disk, f"{path}/{BOOTSTRAP}", b"".join(bootstrap))
    if endpoints is not None:
        folder = create_metadata_folder(disk, path)
        voters = VoterSet((Voter(node_id, directory_id, endpoints),))
        first = encode_snapshot([], epoch=0, now_ms=now_ms, timestamp_ms=now_ms, kraft_version=1, voters=voters)
        write_snapshot(disk, folder, FIRST_SNAPSHOT, first)
    properties = MetaProperties(META_VERSION, cluster_id, node_id, UUID(bytes=directory_id), {})
    write_meta_properties(disk, meta, properties, now_ms)


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
