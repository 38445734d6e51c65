"""What is on the disks of a cluster, looked at as a start would, now and after a loss of power.

Nothing is changed by it: the medium is copied first.

Invariants that are checked
 1. Every log opens, without damage, and every batch in it is sound, unless rot was made in it.
 2. Whatever is looked up in it by offset or by timestamp is found, whatever has become of its indexes.
 3. It ends where the live one does; after a loss of power at the recovery point or later, and it has then the same records.
"""

import random
from typing import TYPE_CHECKING

from odradek.log.checkpoint import CorruptFile
from odradek.log.config import LogConfig
from odradek.log.folder import METADATA_LOG, LogFolder
from odradek.log.index import CorruptIndex
from odradek.log.log import Log
from odradek.log.names import FileKind
from odradek.node.metadata_log import MetadataLog, MetadataLogConfig
from odradek.wire.batch import check
from odradek.wire.errors import ProtocolError
from tests.log.disk import SimDisk
from tests.log.medium import Manner, Medium
from tests.sim.structural.findings import Violated, hold
from tests.sim.structural.logs import Cursor, batches_below

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster, SimNode

NOW_MS = 0


def check_files(cluster: "SimCluster", manner: Manner = "kept", dice: random.Random | None = None) -> int:
    """Gives how many logs were opened."""
    return sum(check_member(member, manner, dice or random.Random(0)) for member in cluster.members.values())


def check_member(member: "SimNode", manner: Manner, dice: random.Random) -> int:
    after = member.disks.medium.crash(manner, dice)
    count = 0
    for path in member.folders:
        disk = SimDisk(path, after)
        folder = open_folder(disk, path)
        for name, log in folder.logs.items():
            count += 1
            check_opened(f"{name} on node {member.number} ({manner})", log, after, live_log(member, log))
        if any(name == METADATA_LOG for name, _ in disk.names(path)) and not has_rot(after, f"{path}/{METADATA_LOG}"):
            count += 1
            metadata_log = MetadataLog(disk, path, MetadataLogConfig(), NOW_MS)  # MetadataLost where it is broken
            live = member.node.quorum.log if member.node is not None else None
            check_opened(f"the metadata log of node {member.number} ({manner})", metadata_log.log, after, live)
    return count


def open_folder(disk: SimDisk, path: str) -> LogFolder:
    try:
        return LogFolder(disk, path, lambda _: LogConfig(), now_ms=NOW_MS, jitter=lambda _: 0, unique_id=lambda: "0" * 32)
    except CorruptFile as error:
        raise Violated(f"a start would find {error}") from error


def live_log(member: "SimNode", opened: Log) -> Log | None:
    partitions = None if member.node is None else getattr(member.node, "partitions", None)
    for folder in partitions.folders if partitions is not None else ():
        for log in folder.logs.values():
            if log.folder == opened.folder:
                found: Log = log
                return found
    return None


def has_rot(medium: Medium, folder: str) -> bool:
    return any(node.is_rotten for path, node in medium.files(folder) if path.endswith((".log", ".checkpoint")))


def check_found(name: str, log: Log, medium: Medium) -> None:
    """Where its time index is rotten a segment may tell of any batch with the greatest timestamp: the entry of the first may have
    become that of another, which nothing shows, as in Kafka."""
    for segment in log.segments:
        greatest = [(-1, segment.base_offset)]  # the first batch that has it, and the others
        for position, header in segment.batches():
            found = segment.locate(header.base_offset)
            hold(
                found is not None and found[0] == position,
                f"{name} has a batch at {header.base_offset}, and {found} is found",
            )
            if header.max_timestamp > greatest[0][0]:
                greatest.clear()
            if not greatest or header.max_timestamp == greatest[0][0]:
                greatest.append((header.max_timestamp, header.last_offset))
        is_rotten = medium.node(segment.path(FileKind.TIME_INDEX)).is_rotten
        told = segment.max_timestamp()
        hold(
            told in (greatest if is_rotten else greatest[:1]),
            f"{name} has {greatest[0]} for its greatest timestamp, and {told} is told",
        )


def check_opened(name: str, log: Log, medium: Medium, live: Log | None) -> None:
    if any(medium.node(segment.path(FileKind.LOG)).is_rotten for segment in log.segments):
        return
    hold(log.damage is None, f"{name} opens with damage at {log.damage.offset if log.damage else ''}: {log.damage}")
    for batch in batches_below(medium, log, log.end_offset, Cursor()):
        try:
            check(batch.data, 0, batch.header)
        except ProtocolError as error:
            raise Violated(f"{name} has a broken batch at {batch.header.base_offset}: {error}") from error
    try:
        check_found(name, log, medium)
    except (CorruptIndex, ProtocolError) as error:
        raise Violated(f"{name} cannot be looked up: {error}") from error
    if live is None or live.is_being_written or live.damage is not None:
        return
    if "(kept)" in name:
        hold(log.end_offset == live.end_offset, f"{name} ends at {log.end_offset}, and at {live.end_offset} in the running node")
    else:
        synced = live.recovery_point
        hold(log.end_offset >= synced, f"{name} ends at {log.end_offset}, and was synced up to {synced}")
