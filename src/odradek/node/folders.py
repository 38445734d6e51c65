"""The folders of a node before it serves: locked, formatted if they are new, and of one cluster.

Invariants
 1. Nothing is written before every folder is locked.
 2. All folders are of one cluster and of this node; a new folder beside old ones joins them.
"""

import os
from collections.abc import Callable

import msgspec

from odradek.core.config.broker import BrokerConfig
from odradek.core.metadata.ids import id_text
from odradek.core.raft.voters import Voter, VoterSet
from odradek.log.checkpoint import CorruptFile
from odradek.log.disk import Disk, Lock
from odradek.log.folder import lock_folder
from odradek.log.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties
from odradek.node.errors import StartFailed
from odradek.node.format import format_folder, new_id


class Folder(msgspec.Struct):
    """One of log.dirs, or that of the metadata."""

    path: str
    disk: Disk
    lock: Lock
    meta: MetaProperties | None

    @property
    def directory_id(self) -> bytes:
        assert self.meta is not None
        assert self.meta.directory_id is not None
        return self.meta.directory_id.bytes


class Folders(msgspec.Struct):
    cluster_id: str
    folders: list[Folder]
    metadata: Folder

    def release(self) -> None:
        for folder in self.folders:
            folder.lock.release()


def open_folders(
    config: BrokerConfig, endpoints: tuple[tuple[str, str, int], ...], new_disk: Callable[[], Disk], now_ms: int
) -> Folders:
    """Locks the folders and formats those that are new. StartFailed says what stands in the way."""
    paths = list(dict.fromkeys(os.path.abspath(path) for path in (*config.log_dirs, config.metadata_log_dir)))
    folders: list[Folder] = []
    try:
        folders += (lock(path, new_disk()) for path in paths)
        if all(folder.meta is None for folder in folders) and not is_alone(config, endpoints):
            raise StartFailed(
                f"{paths[0]} is not formatted, and this node is one of several: format its folders with the id of the cluster, "
                "by odradek storage format"
            )
        cluster_id = check_ids(folders, config.node_id)
        metadata_path = os.path.abspath(config.metadata_log_dir)
        for folder in folders:
            if folder.meta is None:
                directory_id = new_id()
                alone = VoterSet((Voter(config.node_id, directory_id, endpoints),))
                format_folder(
                    folder.disk,
                    folder.path,
                    node_id=config.node_id,
                    cluster_id=cluster_id,
                    directory_id=directory_id,
                    now_ms=now_ms,
                    voters=alone if folder.path == metadata_path else None,
                )
                folder.meta = read_meta_properties(folder.disk, f"{folder.path}/{META_PROPERTIES}")
        metadata = next(folder for folder in folders if folder.path == metadata_path)
        return Folders(cluster_id, folders, metadata)
    except BaseException:
        for folder in folders:
            folder.lock.release()
        raise


def is_alone(config: BrokerConfig, endpoints: tuple[tuple[str, str, int], ...]) -> bool:
    """Whether nobody but this node votes by its settings: then a new folder may begin a cluster."""
    if not config.is_controller:
        return False
    if config.voters:
        return list(config.voters) == [config.node_id]
    ports = {port for _, _, port in endpoints}
    return len(config.bootstrap_servers) == 1 and (config.bootstrap_servers[0][1] in ports or 0 in config_ports(config))


def config_ports(config: BrokerConfig) -> set[int]:
    return {listener.port for listener in config.listeners}


def lock(path: str, disk: Disk) -> Folder:
    try:
        held = lock_folder(disk, path)
    except BlockingIOError as error:
        raise StartFailed(f"{path} is in use by another process; stop it, or start with another --data folder") from error
    except OSError as error:
        raise StartFailed(f"{path} cannot be used as a data folder: {error.strerror or error}") from error
    try:
        return Folder(path, disk, held, read_meta_properties(disk, f"{path}/{META_PROPERTIES}"))
    except (CorruptFile, OSError) as error:
        held.release()
        raise StartFailed(f"{error}; correct the file, or start with another folder") from error


def check_ids(folders: list[Folder], node_id: int) -> str:
    """The id of the cluster; a new one when all folders are new."""
    clusters: dict[str, str] = {}
    for folder in folders:
        meta = folder.meta
        if meta is None:
            continue
        path = f"{folder.path}/{META_PROPERTIES}"
        if meta.node_id != node_id:
            raise StartFailed(
                f"{path} has node.id={meta.node_id}, and this node has {node_id}: set node.id, or use another folder"
            )
        if meta.cluster_id is None or meta.directory_id is None:
            raise StartFailed(
                f"{path} is of a version before Kafka 3.7: start Apache Kafka 4 on the folder once, it adds what is missing"
            )
        clusters[meta.cluster_id] = folder.path
    if len(clusters) > 1:
        told = ", ".join(f"{path} of {cluster}" for cluster, path in clusters.items())
        raise StartFailed(f"the folders in log.dirs belong to different clusters: {told}")
    return next(iter(clusters), "") or id_text(new_id())
