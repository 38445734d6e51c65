"""What a voter would know after a loss of power that leaves nothing but what was synced: its log, and its vote."""

from contextlib import suppress

from odradek.core.raft.election import QUORUM_STATE, Election
from odradek.core.raft.states import UNKNOWN
from odradek.wire.batch import HEADER_SIZE, read_header
from odradek.wire.errors import ProtocolError
from tests.log.medium import Medium
from tests.log.medium import Node as File


def synced_last(medium: Medium, folder: str) -> tuple[int, int]:
    """The epoch of the last record, and where a log would end, after a loss of power that leaves nothing but what was synced."""
    names = medium.folder(folder).durable
    last = max((name for name in names if name.endswith(".log")), default=None)
    if last is None:
        return UNKNOWN, 0
    file = names[last]
    assert isinstance(file, File)
    content, position, epoch, end = file.durable, 0, UNKNOWN, int(last.removesuffix(".log"))
    with suppress(ProtocolError):  # a gap: it ends there
        while position + HEADER_SIZE <= len(content):
            header = read_header(content, position)
            position += header.size
            if position <= len(content):
                epoch, end = header.leader_epoch, header.next_offset
    return epoch, end


def synced_election(medium: Medium, folder: str) -> Election:
    """What a voter would remember after a loss of power."""
    file = medium.folder(folder).durable.get(QUORUM_STATE)
    return Election.of(file.durable) if isinstance(file, File) and file.durable else Election()
