"""The side of a fetch session that fetches (KIP-227): names its partitions once, and later only what changed.

What is wanted is told as it changes, so a request costs as much as has changed since the last one, however many partitions there
are.

Invariants
 1. `partitions` is what the last request asked for, alone or with those before it; the leader's session holds the same.
 2. After any error, and whenever an answer does not fit the session, the next request names everything and begins a new one.
 3. One request is under way at a time.
"""

from collections.abc import Iterator

from odradek.core.partition.fetch_sessions import EPOCH_MAX, FIRST_EPOCH, NO_SESSION
from odradek.core.partition.replica import TopicIdPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchRequest, FetchResponse


class FetchClient:
    __slots__ = ("changed", "epoch", "forgotten", "partitions", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FIRST_EPOCH
        self.partitions: dict[TopicIdPartition, FetchRequest.FetchPartition] = {}
        self.changed: dict[TopicIdPartition, FetchRequest.FetchPartition] = {}  # since the last request
        self.forgotten: dict[TopicIdPartition, None] = {}

    def want(self, key: TopicIdPartition, wanted: FetchRequest.FetchPartition) -> None:
        """A partition is to be fetched like this."""
        self.forgotten.pop(key, None)
        if self.partitions.get(key) == wanted:
            self.changed.pop(key, None)
        else:
            self.changed[key] = wanted

    def forget(self, key: TopicIdPartition) -> None:
        """A partition is not to be fetched."""
        self.changed.pop(key, None)
        if key in self.partitions:
            self.forgotten[key] = None

    @property
    def is_full(self) -> bool:
        return self.epoch == FIRST_EPOCH

    def fill(self, request: FetchRequest) -> bool:
        """Writes into a request what the session asks for now; False when there is nothing to ask for."""
        request.session_id, request.session_epoch = self.session_id, self.epoch
        request.forgotten_topics_data = [] if self.is_full else self._forgotten()
        partitions, changed = self.partitions, self.changed
        for key in self.forgotten:
            del partitions[key]
        for key, wanted in changed.items():  # to the end: the others have their turn first
            partitions.pop(key, None)
            partitions[key] = wanted
        self.changed, self.forgotten = {}, {}
        request.topics = by_topic(partitions if self.is_full else changed)
        return bool(partitions or request.forgotten_topics_data)

    def _forgotten(self) -> list[FetchRequest.ForgottenTopic]:
        topics: dict[bytes, FetchRequest.ForgottenTopic] = {}
        for topic_id, index in self.forgotten:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.ForgottenTopic(topic_id=topic_id)
            topic.partitions.append(index)
        return list(topics.values())

    def answered(self, response: FetchResponse) -> bool:
        """Whether an answer can be used. When it cannot, everything is asked for anew."""
        if response.error_code:
            self.failed()
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            return False
        if not self._fits(response):
            self.failed()
            return False
        if response.session_id == NO_SESSION:  # the leader has none to give, or has ended this one
            self.session_id, self.epoch = NO_SESSION, FIRST_EPOCH
        else:
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
            self.session_id = response.session_id
        return True

    def _fits(self, response: FetchResponse) -> bool:
        """An answer to a full request names all its partitions; one within a session names none that is not in it."""
        count = 0
        for key, _ in answers(response):
            count += 1
            if key not in self.partitions:
                return False
        return not self.is_full or count == len(self.partitions)

    def failed(self) -> None:
        """No answer, or none that can be used: the session is ended and begun anew."""
        self.epoch = FIRST_EPOCH


def by_topic(partitions: dict[TopicIdPartition, FetchRequest.FetchPartition]) -> list[FetchRequest.FetchTopic]:
    topics: dict[bytes, FetchRequest.FetchTopic] = {}
    for (topic_id, _), wanted in partitions.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id)
        topic.partitions.append(wanted)
    return list(topics.values())


def answers(response: FetchResponse) -> Iterator[tuple[TopicIdPartition, FetchResponse.PartitionData]]:
    for topic in response.responses:
        for answer in topic.partitions:
            yield (topic.topic_id, answer.partition_index), answer
