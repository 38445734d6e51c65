"""Fetch sessions (KIP-227): a reader names its partitions once, and later only what changed; so do the answers.

And only what changed is looked at: a partition tells those who are interested in it, and a session keeps the ones that it has to
look at, so that a request costs what there is to say, whatever the number of its partitions.

Invariants
 1. A session's epoch grows by one with every request; a request with another epoch is refused and changes nothing.
 2. There are at most `slots` sessions. A new one takes the place of one that has not been used for `eviction_ms`, or of a smaller
    one that is older than that; a follower's also that of any consumer's. Otherwise its reader gets none, and fetches in full.
 3. An incremental answer leaves out only partitions without records and errors whose offsets the reader knows.
 4. An interest that is not among the unseen ones stands where its partition tells, and the reader knows everything of it.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias

from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import FetchRequest

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0  # begins a session
LAST_EPOCH: Final = -1  # ends one, or wants none
EPOCH_MAX: Final = 2**31 - 1
USES_TOPIC_IDS_SINCE: Final = 13
LOOK_MS: Final = 2_000  # after which all partitions of a session are looked at: followers are late when they are not

Key: TypeAlias = tuple[str | bytes, int]  # a topic's name, or its id where the version has ids, and a partition


class Listener(Protocol):
    """Who is told of the partition of an interest."""

    def changed(self, interest: "Interest", partition: Any) -> None: ...


class Interest:
    """One partition that a reader wants to read, from where; and what it was last told of it."""

    __slots__ = ("high_watermark", "listener", "log_start", "places", "topic", "topic_id", "wanted")

    def __init__(self, topic: str, topic_id: bytes, wanted: FetchRequest.FetchPartition) -> None:
        self.topic = topic  # "" where only the id is known
        self.topic_id = topic_id
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start = -1
        self.listener: Listener | None = None
        self.places: tuple[dict[Any, None], ...] = ()  # where it stands among those whom its partition tells

    def is_news(self, high_watermark: int, log_start: int, size: int) -> bool:
        """Whether an answer must have this partition; notes what it says."""
        is_news = bool(size) or high_watermark != self.high_watermark or log_start != self.log_start
        self.high_watermark = high_watermark
        self.log_start = log_start
        return is_news

    def knows_nothing(self) -> None:
        """The reader was told something else than offsets, or may have thrown them away: it is told again."""
        self.high_watermark = self.log_start = -1

    def stand_in(self, places: tuple[dict[Any, None], ...], listener: Listener) -> None:
        """Has the partition tell a listener of what becomes of it."""
        self.listener = listener
        if not self.places or self.places[0] is not places[0]:  # which is one partition's alone
            self.leave()
            self.places = places
            for place in places:
                place[self] = None

    def leave(self) -> None:
        for place in self.places:
            place.pop(self, None)
        self.places = ()

    def partition_changed(self, partition: Any) -> None:
        if self.listener is not None:
            self.listener.changed(self, partition)


class Session:
    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "interests",
        "is_follower",
        "is_over",
        "looked_ms",
        "unseen",
        "used_ms",
        "uses_ids",
        "waiting",
    )

    def __init__(self, session_id: int, interests: dict[Key, Interest], is_follower: bool, uses_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.interests = interests
        self.is_follower = is_follower
        self.uses_ids = uses_ids
        self.created_ms = self.used_ms = self.looked_ms = now_ms
        self.epoch = FIRST_EPOCH + 1
        self.unseen = dict.fromkeys(interests.values())  # to be looked at, in this order
        self.is_over = False
        self.waiting: Listener | None = None  # the request that is not answered yet

    def changed(self, interest: Interest, partition: Any) -> None:
        self.unseen[interest] = None
        if self.waiting is not None:
            self.waiting.changed(interest, partition)

    def due(self, now_ms: int) -> list[Interest]:
        """What has to be looked at."""
        if now_ms - self.looked_ms >= LOOK_MS or now_ms < self.looked_ms:
            self.looked_ms = now_ms
            self.unseen |= dict.fromkeys(self.interests.values())
        return list(self.unseen)

    def told(self, interest: Interest) -> None:
        """A partition whose records were sent goes to the end: the others have their turn first."""
        key = (interest.topic_id if self.uses_ids else interest.topic, interest.wanted.partition)
        if self.interests.pop(key, None) is not None:
            self.interests[key] = interest
            self.unseen.pop(interest, None)
            self.unseen[interest] = None

    def stand_in(self, interest: Interest, places: tuple[dict[Any, None], ...]) -> None:
        if not self.is_over:
            interest.stand_in(places, self)

    def seen(self, interest: Interest, places: tuple[dict[Any, None], ...]) -> None:
        """The reader knows all there is of a partition, until the partition tells of a change."""
        self.stand_in(interest, places)
        self.unseen.pop(interest, None)

    def forget(self, key: Key) -> None:
        interest = self.interests.pop(key, None)
        if interest is not None:
            interest.leave()
            self.unseen.pop(interest, None)

    def end(self) -> None:
        self.is_over = True
        for interest in self.interests.values():
            interest.leave()


class Sessions:
    """All sessions of a node. `new_id` gives numbers by chance, from 1 to 2^31 - 1."""

    def __init__(self, slots: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        self.slots = slots
        self.eviction_ms = eviction_ms
        self.new_id = new_id
        self.sessions: dict[int, Session] = {}

    def open(self, request: FetchRequest, version: int, now_ms: int) -> tuple[Session | None, Iterable[Interest]]:
        """What a request is about, and its session if it has one or gets one. Refused when it speaks of one that is not there."""
        uses_ids = version >= USES_TOPIC_IDS_SINCE
        if request.session_epoch in (FIRST_EPOCH, LAST_EPOCH):
            self._end(request.session_id)
            interests = named(request, uses_ids)
            if request.session_epoch == LAST_EPOCH:
                return None, interests.values()
            return self._create(interests, is_follower(request, version), uses_ids, now_ms), interests.values()
        session = self.sessions.get(request.session_id)
        if session is None:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {request.session_id}")
        if session.uses_ids != uses_ids:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, f"version {version} in a session that was begun otherwise")
        if session.epoch != request.session_epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"epoch {request.session_epoch}, where {session.epoch} is due")
        self._update(session, request)
        if not session.interests:
            self._end(session.id)
            return None, ()
        session.used_ms = now_ms
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        return session, session.due(now_ms)

    def _end(self, session_id: int) -> None:
        session = self.sessions.pop(session_id, None)
        if session is not None:
            session.end()

    def _update(self, session: Session, request: FetchRequest) -> None:
        for key, interest in named(request, session.uses_ids).items() if request.topics else ():
            known = session.interests.setdefault(key, interest)
            if known.wanted.current_leader_epoch != interest.wanted.current_leader_epoch:
                known.knows_nothing()  # what was answered in another epoch, a follower does not take
            known.wanted = interest.wanted
            session.unseen[known] = None
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                session.forget((topic.topic_id if session.uses_ids else topic.topic, number))

    def _create(self, interests: dict[Key, Interest], follower: bool, uses_ids: bool, now_ms: int) -> Session | None:
        if not interests or (len(self.sessions) >= self.slots and not self._evict(follower, len(interests), now_ms)):
            return None
        session_id = self.new_id()
        while session_id in self.sessions:
            session_id = self.new_id()
        session = self.sessions[session_id] = Session(session_id, interests, follower, uses_ids, now_ms)
        return session

    def _evict(self, follower: bool, size: int, now_ms: int) -> bool:
        """Makes room, if one has to go for a session of that many partitions."""
        if not self.sessions:
            return False
        stalest = min(self.sessions.values(), key=lambda session: session.used_ms)
        if now_ms - stalest.used_ms > self.eviction_ms:
            self._end(stalest.id)
            return True
        candidates = [
            session
            for session in self.sessions.values()
            if now_ms - session.created_ms > self.eviction_ms or (follower and not session.is_follower)
        ]
        least = min(candidates, key=lambda session: (session.is_follower, len(session.interests), session.id), default=None)
        if least is None or (follower, size, 0) < (least.is_follower, len(least.interests), least.id):
            return False
        self._end(least.id)
        return True


def is_follower(request: FetchRequest, version: int) -> bool:
    return (request.replica_state.replica_id if version >= 15 else request.replica_id) >= 0


def named(request: FetchRequest, uses_ids: bool) -> dict[Key, Interest]:
    """The partitions that a request names."""
    found: dict[Key, Interest] = {}
    for topic in request.topics:
        name, topic_id = ("", topic.topic_id) if uses_ids else (topic.topic, NIL_UUID)
        key = topic_id if uses_ids else name
        for wanted in topic.partitions:
            found[key, wanted.partition] = Interest(name, topic_id, wanted)
    return found
