"""A follower of a partition: what each answer of the leader asks it to do. What keeps data is in test_replicas.py."""

import pytest

from odradek.core.partition.follower import NOTHING, RETRY_MS_MIN, Action, Follower, Step, Watermarks
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchResponse
from tests.core.partition.following import ListedLog

BACKOFF_MS = 1000
Answer = FetchResponse.PartitionData


def following(log: ListedLog, epoch: int = 5) -> Follower:
    return Follower("t", b"t" * 16, 0, log, 1, epoch)


def answered(follower: Follower, answer: Answer, now_ms: int = 0) -> Step:
    return follower.answered(follower.wanted(1), answer, now_ms, BACKOFF_MS)


def asking(log: ListedLog) -> Follower:
    follower = following(log)
    assert answered(follower, Answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)).action is Action.ASK_OFFSETS
    return follower


def test_records_are_appended_and_watermarks_taken() -> None:
    log = ListedLog.of(1, 1)
    follower = following(log)
    answer = Answer(records=b"...", high_watermark=9, log_start_offset=1)
    assert answered(follower, answer).action is Action.APPEND
    assert answered(follower, Answer(records=b"", high_watermark=1)).action is Action.TAKE_WATERMARKS
    assert follower.watermarks(answer) == Watermarks(high_watermark=2, log_start=1)
    assert follower.lag == 7
    assert not follower.is_in_sync


def test_the_high_watermark_is_the_leaders_also_when_it_is_lower() -> None:
    """A new leader may know less of it for a moment."""
    log = ListedLog.of(1, 1, 1)
    log.high_watermark = 3
    follower = following(log)
    assert follower.watermarks(Answer(high_watermark=2, log_start_offset=0)) == Watermarks(2, 0)
    assert follower.is_in_sync


def test_the_start_of_the_log_never_moves_back() -> None:
    log = ListedLog([], start_offset=10)
    assert following(log).watermarks(Answer(high_watermark=20, log_start_offset=5)) == Watermarks(10, 10)


def test_an_answer_to_what_is_no_longer_asked_is_not_taken() -> None:
    log = ListedLog.of(1, 1)
    follower = following(log)
    asked = follower.wanted(1)
    log.truncate_to(1)
    assert follower.answered(asked, Answer(records=b"..."), 0, BACKOFF_MS) is NOTHING


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_after_an_error_it_waits_and_tries_again(code: ErrorCode) -> None:
    follower = following(ListedLog.of(1))
    assert answered(follower, Answer(error_code=code), 50) is NOTHING
    assert not follower.is_ready(50 + RETRY_MS_MIN - 1)
    assert follower.is_ready(50 + RETRY_MS_MIN)


def test_a_fenced_follower_waits_for_new_metadata() -> None:
    follower = following(ListedLog.of(1))
    answered(follower, Answer(error_code=ErrorCode.FENCED_LEADER_EPOCH))
    assert not follower.is_ready(10**9)
    follower.follow(1, 5)
    assert not follower.is_ready(10**9)
    follower.follow(2, 6)
    assert follower.is_ready(0)


def test_a_log_that_cannot_be_written_is_not_fetched_for() -> None:
    follower = following(ListedLog.of(1))
    follower.fail()
    assert not follower.is_ready(10**9)


def test_a_log_that_is_longer_than_the_leaders_is_cut() -> None:
    follower = asking(ListedLog.of(1, 1, 1))
    assert not follower.is_ready(0)
    assert follower.offsets_told(5, ErrorCode.NONE, 0, 2, 0, BACKOFF_MS) == Step(Action.TRUNCATE, 2)
    assert follower.is_ready(0)


def test_a_log_that_ends_before_the_leaders_begins_starts_anew() -> None:
    follower = asking(ListedLog.of(1, 1, 1))
    assert follower.offsets_told(5, ErrorCode.NONE, 10, 20, 0, BACKOFF_MS) == Step(Action.RESET, 10)
    assert follower.lag == 10


def test_a_log_that_is_in_range_after_all_is_fetched_again() -> None:
    follower = asking(ListedLog.of(1, 1, 1))
    assert follower.offsets_told(5, ErrorCode.NONE, 0, 20, 0, BACKOFF_MS) is NOTHING
    assert follower.is_ready(BACKOFF_MS)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_offsets_that_are_not_told_are_asked_for_later(code: ErrorCode) -> None:
    follower = asking(ListedLog.of(1))
    assert follower.offsets_told(5, code, -1, -1, 0, BACKOFF_MS) is NOTHING
    assert not follower.is_ready(0)
    assert follower.is_ready(BACKOFF_MS)


def test_offsets_of_an_epoch_that_is_over_are_not_used() -> None:
    follower = asking(ListedLog.of(1, 1, 1))
    follower.follow(2, 6)
    assert follower.offsets_told(5, ErrorCode.NONE, 0, 1, 0, BACKOFF_MS) is NOTHING
    assert follower.is_ready(0)


def test_an_epoch_that_the_leader_does_not_have_is_cut_at_its_start() -> None:
    log = ListedLog.of(1, 1)
    log.begin_epoch(4)  # it led, and wrote nothing
    follower = following(log)
    assert follower.wanted(1).last_fetched_epoch == 4
    step = answered(follower, Answer(diverging_epoch=FetchResponse.EpochEndOffset(epoch=1, end_offset=2)))
    assert step == Step(Action.TRUNCATE, 2)
    log.truncate_to(2)
    assert follower.wanted(1).last_fetched_epoch == 1
