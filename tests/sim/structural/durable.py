"""What is durable on the disks, held against what the nodes promise of it: before the power goes, and not after.

`seen` is told of every operation of a disk before it is done; `check` looks at the logs of the nodes that serve.

Invariants that are checked
 1. Everything below the recovery point of a log is synced, and what was aborted there; so are the names of the files.
 2. The recovery point on disk is never above that of the log, and no log is cut below it.
 3. A log that was cut is synced before anything is appended in place of what went; no segment is left behind its end.
 4. A small file is never written where it stands, and is synced before it has its name; so is a snapshot of the metadata.
 5. What the metadata log has let go is in a snapshot whose name is on the disk.
"""

import os
from typing import TYPE_CHECKING, Final

from odradek.core.raft.election import QUORUM_STATE
from odradek.log.checkpoint import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from odradek.log.epochs import LEADER_EPOCHS
from odradek.log.folder import METADATA_LOG, LogFolder
from odradek.log.log import Log
from odradek.log.names import FileKind, FileState, TopicPartition, parse_file_name, parse_folder_name
from odradek.log.segment import Segment
from odradek.log.transaction_index import ENTRY, AbortedTransaction
from odradek.node.metadata_log import MetadataLog
from odradek.wire.batch import headers
from odradek.wire.errors import ProtocolError
from tests.log.medium import Folder, Medium, Node
from tests.sim.structural.findings import hold

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster, SimNode

SMALL_FILES: Final = frozenset(
    {
        RECOVERY_POINTS,
        LOG_STARTS,
        HIGH_WATERMARKS,
        CLEANER_OFFSETS,
        CLEAN_SHUTDOWN,
        PARTITION_METADATA,
        LEADER_EPOCHS,
        QUORUM_STATE,
    }
)
METADATA_SNAPSHOT: Final = ".checkpoint"
WRITES: Final = ("append", "truncate", "sync")
UNFINISHED: Final = (".tmp", ".part")  # what the two are called before


def is_small(path: str) -> bool:
    return os.path.basename(path) in SMALL_FILES or path.endswith(METADATA_SNAPSHOT)


def recovery_points_on_disk(medium: Medium, folder: str) -> dict[TopicPartition, int]:
    """As they would be found after a loss of power; none where there was rot."""
    file = medium.folder(folder).durable.get(RECOVERY_POINTS)
    if not isinstance(file, Node) or file.is_rotten:
        return {}
    rows = [line.split() for line in file.durable.decode().splitlines()[2:]]
    return {TopicPartition(topic, int(index)): int(offset) for topic, index, offset in rows}


def offset_at(content: bytearray, position: int, base_offset: int) -> int:
    """Up to where the batches go that end at or before a position, as far as they can be followed."""
    offset = base_offset
    try:
        for at, header in headers(bytes(content[:position])):
            if at + header.size <= position:
                offset = header.next_offset
    except ProtocolError:
        pass
    return offset


class DurableChecks:
    def __init__(self) -> None:
        self._cut: dict[tuple[int, int, str], Node] = {}  # files, by node, life and path, that were cut and not synced since
        self._ends: dict[tuple[int, str], tuple[Node, int, int, int]] = {}  # the file, durable bytes, size, and the offset there

    # -- what nodes do

    def seen(self, member: "SimNode", kind: str, path: str, size: int) -> str:
        """What is wrong with an operation that is about to be done; nothing when it may be."""
        if is_small(path):
            return self._seen_small(member.disks.medium, kind, path)
        if kind not in WRITES or not path.endswith(FileKind.LOG) or METADATA_LOG in path:
            return ""
        name = parse_file_name(os.path.basename(path))
        if name is None:
            return ""
        key = (member.number, member.life, path)
        if kind == "truncate":
            return self._seen_cut(member, path, name.offset, size)
        if kind == "sync":
            self._cut.pop(key, None)
        elif kind == "append" and key in self._cut and is_there(member.disks.medium, path, self._cut[key]):
            return f"{path} on node {member.number} was cut, and is written before that is synced"
        return ""

    def _seen_small(self, medium: Medium, kind: str, path: str) -> str:
        if kind in ("append", "truncate"):
            return f"{path} is written where it stands"
        if kind == "rename":
            folder, name = medium.walk(path)
            before = [folder.names.get(name + ending) for ending in UNFINISHED]
            if any(isinstance(file, Node) and file.unsynced for file in before):
                return f"{path} gets its name before it is synced"
        return ""

    def _seen_cut(self, member: "SimNode", path: str, base_offset: int, size: int) -> str:
        medium, (folder, log_name) = member.disks.medium, os.path.split(os.path.dirname(path))
        parsed = parse_folder_name(log_name)
        try:
            file = medium.node(path)
        except FileNotFoundError:
            return ""  # the topic is deleted, and its files are elsewhere
        if parsed is None or size >= len(file.content):
            return ""
        synced, offset = recovery_points_on_disk(medium, folder).get(parsed[0], 0), offset_at(file.content, size, base_offset)
        if is_known(member, path, size, offset):
            self._cut[member.number, member.life, path] = file
        if offset < synced:
            return f"{path} on node {member.number} is cut at {offset}, and was synced up to {synced} by the checkpoint"
        return ""

    # -- what they have

    def check(self, cluster: "SimCluster") -> None:
        for number, node in cluster.nodes.items():
            medium = cluster.members[number].disks.medium
            check_snapshot(number, medium, node.quorum.metadata_log)
            for folder in node.partitions.folders if hasattr(node, "partitions") else ():
                self._check_folder(number, medium, folder)

    def _check_folder(self, number: int, medium: Medium, folder: LogFolder) -> None:
        on_disk = recovery_points_on_disk(medium, folder.path)
        for name, log in folder.logs.items():
            if log.damage is not None or log.is_being_written:
                continue
            who = f"{name.topic}-{name.partition} on node {number}"
            point = on_disk.get(name, 0)
            hold(point <= log.recovery_point, f"{who} is synced up to {log.recovery_point}, and up to {point} by its checkpoint")
            self._check_synced(who, number, medium, log)
            last = max((base for base in durable_bases(medium, log) if base not in log.bases), default=0)
            hold(last <= log.end_offset, f"{who} ends at {log.end_offset}, and has a segment at {last} on its disk")

    def _check_synced(self, who: str, number: int, medium: Medium, log: Log) -> None:
        folder = medium.folder(log.folder)
        for segment in log.segments:
            if segment.base_offset >= log.recovery_point:
                return
            file = medium.node(segment.path(FileKind.LOG))
            hold(
                has_name(folder, file),
                f"{who} is synced up to {log.recovery_point}, and its segment at {segment.base_offset} has no name on the disk",
            )
            end = self._durable_end(number, file, segment)
            on_disk = end == -1 or end >= log.recovery_point
            hold(on_disk, f"{who} is synced up to {log.recovery_point}, and on the disk up to {end}")
            self._check_aborted(who, folder, log, segment)

    def _check_aborted(self, who: str, folder: Folder, log: Log, segment: Segment) -> None:
        name = os.path.basename(segment.path(FileKind.TRANSACTION_INDEX))
        index = folder.names.get(name)
        if isinstance(index, Node) and not index.is_rotten:
            wanted, there = aborted_bytes(index, log.recovery_point), index.durable_bytes if has_name(folder, index) else 0
            what = f"{who} is synced up to {log.recovery_point}, and {name} has {there} of {wanted} bytes on the disk"
            hold(there >= wanted, what)

    def _durable_end(self, number: int, file: Node, segment: Segment) -> int:
        """The offset up to which a segment is on the disk; -1 when all of it is, or it has rot."""
        size = file.durable_bytes
        if size == len(file.content) or file.is_rotten:
            return -1
        key = (number, segment.path(FileKind.LOG))
        known = self._ends.get(key)
        if known is None or known[0] is not file or known[1:3] != (size, len(file.content)):
            known = self._ends[key] = (file, size, len(file.content), offset_at(file.content, size, segment.base_offset))
        return known[3]


def check_snapshot(number: int, medium: Medium, metadata: MetadataLog) -> None:
    start, names = metadata.log.start_offset, medium.folder(metadata.folder).durable
    found = start == 0 or any(snapshot.offset >= start and snapshot.name in names for snapshot in metadata.snapshots)
    hold(found, f"the metadata log of node {number} starts at {start}, and no snapshot from there on has its name on the disk")


def has_name(folder: Folder, file: Node) -> bool:
    """Whether it is found after a loss of power, if only under the name of a compaction, which a start finishes."""
    return any(each is file for each in folder.durable.values())


def aborted_bytes(index: Node, end_offset: int) -> int:
    """The size of the index of what was aborted below an offset."""
    content = bytes(index.content)
    starts = range(0, len(content) - ENTRY.size + 1, ENTRY.size)
    return sum(ENTRY.size for at in starts if AbortedTransaction(*ENTRY.unpack_from(content, at)[1:]).last_offset < end_offset)


def is_there(medium: Medium, path: str, file: Node) -> bool:
    """Whether a path still leads to a file: a topic that was made anew has others of the same names."""
    try:
        return medium.node(path) is file
    except FileNotFoundError:
        return False


def is_known(member: "SimNode", path: str, size: int, offset: int) -> bool:
    """Whether a log that is in use knows of more than is left of it. What a start cuts off was not sound, and is not when it
    comes back; what is taken back at once, nobody has seen."""
    node, folder = member.node, os.path.dirname(path)
    logs = [] if node is None else [log for each in node.partitions.folders for log in each.logs.values() if log.folder == folder]
    known = [log for log in logs if log.end_offset > offset]
    return any(segment.path(FileKind.LOG) == path and segment.size > size for log in known for segment in log.segments)


def durable_bases(medium: Medium, log: Log) -> list[int]:
    parsed = [parse_file_name(name) for name in medium.folder(log.folder).durable]
    return [name.offset for name in parsed if name and name.kind is FileKind.LOG and name.state is FileState.CURRENT]
