"""The folders of a node: locked, formatted if they are new, of one cluster, and opened.

Invariants
 1. Nothing is written before every folder is locked.
 2. All folders are of one cluster and of this node; a new folder beside old ones joins them.
 3. A folder whose disk fails is left out, and the node starts without it. It needs that of the metadata, and a broker one more of
    log.dirs, which may be the same. One that another process has, or that is not this node's, ends the start.
"""

import logging
import os
from collections.abc import Callable

import msgspec

from odradek.api.services import LogDir, Replica
from odradek.core.config.broker import BrokerConfig
from odradek.core.raft.voters import Voter, VoterSet
from odradek.log.checkpoint import CorruptFile
from odradek.log.config import LogConfig
from odradek.log.disk import Disk, DiskFailed, DiskFull, Lock
from odradek.log.folder import LogFolder, lock_folder
from odradek.log.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties
from odradek.node.errors import StartFailed
from odradek.node.format import format_folder, new_id
from odradek.node.machine import Machine
from odradek.wire.ids import id_text

logger = logging.getLogger("odradek.folders")


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
    offline: list[str]  # paths of those that are left out

    def release(self) -> None:
        for folder in self.folders:
            folder.lock.release()


def open_folders(
    config: BrokerConfig, endpoints: tuple[tuple[str, str, int], ...], new_disk: Callable[[], Disk], machine: Machine
) -> Folders:
    """Locks the folders and formats those that are new. StartFailed says what stands in the way."""
    log_dirs = [os.path.abspath(path) for path in config.log_dirs]
    metadata_path = os.path.abspath(config.metadata_log_dir)
    paths = list(dict.fromkeys((*log_dirs, metadata_path)))
    folders: list[Folder] = []
    offline: list[str] = []
    try:
        for path in paths:
            try:
                folders.append(lock(path, new_disk()))
            except (DiskFailed, DiskFull) as error:
                leave_out(path, error, offline, is_needed=path == metadata_path)
        if all(folder.meta is None for folder in folders) and not is_alone(config, endpoints):
            raise StartFailed(
                f"{paths[0]} is not formatted, and this node is one of several: format its folders with the id of the cluster, "
                "by odradek storage format"
            )
        cluster_id = check_ids(folders, config.node_id) or id_text(new_id(machine.unique_id))
        for folder in [each for each in folders if each.meta is None]:
            try:
                format_new(folder, config.node_id, cluster_id, machine, endpoints if folder.path == metadata_path else None)
            except DiskFailed as error:
                leave_out(folder.path, error, offline, is_needed=folder.path == metadata_path)
                folders.remove(folder)
                folder.lock.release()
        if config.is_broker and set(log_dirs) <= set(offline):
            raise StartFailed(f"none of the folders in log.dirs can be used: {', '.join(log_dirs)}; look at their disks")
        metadata = next(folder for folder in folders if folder.path == metadata_path)
        return Folders(cluster_id, folders, metadata, offline)
    except BaseException:
        for folder in folders:
            folder.lock.release()
        raise


def leave_out(path: str, error: OSError, offline: list[str], *, is_needed: bool) -> None:
    """Goes on without a folder. StartFailed when the node cannot be without it."""
    reason = error.strerror or str(error)
    if is_needed:
        raise StartFailed(f"{path} cannot be used as a data folder: {reason}") from error
    logger.error("%s cannot be used and is offline: %s; look at its disk, then start the node again", path, reason)
    offline.append(path)


def format_new(
    folder: Folder, node_id: int, cluster_id: str, machine: Machine, endpoints: tuple[tuple[str, str, int], ...] | None
) -> None:
    """`endpoints` are given for the folder of the metadata: there this node begins as the only voter."""
    directory_id = new_id(machine.unique_id)
    voters = None if endpoints is None else VoterSet((Voter(node_id, directory_id, endpoints),))
    format_folder(
        folder.disk,
        folder.path,
        node_id=node_id,
        cluster_id=cluster_id,
        directory_id=directory_id,
        now_ms=machine.wall_ms(),
        voters=voters,
    )
    folder.meta = read_meta_properties(folder.disk, f"{folder.path}/{META_PROPERTIES}")


def open_log_folders(
    folders: Folders, log_dirs: list[str], config_of: Callable[[str], LogConfig], machine: Machine
) -> list[LogFolder]:
    """Those of log.dirs that can be used, with all their logs. StartFailed when there is none."""
    found = []
    for folder in folders.folders:
        if folder.path not in log_dirs:
            continue
        try:
            log_folder = LogFolder(
                folder.disk,
                folder.path,
                config_of,
                now_ms=machine.wall_ms(),
                jitter=machine.below,
                unique_id=lambda: machine.unique_id().hex,
                lock=folder.lock,
            )
        except DiskFailed as error:
            leave_out(folder.path, error, folders.offline, is_needed=folder is folders.metadata)
        else:
            found.append(log_folder)
    if not found:
        raise StartFailed(f"none of the folders in log.dirs can be used: {', '.join(log_dirs)}; look at their disks")
    return found


def log_dir(path: str, folder: LogFolder | None) -> LogDir:
    """One of log.dirs as clients see it; it may be offline."""
    try:
        if folder is not None:
            replicas: dict[tuple[str, int], Replica] = {
                name: Replica(log.size, max(log.high_watermark - log.end_offset, 0)) for name, log in folder.logs.items()
            }
            return LogDir(path, False, replicas, *folder.disk.space(path))
    except DiskFailed:
        pass  # of which the node hears otherwise
    return LogDir(path, True, {}, -1, -1)


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
    try:
        return Folder(path, disk, held, read_meta_properties(disk, f"{path}/{META_PROPERTIES}"))
    except CorruptFile as error:
        held.release()
        raise StartFailed(f"{error}; correct the file, or start with another folder") from error
    except BaseException:
        held.release()
        raise


def check_ids(folders: list[Folder], node_id: int) -> str:
    """The id of the cluster; none when all folders are new."""
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
    return next(iter(clusters), "")
