"""A fetch session with one node: after the first request only what changed is told, by both sides.

Invariants
 1. After an answer that was lost, or that refuses the session, everything is told again in a new one.
 2. Without sessions, or below Fetch 7, every request tells everything.
"""

from typing import Final

from odradek.wire.messages import FetchRequest

SESSIONLESS_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
EPOCH_MAX: Final = 0x7FFFFFFF

Partition = FetchRequest.FetchPartition
Key = tuple[str, bytes, int]  # topic, its id, index


class Session:
    def __init__(self, is_used: bool) -> None:
        self.is_used = is_used
        self.id = 0
        self.epoch = FIRST_EPOCH if is_used else SESSIONLESS_EPOCH
        self._told: dict[Key, Partition] = {}  # what the node knows
        self._asked: dict[Key, Partition] = {}  # what it will know when it answers

    def fill(self, request: FetchRequest, wanted: dict[Key, Partition]) -> None:
        """Writes into a request what the node does not know yet."""
        request.session_id, request.session_epoch = self.id, self.epoch
        self._asked = wanted
        is_all = self.epoch in (SESSIONLESS_EPOCH, FIRST_EPOCH)
        new = {key: each for key, each in wanted.items() if is_all or self._told.get(key) != each}
        for (topic, topic_id, _), each in new.items():
            if not request.topics or request.topics[-1].topic_id != topic_id or request.topics[-1].topic != topic:
                request.topics.append(FetchRequest.FetchTopic(topic=topic, topic_id=topic_id))
            request.topics[-1].partitions.append(each)
        if not is_all:
            kind = FetchRequest.ForgottenTopic
            gone = [key for key in self._told if key not in wanted]
            request.forgotten_topics_data = [kind(topic=key[0], topic_id=key[1], partitions=[key[2]]) for key in gone]

    def answered(self, session_id: int) -> None:
        if not self.is_used or session_id == 0:
            self.epoch = FIRST_EPOCH if self.is_used else SESSIONLESS_EPOCH  # the node gave none: it may next time
            self.id = 0
            return
        self.epoch = self.epoch + 1 if session_id == self.id and self.epoch < EPOCH_MAX else 1
        self.id = session_id
        self._told = self._asked

    def lost(self) -> None:
        if self.is_used:
            self.epoch = FIRST_EPOCH  # with the old id: the node closes that one
        self._told = {}
