"""A follower of one partition: what it fetches next, and what an answer of the leader asks it to do. Without IO.

Its log is looked at and never touched: `answered` gives a `Step`, and whoever holds the log takes it. So where to fetch and from
which epoch is always what the log says, whatever became of the last step.

Invariants
 1. Every fetch tells the epoch of the last record that is in the log. Where the leader's log parts from ours there, the log is
    cut to where both have that epoch, and fetched again, until they agree. This happens at every new leader epoch, by itself.
 2. The log is never cut to the high watermark: what is above it may be committed (KIP-101).
 3. An answer counts only if it is to what would be asked now: same offset, same epochs.
 4. The high watermark is the leader's, but never past the end of the log; the start of the log follows the leader's.
 5. A partition with an error waits, each time twice as long, at most for `replica.fetch.backoff.ms`; one that the leader has
    fenced, for new metadata.
"""

from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from odradek.core.partition.replica import NEVER_MS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchRequest, FetchResponse

UNKNOWN: Final = -1
RETRY_MS_MIN: Final = 10  # a new leader often hears of its leadership a moment after its followers
RETRY_DOUBLINGS_MAX: Final = 16


class FollowedLog(Protocol):
    """What a follower looks at."""

    @property
    def start_offset(self) -> int: ...
    @property
    def lasting_start(self) -> int:
        """Where it starts also after a crash."""
        ...

    @property
    def end_offset(self) -> int: ...
    @property
    def latest_epoch(self) -> int:
        """-1 when nothing is known."""
        ...

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one that the log has, and where it ends; (-1, -1) when there is none."""
        ...


class Action(Enum):
    NONE = auto()
    APPEND = auto()  # what was fetched, unchanged; then take the watermarks
    TAKE_WATERMARKS = auto()
    TRUNCATE = auto()  # to `offset`
    RESET = auto()  # throw all away and begin at `offset`
    ASK_OFFSETS = auto()  # where the leader's log starts and ends: ListOffsets as a replica, then `offsets_told`


class Step(NamedTuple):
    action: Action
    offset: int = UNKNOWN


class Watermarks(NamedTuple):
    high_watermark: int
    log_start: int


NOTHING: Final = Step(Action.NONE)
APPEND: Final = Step(Action.APPEND)
TAKE_WATERMARKS: Final = Step(Action.TAKE_WATERMARKS)
ASK_OFFSETS: Final = Step(Action.ASK_OFFSETS)


class Follower:
    __slots__ = (
        "delayed_until_ms",
        "index",
        "is_asking",
        "is_failed",
        "lag",
        "leader_end",
        "leader_epoch",
        "leader_id",
        "log",
        "retries",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, log: FollowedLog, leader_id: int, leader_epoch: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self._begin(leader_id, leader_epoch)

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """What the metadata says. Within an epoch nothing changes."""
        if leader_epoch > self.leader_epoch:
            self._begin(leader_id, leader_epoch)

    def _begin(self, leader_id: int, leader_epoch: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.lag = UNKNOWN  # how far the high watermark is ahead
        self.leader_end = UNKNOWN  # of a log that is copied anew: where the leader's ended when it was first asked
        self.delayed_until_ms = NEVER_MS
        self.retries = 0  # since the last answer that could be used
        self.is_asking = False  # where the leader's log starts and ends
        self.is_failed = False  # until there is new metadata

    @property
    def is_in_sync(self) -> bool:
        return self.lag == 0

    def is_ready(self, now_ms: int) -> bool:
        return now_ms >= self.delayed_until_ms and not self.is_failed and not self.is_asking

    def wanted(self, bytes_max: int) -> FetchRequest.FetchPartition:
        """What to ask for."""
        log = self.log
        return FetchRequest.FetchPartition(
            partition=self.index,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.end_offset,
            last_fetched_epoch=log.latest_epoch,
            log_start_offset=log.lasting_start,
            partition_max_bytes=bytes_max,
        )

    def answered(
        self, asked: FetchRequest.FetchPartition, answer: FetchResponse.PartitionData, now_ms: int, backoff_ms: int
    ) -> Step:
        """What an answer asks for. Nothing, if the follower has moved on since it asked."""
        log = self.log
        if (
            asked.fetch_offset != log.end_offset
            or asked.current_leader_epoch != self.leader_epoch
            or asked.last_fetched_epoch != log.latest_epoch
            or not self.is_ready(now_ms)
        ):
            return NOTHING
        if answer.error_code:
            return self._refused(answer.error_code, now_ms, backoff_ms)
        if answer.diverging_epoch.epoch >= 0:
            return Step(Action.TRUNCATE, self._common_end(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset))
        return APPEND if answer.records else TAKE_WATERMARKS

    def _refused(self, code: int, now_ms: int, backoff_ms: int) -> Step:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and not self.is_asking:
            self.is_asking = True
            return ASK_OFFSETS
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            self.is_failed = True
        else:  # the metadata of one of us is behind, a folder of the leader has failed, or the like: it passes, or is told
            self.delay(now_ms, backoff_ms)
        return NOTHING

    def _common_end(self, epoch: int, leader_end: int) -> int:
        """Up to where both logs can be the same, as far as the leader's last word shows."""
        end = self.log.end_offset
        own_epoch, own_end = self.log.epoch_end(epoch)
        if own_epoch < 0:
            return min(leader_end, end)
        if own_epoch != epoch:  # it has records that we do not: what is left will be asked about in turn
            return min(own_end, end)
        return min(own_end, leader_end, end)

    def watermarks(self, answer: FetchResponse.PartitionData) -> Watermarks:
        """What the log takes over, when everything that came is appended."""
        log = self.log
        self.retries = 0
        high_watermark = min(answer.high_watermark, log.end_offset)
        self.lag = max(answer.high_watermark - log.end_offset, 0)
        high_watermark = max(high_watermark, log.start_offset)
        return Watermarks(high_watermark, max(log.start_offset, min(answer.log_start_offset, high_watermark)))

    def offsets_told(
        self, leader_epoch: int, code: int, leader_start: int, leader_end: int, now_ms: int, backoff_ms: int
    ) -> Step:
        """The leader of an epoch said where its log starts and ends; or why not, with an error."""
        if leader_epoch != self.leader_epoch or not self.is_asking:
            return NOTHING
        if code:
            return self._refused(code, now_ms, backoff_ms)
        self.is_asking = False
        end = self.log.end_offset
        if leader_end < end:  # an unclean election
            self.lag = 0
            return Step(Action.TRUNCATE, leader_end)
        if leader_start > end:
            self.lag = leader_end - leader_start
            return Step(Action.RESET, leader_start)
        self.lag = leader_end - end
        self.delay(now_ms, backoff_ms)  # it is in range by now, or the leader does not know our epoch
        return NOTHING

    def delay(self, now_ms: int, backoff_ms: int) -> None:
        """Nothing came, or nothing that could be used: tries again, later."""
        self.is_asking = False
        if now_ms >= self.delayed_until_ms:
            self.delayed_until_ms = now_ms + min(RETRY_MS_MIN << min(self.retries, RETRY_DOUBLINGS_MAX), backoff_ms)
            self.retries += 1

    def fail(self) -> None:
        """The log can no longer be written: it is not fetched for until there is new metadata."""
        self.is_failed = True
