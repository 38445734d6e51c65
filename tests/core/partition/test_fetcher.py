"""Fetchers and the sessions that they fetch in, with the product's own leader side of sessions as the other end."""

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.core.partition.fetch_client import FetchClient
from odradek.core.partition.fetch_sessions import EPOCH_MAX, Interest, Sessions
from odradek.core.partition.fetcher import Fetcher, FetcherSettings, fetcher_id
from odradek.core.partition.follower import RETRY_MS_MIN, Action, Follower
from odradek.core.partition.replication_quota import ReplicationQuota
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchRequest, FetchResponse
from tests.core.partition.following import ListedLog, Record

VERSION = 17
Answer = FetchResponse.PartitionData
FetchPartition = FetchRequest.FetchPartition


def topic_id(number: int) -> bytes:
    return bytes([number]) * 16


def answer_to(interests: list[Interest], session_id: int) -> FetchResponse:
    response = FetchResponse(session_id=session_id)
    for interest in interests:
        answer = Answer(partition_index=interest.wanted.partition, high_watermark=0, records=b"")
        response.responses.append(FetchResponse.FetchableTopicResponse(topic_id=interest.topic_id, partitions=[answer]))
    return response


class Leaders:
    """The other end: keeps sessions, and answers what is asked."""

    def __init__(self, slots: int = 10) -> None:
        self.ids = iter(range(1, 1000))
        self.sessions = Sessions(slots, 0, lambda: next(self.ids))

    def open(self, request: FetchRequest) -> tuple[int, list[Interest]]:
        session, interests = self.sessions.open(request, VERSION, 0)
        return (0 if session is None else session.id), list(interests)

    def answer(self, request: FetchRequest) -> FetchResponse:
        session_id, interests = self.open(request)
        return answer_to(interests, session_id)


# -- sessions


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-1, 3)), max_size=30), st.lists(st.booleans()))
def test_the_leaders_session_holds_what_the_fetcher_wants(changes: list[tuple[int, int, int]], losses: list[bool]) -> None:
    """An offset of -1 forgets. After every request that arrives, both sides hold the same, whatever was lost before."""
    leader, client = Leaders(), FetchClient()
    wanted: dict[tuple[bytes, int], FetchPartition] = {}
    for step, (topic, index, offset) in enumerate(changes):
        key = (topic_id(topic), index)
        if offset < 0:
            wanted.pop(key, None)
            client.forget(key)
        else:
            wanted[key] = FetchPartition(partition=index, fetch_offset=offset)
            client.want(key, wanted[key])
        request = FetchRequest()
        if not client.fill(request):
            assert not wanted
            continue
        assert client.partitions == wanted
        session_id, interests = leader.open(request)
        assert {(each.topic_id, each.wanted.partition): each.wanted for each in interests} == wanted
        if step < len(losses) and losses[step]:
            client.failed()
        else:
            assert client.answered(answer_to(interests, session_id))


def test_what_did_not_change_is_not_named_again() -> None:
    leader, client = Leaders(), FetchClient()
    for index in range(3):
        client.want((topic_id(1), index), FetchPartition(partition=index, fetch_offset=5))
    first, second, third = FetchRequest(), FetchRequest(), FetchRequest()
    client.fill(first)
    client.answered(leader.answer(first))
    client.want((topic_id(1), 0), FetchPartition(partition=0, fetch_offset=5))
    client.fill(second)
    assert (second.topics, second.session_epoch) == ([], 1)
    client.answered(leader.answer(second))
    client.want((topic_id(1), 1), FetchPartition(partition=1, fetch_offset=6))
    client.forget((topic_id(1), 2))
    client.fill(third)
    assert [each.partition for each in third.topics[0].partitions] == [1]
    assert third.forgotten_topics_data[0].partitions == [2]
    assert third.session_epoch == 2


def in_session(session_id: int = 7) -> FetchClient:
    client = FetchClient()
    client.want((topic_id(1), 0), FetchPartition(partition=0))
    request = FetchRequest()
    client.fill(request)
    response = FetchResponse(session_id=session_id)
    response.responses = [FetchResponse.FetchableTopicResponse(topic_id=topic_id(1), partitions=[Answer(partition_index=0)])]
    assert client.answered(response)
    client.fill(FetchRequest())
    return client


def next_ids(client: FetchClient) -> tuple[int, int, int]:
    request = FetchRequest()
    client.fill(request)
    return request.session_id, request.session_epoch, len(request.topics)


def test_a_session_that_the_leader_does_not_know_is_begun_anew() -> None:
    client = in_session()
    assert not client.answered(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    assert next_ids(client) == (0, 0, 1)


def test_after_any_other_error_the_old_session_is_ended_with_the_new_request() -> None:
    for code in (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR):
        client = in_session()
        assert not client.answered(FetchResponse(error_code=code))
        assert next_ids(client) == (7, 0, 1)


def test_an_answer_with_a_partition_that_was_not_asked_for_ends_the_session() -> None:
    client = in_session()
    response = FetchResponse(session_id=7)
    response.responses = [FetchResponse.FetchableTopicResponse(topic_id=topic_id(2), partitions=[Answer(partition_index=0)])]
    assert not client.answered(response)
    assert next_ids(client) == (7, 0, 1)


def test_an_answer_that_leaves_out_a_partition_of_a_full_request_is_not_used() -> None:
    client = FetchClient()
    client.want((topic_id(1), 0), FetchPartition(partition=0))
    client.fill(FetchRequest())
    assert not client.answered(FetchResponse(session_id=7))


def test_a_leader_without_room_for_a_session_is_asked_in_full_every_time() -> None:
    client = in_session(session_id=0)
    assert next_ids(client) == (0, 0, 1)


def test_the_epoch_of_a_session_begins_again_after_the_last() -> None:
    client = in_session()
    client.epoch = EPOCH_MAX
    assert client.answered(FetchResponse(session_id=7))
    assert next_ids(client) == (7, 1, 0)


# -- fetchers


def follower_of(number: int, index: int = 0) -> Follower:
    return Follower(f"t{number}", topic_id(number), index, ListedLog.of(1, 1), 9, 3)


def named(request: FetchRequest | None) -> list[tuple[bytes, int]]:
    assert request is not None
    return [(topic.topic_id, each.partition) for topic in request.topics for each in topic.partitions]


def test_partitions_are_spread_over_fetchers_as_by_kafka() -> None:
    """abs(31 * hashCode + partition) % fetchers, in an int32. The hash of "foo" is 101574; that of "polygenelubricants" is the
    smallest int32, and 31 times it is that again, of which the absolute value is 0."""
    assert [fetcher_id("foo", index, 4) for index in range(4)] == [2, 3, 0, 1]
    assert fetcher_id("polygenelubricants", 0, 7) == 0
    assert fetcher_id("polygenelubricants", 1, 7) == (2**31 - 1) % 7


def test_a_request_tells_who_fetches_and_how_much() -> None:
    fetcher = Fetcher(2, FetcherSettings(wait_max_ms=300, min_bytes=1, response_max_bytes=1000, max_bytes=100))
    assert fetcher.request(55, 0) is None
    fetcher.add(follower_of(1))
    request = fetcher.request(55, 0)
    assert request is not None
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 55)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (300, 1, 1000)
    wanted = request.topics[0].partitions[0]
    assert (wanted.fetch_offset, wanted.last_fetched_epoch, wanted.current_leader_epoch) == (2, 1, 3)
    assert request.decode(request.to_bytes(VERSION), VERSION).topics == request.topics


def test_work_is_given_and_what_was_done_shows_in_the_next_request() -> None:
    leader, fetcher = Leaders(), Fetcher(2, FetcherSettings())
    followers = [follower_of(1), follower_of(2)]
    for follower in followers:
        fetcher.add(follower)
    request = fetcher.request(55, 0)
    assert named(request) == [(topic_id(1), 0), (topic_id(2), 0)]
    assert request is not None
    response = leader.answer(request)
    response.responses[1].partitions[0].records = b"..."
    work = fetcher.answered(response, 0)
    assert [(each.follower, each.step.action) for each in work] == [
        (followers[0], Action.TAKE_WATERMARKS),
        (followers[1], Action.APPEND),
    ]
    log = followers[1].log
    assert isinstance(log, ListedLog)
    log.append([Record(1, 2)])
    fetcher.changed(followers[1])
    assert named(fetcher.request(55, 0)) == [(topic_id(2), 0)]


def test_a_partition_with_an_error_is_left_out_until_its_time_comes() -> None:
    leader, fetcher = Leaders(), Fetcher(2, FetcherSettings(backoff_ms=100))
    for number in (1, 2):
        fetcher.add(follower_of(number))
    request = fetcher.request(55, 0)
    assert request is not None
    response = leader.answer(request)
    response.responses[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    fetcher.answered(response, 0)
    request = fetcher.request(55, RETRY_MS_MIN - 1)
    assert request is not None
    assert [each.topic_id for each in request.forgotten_topics_data] == [topic_id(1)]
    assert request.max_wait_ms == 1  # the others' silence must not make it wait longer
    fetcher.answered(leader.answer(request), RETRY_MS_MIN - 1)
    request = fetcher.request(55, RETRY_MS_MIN)
    assert named(request) == [(topic_id(1), 0)]
    assert request is not None
    assert request.max_wait_ms == FetcherSettings().wait_max_ms


def test_when_the_leader_is_not_reached_all_wait_and_begin_anew() -> None:
    fetcher = Fetcher(2, FetcherSettings(backoff_ms=100))
    fetcher.add(follower_of(1))
    assert fetcher.request(55, 0) is not None
    fetcher.failed(0)
    assert fetcher.request(55, RETRY_MS_MIN - 1) is None
    assert fetcher.pause_ms(RETRY_MS_MIN - 1) == 1
    request = fetcher.request(55, RETRY_MS_MIN)
    assert request is not None
    assert request.session_epoch == 0


def test_a_request_that_is_given_up_is_followed_at_once_by_one_that_names_everything() -> None:
    leader, fetcher = Leaders(), Fetcher(2, FetcherSettings())
    fetcher.add(follower_of(1))
    request = fetcher.request(55, 0)
    assert request is not None
    fetcher.answered(leader.answer(request), 0)
    assert named(fetcher.request(55, 0)) == []
    fetcher.add(follower_of(2))
    fetcher.given_up()
    request = fetcher.request(55, 0)
    assert named(request) == [(topic_id(1), 0), (topic_id(2), 0)]
    assert request is not None
    assert request.session_epoch == 0


def test_who_is_refused_again_waits_twice_as_long_up_to_the_backoff_and_begins_anew_with_an_answer() -> None:
    leader, fetcher = Leaders(), Fetcher(2, FetcherSettings(backoff_ms=50))
    follower = follower_of(1)
    fetcher.add(follower)
    now_ms = 0
    for pause_ms in (10, 20, 40, 50, 50):
        request = fetcher.request(55, now_ms)
        assert request is not None
        response = leader.answer(request)
        response.responses[0].partitions[0].error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
        fetcher.answered(response, now_ms)
        without = fetcher.request(55, now_ms)
        assert without is not None
        assert without.max_wait_ms == fetcher.pause_ms(now_ms) == pause_ms
        fetcher.answered(leader.answer(without), now_ms)
        now_ms += pause_ms
    follower.watermarks(FetchResponse.PartitionData())
    follower.delay(now_ms, 50)
    assert follower.delayed_until_ms == now_ms + RETRY_MS_MIN


def test_a_partition_that_is_removed_while_it_is_fetched_gives_no_work() -> None:
    leader, fetcher = Leaders(), Fetcher(2, FetcherSettings())
    for number in (1, 2):
        fetcher.add(follower_of(number))
    request = fetcher.request(55, 0)
    assert request is not None
    response = leader.answer(request)
    removed = fetcher.remove((topic_id(1), 0))
    assert [each.follower.topic_id for each in fetcher.answered(response, 0)] == [topic_id(2)]
    assert removed is not None
    fetcher.changed(removed)
    request = fetcher.request(55, 0)
    assert request is not None
    assert [each.topic_id for each in request.forgotten_topics_data] == [topic_id(1)]


def test_a_session_error_is_no_reason_to_wait() -> None:
    fetcher = Fetcher(2, FetcherSettings())
    fetcher.add(follower_of(1))
    assert fetcher.request(55, 0) is not None
    assert fetcher.answered(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), 0) == []
    assert named(fetcher.request(55, 0)) == [(topic_id(1), 0)]
    fetcher.answered(FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), 0)
    assert fetcher.request(55, 0) is None


def test_a_throttled_replica_is_left_out_while_the_quota_is_used_up_unless_it_is_in_sync() -> None:
    quota = ReplicationQuota(2, 11, 1000)
    quota.bytes_per_second_max = 1000
    for topic in ("t1", "t2"):
        quota.throttle(topic, ("0:2",))
    quota.copied("t1", 0, 3000, 0)
    leader, fetcher = Leaders(), Fetcher(2, FetcherSettings(), quota)
    followers = [follower_of(number) for number in (1, 2, 3)]
    followers[0].lag = 0
    for follower in followers:
        fetcher.add(follower)
    request = fetcher.request(55, 0)
    assert named(request) == [(topic_id(1), 0), (topic_id(3), 0)]
    assert request is not None
    fetcher.answered(leader.answer(request), 0)
    assert (topic_id(2), 0) not in named(fetcher.request(55, 2999))
    fetcher.given_up()
    assert (topic_id(2), 0) in named(fetcher.request(55, 3000))
