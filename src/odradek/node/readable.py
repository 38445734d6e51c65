"""A replica of a partition as readers see it: a log up to its high watermark, and those who wait for that to move.

Leaders are read by everybody; followers by consumers that are near them (KIP-392), and refuse everybody else.

Invariants
 1. A reader sees nothing above the high watermark that this replica knows.
 2. A follower, and a leader that may have been replaced, deny no offset and no epoch: others may have them by now.
 3. Whatever the disk does, a client sees an error code of the protocol.
"""

from typing import TYPE_CHECKING, ClassVar

from odradek.api.context import Postponed
from odradek.api.services import Reader
from odradek.core.partition.follower import Follower
from odradek.core.partition.leader import READ_FROM_LEADER
from odradek.core.partition.replica import Replica
from odradek.log.disk import Cold, DiskFailed
from odradek.log.log import Log
from odradek.log.lookup import aborted
from odradek.log.segment import Slice
from odradek.log.transaction_index import AbortedTransaction
from odradek.wire.errors import ErrorCode, Refused

if TYPE_CHECKING:
    from odradek.node.partitions import Partitions


class Readable:
    __slots__ = ("followers", "host", "index", "is_closed", "leader_epoch", "log", "readers", "topic", "topic_id")

    is_followed: ClassVar[bool] = False

    def __init__(self, host: "Partitions", log: Log, topic: str, topic_id: bytes, index: int, leader_epoch: int) -> None:
        self.host = host
        self.log = log
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = leader_epoch
        self.readers: dict[Reader, None] = {}  # that wait for the high watermark
        self.followers: dict[Reader, None] = {}  # that wait for the end of the log
        self.is_closed = False

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def log_start(self) -> int:
        return self.log.start_offset

    @property
    def log_end(self) -> int:
        return self.log.end_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset

    def read(self, offset: int, bytes_max: int, upper_offset: int, *, at_least_one: bool) -> Slice:
        disk = self.log.disk
        disk.is_hasty = True
        try:
            return self.log.read(offset, bytes_max, upper_offset, at_least_one=at_least_one)
        except Cold as cold:
            raise Postponed(cold.warm) from cold
        except DiskFailed as error:
            raise self.host.refused(self, error) from error
        except Refused as refused:
            if refused.code == ErrorCode.CORRUPT_MESSAGE:
                self.host.damaged(self, offset, refused.message)
            if refused.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.check_certain()
            raise
        finally:
            disk.is_hasty = False

    @property
    def is_certain(self) -> bool:
        """Whether this node knows that nobody has taken its place."""
        return self.host.session.is_certain(self.host.monotonic_ms())

    def check_certain(self) -> None:
        if not self.is_certain:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} may have more records elsewhere")

    def aborted(self, offset: int, found: Slice) -> list[AbortedTransaction]:
        try:
            return aborted(self.log, offset, found)
        except DiskFailed as error:
            raise self.host.refused(self, error) from error

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)


class FollowedPartition(Readable):
    """A partition that another node leads, read by consumers here."""

    __slots__ = ()

    is_followed = True

    def __init__(self, host: "Partitions", log: Log, follower: Follower) -> None:
        super().__init__(host, log, follower.topic, follower.topic_id, follower.index, follower.leader_epoch)

    def check_certain(self) -> None:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader of {self} may have more records")

    def follower(self, broker_id: int, leader_epoch: int) -> Replica:
        raise Refused(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{broker_id} fetches in epoch {leader_epoch} from who does not lead {self}"
        )

    def is_in_sync(self, _broker_id: int) -> bool:
        return False

    def fetched(self, replica: Replica, offset: int, log_start: int, broker_epoch: int) -> None:
        raise AssertionError(f"{replica.broker_id} at {offset}, {log_start}, {broker_epoch}: nobody follows a follower")

    def holds_back(self, replica: Replica) -> bool:
        raise AssertionError(f"{replica.broker_id}: nobody follows a follower")

    def sent(self, size: int) -> None:
        raise AssertionError(f"{size} bytes: nobody follows a follower")

    def read_replica(self, _rack: str, _listener: str, _offset: int) -> int:
        return READ_FROM_LEADER  # whoever reads here was sent, or asked for it

    def advanced(self) -> None:
        """The high watermark has moved."""
        for reader in tuple(self.readers):
            reader.partition_changed(self)

    def close(self) -> None:
        """No longer followed, or in another epoch: those who wait learn why when they look."""
        self.is_closed = True
        self.advanced()
