"""Fetch sessions, rule by rule (KIP-227)."""

from itertools import count

import pytest

from odradek.core.partition.fetch_sessions import EPOCH_MAX, LOOK_MS, Interest, Session, Sessions
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import FetchRequest

EVICTION_MS = 1000
VERSION = 12


def sessions(slots: int = 2) -> Sessions:
    numbers = count(1)
    return Sessions(slots, EVICTION_MS, lambda: next(numbers))


def request(*partitions: int, session: int = 0, epoch: int = 0, replica: int = -1, forget: tuple[int, ...] = ()) -> FetchRequest:
    wanted = [FetchRequest.FetchPartition(partition=number, fetch_offset=number * 10) for number in partitions]
    topics = [FetchRequest.FetchTopic(topic="t", partitions=wanted)] if wanted else []
    forgotten = [FetchRequest.ForgottenTopic(topic="t", partitions=list(forget))] if forget else []
    return FetchRequest(
        session_id=session, session_epoch=epoch, replica_id=replica, topics=topics, forgotten_topics_data=forgotten
    )


def begun(of: Sessions, *partitions: int, now_ms: int = 0, replica: int = -1) -> Session | None:
    session, _ = of.open(request(*partitions, replica=replica), VERSION, now_ms)
    return session


def asked(of: Sessions, wanted: FetchRequest, now_ms: int = 0, version: int = VERSION) -> list[tuple[int, int]]:
    _, interests = of.open(wanted, version, now_ms)
    return [(interest.wanted.partition, interest.wanted.fetch_offset) for interest in interests]


def refusal(of: Sessions, wanted: FetchRequest, version: int = VERSION) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        of.open(wanted, version, 0)
    return refused.value.code


def test_a_session_remembers_its_partitions() -> None:
    of = sessions()
    session = begun(of, 0, 1)
    assert session is not None
    assert asked(of, request(session=session.id, epoch=1)) == [(0, 0), (1, 10)]
    assert asked(of, request(2, session=session.id, epoch=2, forget=(0,))) == [(1, 10), (2, 20)]


def test_a_partition_that_is_named_again_has_its_new_offset() -> None:
    of = sessions()
    session = begun(of, 0, 1)
    assert session is not None
    again = request(1, session=session.id, epoch=1)
    again.topics[0].partitions[0].fetch_offset = 99
    assert asked(of, again) == [(0, 0), (1, 99)]


def test_the_epoch_grows_with_every_request_and_begins_again_after_the_last() -> None:
    of = sessions()
    session = begun(of, 0)
    assert session is not None
    assert refusal(of, request(session=session.id, epoch=2)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert asked(of, request(session=session.id, epoch=1)) == [(0, 0)]
    assert refusal(of, request(session=session.id, epoch=1)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = EPOCH_MAX
    assert asked(of, request(session=session.id, epoch=EPOCH_MAX)) == [(0, 0)]
    assert session.epoch == 1


def test_a_session_that_is_not_there_is_refused() -> None:
    assert refusal(sessions(), request(session=7, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_with_names_takes_no_request_with_ids() -> None:
    of = sessions()
    session = begun(of, 0)
    assert session is not None
    assert refusal(of, request(session=session.id, epoch=1), version=13) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_last_epoch_ends_a_session() -> None:
    of = sessions()
    session = begun(of, 0)
    assert session is not None
    assert asked(of, request(5, session=session.id, epoch=-1)) == [(5, 50)]
    assert not of.sessions


def test_a_session_without_partitions_ends() -> None:
    of = sessions()
    session = begun(of, 0)
    assert session is not None
    assert asked(of, request(session=session.id, epoch=1, forget=(0,))) == []
    assert not of.sessions


def test_a_partition_whose_records_were_sent_goes_behind_the_others() -> None:
    of = sessions()
    session = begun(of, 0, 1, 2)
    assert session is not None
    session.told(next(iter(session.interests.values())))
    assert [number for number, _ in asked(of, request(session=session.id, epoch=1))] == [1, 2, 0]


def test_only_news_is_told() -> None:
    of = sessions()
    session = begun(of, 0)
    assert session is not None
    (interest,) = session.interests.values()
    assert interest.is_news(5, 0, 0)
    assert not interest.is_news(5, 0, 0)
    assert interest.is_news(5, 0, 100)
    assert interest.is_news(6, 0, 0)
    assert interest.is_news(6, 2, 0)
    interest.knows_nothing()
    assert interest.is_news(6, 2, 0)


def test_who_asks_in_another_leader_epoch_is_told_what_was_told_in_the_one_before() -> None:
    """A follower throws away what was answered in an epoch that is over: it never heard of the high watermark."""
    of = sessions()
    session = begun(of, 0)
    assert session is not None
    (interest,) = session.interests.values()
    assert interest.is_news(5, 0, 0)
    again = request(0, session=session.id, epoch=1)
    asked(of, again)
    assert not interest.is_news(5, 0, 0)
    again = request(0, session=session.id, epoch=2)
    again.topics[0].partitions[0].current_leader_epoch = 3
    asked(of, again)
    assert interest.is_news(5, 0, 0)


def test_when_all_slots_are_taken_the_next_reader_gets_none() -> None:
    of = sessions()
    assert begun(of, 0) is not None
    assert begun(of, 0) is not None
    session, interests = of.open(request(0), VERSION, EVICTION_MS)
    assert session is None
    assert len(list(interests)) == 1


def test_a_session_that_was_not_used_for_long_makes_room() -> None:
    of = sessions()
    first, second = begun(of, 0), begun(of, 0)
    assert first is not None
    assert second is not None
    of.open(request(session=first.id, epoch=1), VERSION, EVICTION_MS)
    third = begun(of, 0, now_ms=EVICTION_MS + 1)
    assert third is not None
    assert list(of.sessions) == [first.id, third.id]


def test_a_larger_session_takes_the_place_of_a_smaller_one_that_is_old_enough() -> None:
    of = sessions()
    for _ in range(2):
        begun(of, 0, 1)
    for session in list(of.sessions.values()):
        of.open(request(session=session.id, epoch=1), VERSION, EVICTION_MS)
    assert begun(of, 0, now_ms=EVICTION_MS + 1) is None
    assert begun(of, 0, 1, 2, now_ms=EVICTION_MS) is None  # they are not old enough yet
    assert begun(of, 0, 1, 2, now_ms=EVICTION_MS + 1) is not None
    assert len(of.sessions) == 2


def test_a_follower_takes_the_place_of_a_consumer_and_not_the_other_way_round() -> None:
    of = sessions(slots=1)
    assert begun(of, 0, 1) is not None
    follower = begun(of, 0, replica=2)
    assert follower is not None
    assert list(of.sessions) == [follower.id]
    assert begun(of, 0, 1, 2, now_ms=EVICTION_MS) is None


class Told:
    """A place of a partition where those stand whom it tells."""

    def __init__(self) -> None:
        self.place: dict[Interest, None] = {}

    def changes(self) -> None:
        for interest in tuple(self.place):
            interest.partition_changed(self)


def seen(of: Sessions, *partitions: int) -> tuple[Session, list[Told]]:
    """A session whose reader knows everything of its partitions."""
    session = begun(of, *partitions)
    assert session is not None
    places = [Told() for _ in partitions]
    for interest, told in zip(session.interests.values(), places, strict=True):
        session.seen(interest, (told.place,))
    return session, places


def test_what_the_reader_knows_is_looked_at_when_it_has_changed() -> None:
    of = sessions()
    session, (first, second) = seen(of, 0, 1)
    assert asked(of, request(session=session.id, epoch=1)) == []
    second.changes()
    assert asked(of, request(session=session.id, epoch=2)) == [(1, 10)]
    first.changes()
    assert asked(of, request(session=session.id, epoch=3)) == [(1, 10), (0, 0)]  # nobody has said that the other was seen


def test_a_partition_that_is_named_is_looked_at() -> None:
    of = sessions()
    session, _ = seen(of, 0, 1)
    assert asked(of, request(0, session=session.id, epoch=1)) == [(0, 0)]


def test_everything_is_looked_at_now_and_then_whichever_way_the_clock_jumps() -> None:
    of = sessions()
    session, places = seen(of, 0, 1)
    assert asked(of, request(session=session.id, epoch=1), now_ms=LOOK_MS - 1) == []
    assert asked(of, request(session=session.id, epoch=2), now_ms=LOOK_MS) == [(0, 0), (1, 10)]
    for interest, told in zip(session.interests.values(), places, strict=True):
        session.seen(interest, (told.place,))
    assert asked(of, request(session=session.id, epoch=3), now_ms=LOOK_MS + 1) == []
    assert asked(of, request(session=session.id, epoch=4), now_ms=0) == [(0, 0), (1, 10)]


def test_who_has_moved_on_stands_in_one_place() -> None:
    session, (old,) = seen(sessions(), 0)
    (interest,) = session.interests.values()
    new = Told()
    session.seen(interest, (new.place,))
    assert (len(old.place), len(new.place)) == (0, 1)


@pytest.mark.parametrize("way", ["forgotten", "ended", "evicted", "all forgotten"])
def test_nobody_stands_where_partitions_tell_for_a_session_that_is_over(way: str) -> None:
    of = sessions(slots=1)
    session, (first, second) = seen(of, 0, 1)
    match way:
        case "forgotten":
            of.open(request(session=session.id, epoch=1, forget=(0,)), VERSION, 0)
            assert not first.place
            assert second.place
            return
        case "ended":
            of.open(request(session=session.id, epoch=-1), VERSION, 0)
        case "evicted":
            assert begun(of, 0, now_ms=EVICTION_MS + 1) is not None
        case _:
            of.open(request(session=session.id, epoch=1, forget=(0, 1)), VERSION, 0)
    assert not first.place
    assert not second.place
    for interest in session.interests.values():  # an answer that was under way
        session.seen(interest, (first.place,))
    assert not first.place
