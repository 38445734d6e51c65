"""Who votes, by offset: the voter sets and kraft.versions that the log and its snapshots name.

The set in force is the latest one in the log, committed or not: that is what makes one change at a time safe. What is cut off
the log is taken back here, and what a snapshot holds stands for all that lay before it.

Invariants
 1. Offsets rise. What is in force is the last entry, and without one the voters of the configuration.
 2. After `truncate(offset)` nothing of what was at the offset or behind it is left.
"""

from typing import Final, Generic, TypeVar

from odradek.core.raft.batches import SnapshotId
from odradek.core.raft.voters import VoterSet
from odradek.wire.message import Message
from odradek.wire.messages import KRaftVersionRecord, VotersRecord

NOWHERE: Final = -2  # before every offset; -1 is what Kafka gives to the snapshot that formatting left

Value = TypeVar("Value")


class Entries(Generic[Value]):
    """Values by the offset at which they begin to hold."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Value]] = []

    def add(self, offset: int, value: Value) -> None:
        assert not self.rows or self.rows[-1][0] < offset, f"{offset} does not follow {self.rows[-1][0]}"
        self.rows.append((offset, value))

    def truncate(self, offset: int) -> None:
        while self.rows and self.rows[-1][0] >= offset:
            self.rows.pop()

    def trim(self, offset: int) -> None:
        """Forgets what a later entry below the offset stands for."""
        while len(self.rows) > 1 and self.rows[1][0] <= offset:
            self.rows.pop(0)


class VoterHistory:
    def __init__(self, static_voters: VoterSet) -> None:
        """`static_voters` are those of controller.quorum.voters, an empty set where the log names them."""
        self.static_voters = static_voters
        self._voters: Entries[VoterSet] = Entries()
        self._kraft_versions: Entries[int] = Entries()

    @property
    def kraft_version(self) -> int:
        return self._kraft_versions.rows[-1][1] if self._kraft_versions.rows else 0

    @property
    def voters(self) -> VoterSet:
        return self._voters.rows[-1][1] if self._voters.rows else self.static_voters

    @property
    def voters_before(self) -> VoterSet | None:
        """The set that the one in force took the place of; None when that is not known any more."""
        return self._voters.rows[-2][1] if len(self._voters.rows) > 1 else None

    @property
    def voters_offset(self) -> int:
        """Where the voters in force are named: -1 when only the snapshot of formatting does, NOWHERE when nothing does."""
        return self._voters.rows[-1][0] if self._voters.rows else NOWHERE

    def note(self, offset: int, message: Message) -> None:
        """A control record of the log, in the order of offsets."""
        match message:
            case VotersRecord():
                self._voters.add(offset, VoterSet.of(message))
            case KRaftVersionRecord():
                self._kraft_versions.add(offset, message.kraft_version)
            case _:
                pass

    def note_snapshot(self, snapshot: SnapshotId, kraft_version: int, voters: VoterSet | None) -> None:
        """What a snapshot holds that takes the place of the log up to its end."""
        self._voters = Entries()
        self._kraft_versions = Entries()
        if voters is not None:
            self._voters.add(snapshot.offset - 1, voters)
            self._kraft_versions.add(snapshot.offset - 1, kraft_version)

    def at(self, end_offset: int) -> tuple[int, VoterSet | None]:
        """The kraft.version and the voters that the log up to an offset names: what a snapshot that ends there holds."""
        versions = [version for offset, version in self._kraft_versions.rows if offset < end_offset]
        voters = [found for offset, found in self._voters.rows if offset < end_offset]
        return versions[-1] if versions else 0, voters[-1] if voters else None

    def truncate(self, end_offset: int) -> None:
        self._voters.truncate(end_offset)
        self._kraft_versions.truncate(end_offset)

    def trim(self, start_offset: int) -> None:
        self._voters.trim(start_offset)
        self._kraft_versions.trim(start_offset)
