"""A fetch session with one broker (KIP-227): after the first request both sides tell only what changed.

Invariants
 1. After an answer that was lost, or that refuses the session, everything is told again, in a new one.
 2. A session speaks of topics by their ids (Fetch 13 and later) or by their names. Who has to change that begins a new one.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.wire.messages import FetchRequest

SESSIONLESS: Final = -1  # an epoch; with the id of a session, it ends that
FIRST: Final = 0
EPOCH_MAX: Final = 0x7FFFFFFF
NO_SESSION: Final = 0
SESSIONS_SINCE: Final = 7  # version of Fetch
DIVERGENCE_SINCE: Final = 12
IDS_SINCE: Final = 13


class Spot(NamedTuple):
    """A partition, as a fetch of some version names it: by the topic's name or its id."""

    topic: str
    topic_id: bytes
    partition: int


class Wish(NamedTuple):
    """What is wanted of a partition."""

    offset: int
    leader_epoch: int
    last_epoch: int
    bytes_max: int


class Session:
    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = FIRST
        self.speaks_ids = False
        self._told: dict[Spot, Wish] = {}  # what the broker knows
        self._asked: dict[Spot, Wish] = {}  # what it will know when it answers

    def fill(self, request: FetchRequest, wanted: Mapping[Spot, Wish], version: int, *, speaks_ids: bool) -> None:
        """Writes into a request what the broker does not know yet."""
        if speaks_ids != self.speaks_ids:
            self.lost()
            self.speaks_ids = speaks_ids
        self._asked = dict(wanted)
        if version < SESSIONS_SINCE:
            request.session_epoch, new = SESSIONLESS, self._asked
        elif self.epoch == FIRST:
            request.session_id, request.session_epoch, new = self.id, FIRST, self._asked
        else:
            request.session_id, request.session_epoch = self.id, self.epoch
            new = {spot: wish for spot, wish in wanted.items() if self._told.get(spot) != wish}
            self._fill_forgotten(request)
        of_topic: dict[tuple[str, bytes], FetchRequest.FetchTopic] = {}
        for (topic, topic_id, index), wish in new.items():
            found = of_topic.get((topic, topic_id))
            if found is None:
                found = of_topic[topic, topic_id] = FetchRequest.FetchTopic(topic=topic, topic_id=topic_id)
            found.partitions.append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=wish.leader_epoch,
                    fetch_offset=wish.offset,
                    last_fetched_epoch=wish.last_epoch,
                    partition_max_bytes=wish.bytes_max,
                )
            )
        request.topics = [*of_topic.values()]

    def _fill_forgotten(self, request: FetchRequest) -> None:
        kind = FetchRequest.ForgottenTopic
        gone = [spot for spot in self._told if spot not in self._asked]
        request.forgotten_topics_data = [kind(topic=topic, topic_id=id_, partitions=[index]) for topic, id_, index in gone]

    def answered(self, session_id: int) -> None:
        if session_id == NO_SESSION:  # the broker gave none, and may next time
            self.lost()
            self.id = NO_SESSION
            return
        self.epoch = self.epoch + 1 if session_id == self.id and self.epoch < EPOCH_MAX else 1
        self.id = session_id
        self._told = self._asked

    def lost(self) -> None:
        self.epoch = FIRST  # with the old id: the broker ends that one
        self._told = {}

    def end(self) -> FetchRequest | None:
        """The request that ends it, where there is one."""
        if self.id == NO_SESSION:
            return None
        request = FetchRequest(session_id=self.id, session_epoch=SESSIONLESS)
        self.lost()
        self.id = NO_SESSION
        return request
