"""One partition that is read: how far it was fetched, given to the program and done with, and who is asked for more.

Invariants
 1. done <= given <= offset, once they are known: of what was fetched a part was given, of that a part is done with.
 2. Every move (a jump, or what was fetched being dropped) makes what was asked for before it worthless: `moves` tells.
 3. What was assigned by the id of its topic is not read, and not gone on with, in another topic of the same name.
 4. After a jump (a seek, a reset, a log that was cut) what was given before it says nothing of where we are: `jumps` tells.
"""

from typing import Final

from odradek.client.metadata import NO_ID, NO_NODE, TopicInfo
from odradek.client.records import NO_EPOCH, NO_OFFSET, TopicPartition
from odradek.wire.batch import OFFSET_MAX

LATEST: Final = -1  # timestamps, as ListOffsets knows them
EARLIEST: Final = -2


class Reading:
    __slots__ = (
        "checked_epoch",
        "done",
        "done_epoch",
        "given",
        "given_epoch",
        "high_watermark",
        "is_asked",
        "is_assigned",
        "is_paused",
        "is_withheld",
        "jumps",
        "last_epoch",
        "last_stable_offset",
        "leader",
        "leader_epoch",
        "log_start",
        "moves",
        "must_check",
        "not_before_s",
        "offset",
        "pieces",
        "place",
        "replica",
        "replica_until_s",
        "target",
        "topic_id",
        "tries",
        "until",
    )

    def __init__(self, place: TopicPartition, until: int = OFFSET_MAX, topic_id: bytes = NO_ID) -> None:
        """Of the topic with this id, or, without one, of whichever has the name."""
        self.place = place
        self.until = until  # nothing from there on is wanted
        self.moves = self.jumps = 0
        self.offset = self.given = self.done = NO_OFFSET
        self.last_epoch = self.given_epoch = self.done_epoch = NO_EPOCH  # of the batch before each of them
        self.target: int | None = None  # the time to go to, where the offset is not known
        self.topic_id = topic_id
        self.is_assigned = topic_id != NO_ID  # that topic's and no other's of the name
        self.leader = NO_NODE
        self.leader_epoch = NO_EPOCH
        self.checked_epoch = NO_EPOCH  # of the leader that has agreed with this position
        self.must_check = False  # by OffsetForLeaderEpoch, before anything is fetched
        self.is_asked = False  # where to go, or whether to stay: the answer is on its way
        self.replica = NO_NODE  # that the leader has sent us to
        self.replica_until_s = 0.0
        self.high_watermark = self.last_stable_offset = self.log_start = NO_OFFSET
        self.is_paused = False  # by the program
        self.is_withheld = False  # while it is about to come, or to go
        self.pieces = 0  # fetched, and not read to their ends
        self.tries = 0  # that failed, one after the other
        self.not_before_s = 0.0

    def move(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Goes on elsewhere: what was given is done with, by whoever moves."""
        self.jumps += 1
        self.offset = self.given = self.done = offset
        self.last_epoch = self.given_epoch = self.done_epoch = epoch
        self.target = None
        self.must_check = False
        self.checked_epoch = NO_EPOCH
        self._settle()

    def aim(self, timestamp: int) -> None:
        """Goes on at the offset of a time, when that is known."""
        self.move(NO_OFFSET)
        self.target = timestamp

    def fetch_again(self) -> None:
        """What was fetched and not given is no more."""
        self.offset, self.last_epoch = self.given, self.given_epoch
        self._settle()

    def end(self) -> None:
        """It is not read any more."""
        self.jumps += 1
        self._settle()

    def _settle(self) -> None:
        self.moves += 1
        self.pieces = 0
        self.is_asked = False
        self.tries = 0
        self.not_before_s = 0.0

    @property
    def is_placed(self) -> bool:
        return self.offset >= 0

    @property
    def is_read_to_end(self) -> bool:
        """All that is wanted was fetched."""
        return self.offset >= self.until

    @property
    def is_open(self) -> bool:
        return not self.is_paused and not self.is_withheld

    def is_replaced_by(self, topic: TopicInfo | None) -> bool:
        """Whether the topic that has the name now is another than the one that was assigned."""
        return self.is_assigned and topic is not None and topic.id != self.topic_id

    def lead(self, leader: int, leader_epoch: int, topic_id: bytes) -> bool:
        """Who leads it now. Gives whether the topic is another one than before, under the same name."""
        is_another = topic_id != self.topic_id and self.topic_id != NO_ID and topic_id != NO_ID
        self.topic_id = topic_id
        if leader != self.leader or leader_epoch != self.leader_epoch:
            self.leader, self.leader_epoch = leader, leader_epoch
            self.replica = NO_NODE
            self.not_before_s = 0.0
        return is_another

    def source(self, now_s: float) -> int:
        if self.replica != NO_NODE:
            if now_s < self.replica_until_s:
                return self.replica
            self.replica = NO_NODE
        return self.leader
