"""One fetcher: all partitions that are fetched from one leader over one connection.

A partition is looked at when something happened to it, or when it waits for its time; so what a request costs does not grow with
the number of partitions that are quiet.

Invariants
 1. A partition is in the session exactly while it is ready: not failed, not waiting after an error, and not throttled.
 2. A replica is throttled only when it is not in sync, is one of the throttled replicas, and the quota is used up: nobody leaves
    the ISR for a throttle.
 3. Each step of an answer is taken, and `changed` is called for its partition, before the next request is built.
"""

from typing import Final, NamedTuple

from odradek.core.coordinator.partitioning import SIGN_BIT, UINT32, java_hash
from odradek.core.partition.fetch_client import FetchClient, answers
from odradek.core.partition.follower import Action, Follower, Step
from odradek.core.partition.replica import TopicIdPartition
from odradek.core.partition.replication_quota import ReplicationQuota
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchRequest, FetchResponse

SESSION_ERRORS: Final = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})


class FetcherSettings(NamedTuple):
    """Each by the name of its key, replica.fetch.… ."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10 * 1024 * 1024
    max_bytes: int = 1024 * 1024  # of one partition
    backoff_ms: int = 1000


class Work(NamedTuple):
    """What is to be done with one partition."""

    follower: Follower
    step: Step
    answer: FetchResponse.PartitionData


def fetcher_id(topic: str, index: int, fetchers: int) -> int:
    """Which of the `num.replica.fetchers` of a leader fetches a partition."""
    value = (31 * java_hash(topic) + index) & UINT32
    value = value - (1 << 32) if value & SIGN_BIT else value
    return (0 if value == -SIGN_BIT else abs(value)) % fetchers


class Fetcher:
    __slots__ = ("broker_id", "client", "followers", "held", "moved", "quota", "settings")

    def __init__(self, broker_id: int, settings: FetcherSettings, quota: ReplicationQuota | None = None) -> None:
        """`broker_id` is this node's."""
        self.broker_id = broker_id
        self.settings = settings
        self.quota = quota
        self.client = FetchClient()
        self.followers: dict[TopicIdPartition, Follower] = {}
        self.moved: dict[TopicIdPartition, None] = {}  # to be looked at before the next request
        self.held: dict[TopicIdPartition, None] = {}  # neither failed nor in the session: looked at with every request

    def add(self, follower: Follower) -> None:
        """Also a follower that is here and follows in a new epoch now."""
        key = (follower.topic_id, follower.index)
        self.followers[key] = follower
        self.moved[key] = None

    def remove(self, key: TopicIdPartition) -> Follower | None:
        self.client.forget(key)
        self.moved.pop(key, None)
        self.held.pop(key, None)
        return self.followers.pop(key, None)

    def changed(self, follower: Follower) -> None:
        """A step was taken, or the log's start moved."""
        key = (follower.topic_id, follower.index)
        if self.followers.get(key) is follower:
            self.moved[key] = None

    def request(self, broker_epoch: int, now_ms: int) -> FetchRequest | None:
        """What to send now; None when no partition is to be fetched: then there may be one after `pause_ms`, or when one is
        added. Nothing is waited for longer than until a partition is to be tried again."""
        looked_at = {**self.held, **self.moved}
        if self.quota is not None and self.quota.throttled:
            looked_at |= {key: None for key, follower in self.followers.items() if not follower.is_in_sync}
        self.moved, self.held = {}, {}
        for key in looked_at:
            self._look_at(key, self.followers[key], now_ms)
        settings = self.settings
        request = FetchRequest(
            replica_id=-1,
            replica_state=FetchRequest.ReplicaState(replica_id=self.broker_id, replica_epoch=broker_epoch),
            max_wait_ms=self.pause_ms(now_ms),
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
        )
        return request if self.client.fill(request) else None

    def pause_ms(self, now_ms: int) -> int:
        """Until a partition that waits may be fetched; at most `wait_max_ms`."""
        delays = (self.followers[key].delayed_until_ms - now_ms for key in self.held)
        return min([delay for delay in delays if delay > 0] + [self.settings.wait_max_ms])

    def _look_at(self, key: TopicIdPartition, follower: Follower, now_ms: int) -> None:
        if follower.is_ready(now_ms) and not self._is_throttled(follower, now_ms):
            self.client.want(key, follower.wanted(self.settings.max_bytes))
            return
        self.client.forget(key)
        if not follower.is_failed:
            self.held[key] = None

    def _is_throttled(self, follower: Follower, now_ms: int) -> bool:
        quota = self.quota
        return quota is not None and not follower.is_in_sync and quota.holds_back(follower.topic, follower.index, now_ms)

    def answered(self, response: FetchResponse, now_ms: int) -> list[Work]:
        """What an answer asks for, partition by partition."""
        if not self.client.answered(response):
            if response.error_code and response.error_code not in SESSION_ERRORS:
                self._delay_all(now_ms)
            return []
        work = []
        asked = self.client.partitions
        for key, answer in answers(response):
            follower = self.followers.get(key)
            if follower is None:
                continue
            step = follower.answered(asked[key], answer, now_ms, self.settings.backoff_ms)
            self.moved[key] = None
            if step.action is not Action.NONE:
                work.append(Work(follower, step, answer))
        return work

    def given_up(self) -> None:
        """A request was given up for a better one: the session begins anew, and nobody waits."""
        self.client.failed()

    def failed(self, now_ms: int) -> None:
        """The leader was not reached, or did not answer."""
        self.client.failed()
        self._delay_all(now_ms)

    def _delay_all(self, now_ms: int) -> None:
        for key, follower in self.followers.items():
            follower.delay(now_ms, self.settings.backoff_ms)
            self.moved[key] = None
