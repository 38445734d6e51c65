"""Fetch sessions (KIP-227): a reader names its partitions once, and later only what changed; so do the answers.

Invariants
 1. A session's epoch grows by one with every request; a request with another epoch is refused and changes nothing.
 2. There are at most `slots` sessions. A new one takes the place of one that has not been used for `eviction_ms`, or of a smaller
    one that is older than that; a follower's also that of any consumer's. Otherwise its reader gets none, and fetches in full.
 3. An incremental answer leaves out only partitions without records and errors whose offsets the reader knows.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import FetchRequest

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0  # begins a session
LAST_EPOCH: Final = -1  # ends one, or wants none
EPOCH_MAX: Final = 2**31 - 1
USES_TOPIC_IDS_SINCE: Final = 13

Key: TypeAlias = tuple[str | bytes, int]  # a topic's name, or its id where the version has ids, and a partition


class Interest:
    """One partition that a reader wants to read, from where; and what it was last told of it."""

    __slots__ = ("high_watermark", "log_start", "topic", "topic_id", "wanted")

    def __init__(self, topic: str, topic_id: bytes, wanted: FetchRequest.FetchPartition) -> None:
        self.topic = topic  # "" where only the id is known
        self.topic_id = topic_id
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start = -1

    def is_news(self, high_watermark: int, log_start: int, size: int, error: int) -> bool:
        """Whether an answer must have this partition; notes what it says."""
        is_news = bool(size or error) or high_watermark != self.high_watermark or log_start != self.log_start
        self.high_watermark = -1 if error else high_watermark  # when the error goes, the reader is told
        self.log_start = log_start
        return is_news


class Session:
    __slots__ = ("created_ms", "epoch", "id", "interests", "is_follower", "used_ms", "uses_ids")

    def __init__(self, session_id: int, interests: dict[Key, Interest], is_follower: bool, uses_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.interests = interests
        self.is_follower = is_follower
        self.uses_ids = uses_ids
        self.created_ms = self.used_ms = now_ms
        self.epoch = FIRST_EPOCH + 1

    def told(self, interest: Interest) -> None:
        """A partition whose records were sent goes to the end: the others have their turn first."""
        key = (interest.topic_id if self.uses_ids else interest.topic, interest.wanted.partition)
        if self.interests.pop(key, None) is not None:
            self.interests[key] = interest


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
            self.sessions.pop(request.session_id, None)
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
            del self.sessions[session.id]
            return None, ()
        session.used_ms = now_ms
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        return session, session.interests.values()

    def _update(self, session: Session, request: FetchRequest) -> None:
        for key, interest in named(request, session.uses_ids).items() if request.topics else ():
            known = session.interests.get(key)
            if known is None:
                session.interests[key] = interest
            else:
                known.wanted = interest.wanted
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                session.interests.pop((topic.topic_id if session.uses_ids else topic.topic, number), None)

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
            del self.sessions[stalest.id]
            return True
        candidates = [
            session
            for session in self.sessions.values()
            if now_ms - session.created_ms > self.eviction_ms or (follower and not session.is_follower)
        ]
        least = min(candidates, key=lambda session: (session.is_follower, len(session.interests), session.id), default=None)
        if least is None or (follower, size, 0) < (least.is_follower, len(least.interests), least.id):
            return False
        del self.sessions[least.id]
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
