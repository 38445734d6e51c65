"""Where the requests of an administrator belong: to any broker, to given ones, to leaders, or to coordinators.

Nothing of it is remembered: partitions move, and who administers a cluster asks seldom, and often because something moved.

Invariants
 1. A way says of every key that it is asked for where that belongs, or why nobody can tell.
 2. What passes by itself (a new leader, a coordinator that is being loaded) is asked again; what is not there is said at once.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from odradek.client.cluster import BATCHED_COORDINATORS_SINCE, GROUP, Cluster
from odradek.client.errors import KafkaError, Unreachable, refused
from odradek.client.metadata import NO_NODE, Broker
from odradek.client.records import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse

ANYWHERE: Final = NO_NODE

KeyOf = TypeVar("KeyOf", contravariant=True)


class Way(Protocol[KeyOf]):
    async def find(self, cluster: Cluster, keys: Sequence[KeyOf]) -> Sequence[int | KafkaError]:
        """For each key the broker, or ANYWHERE, or why there is none."""

    def passes(self, error: KafkaError) -> bool:
        """Whether to ask again."""


class Anywhere:
    """Any broker hands on what it does not decide itself; one that cannot says NOT_CONTROLLER, and who does is asked then."""

    PASSING: Final = frozenset(
        {
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        }
    )

    def __init__(self) -> None:
        self.is_controller_wanted = False

    async def find(self, cluster: Cluster, keys: Sequence[object]) -> Sequence[int | KafkaError]:
        node = ANYWHERE
        if self.is_controller_wanted:
            node = (await look(cluster, [])).controller_id
        return [node] * len(keys)

    def passes(self, error: KafkaError) -> bool:
        self.is_controller_wanted |= error.code == ErrorCode.NOT_CONTROLLER
        return error.code in self.PASSING


class Brokers:
    """Keys that have a broker of their own; without one, any broker will do."""

    def __init__(self, broker_of: Callable[[object], int]) -> None:
        self.broker_of = broker_of

    async def find(self, cluster: Cluster, keys: Sequence[object]) -> Sequence[int | KafkaError]:
        wanted = [self.broker_of(key) for key in keys]
        known = {ANYWHERE}
        if any(broker != ANYWHERE for broker in wanted):
            known |= {broker.node_id for broker in (await look(cluster, [])).brokers}
        return [broker if broker in known else no_broker(broker) for broker in wanted]

    def passes(self, error: KafkaError) -> bool:
        return error.code in Anywhere.PASSING


class Leaders:
    """Of partitions."""

    PASSING: Final = frozenset(
        {
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.OFFSET_NOT_AVAILABLE,
            ErrorCode.REPLICA_NOT_AVAILABLE,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NETWORK_EXCEPTION,
        }
    )

    async def find(self, cluster: Cluster, keys: Sequence[TopicPartition]) -> Sequence[int | KafkaError]:
        found = await look(cluster, sorted({key.topic for key in keys}))
        leaders: dict[TopicPartition, int] = {}
        errors: dict[str, int] = {}
        for topic in found.topics:
            errors[topic.name or ""] = topic.error_code
            for part in topic.partitions:
                leaders[TopicPartition(topic.name or "", part.partition_index)] = part.leader_id

        def place(key: TopicPartition) -> int | KafkaError:
            leader = leaders.get(key)
            if leader is not None and leader != NO_NODE:
                return leader
            code = errors.get(key.topic) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return refused(
                ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_NODE else code, topic=key.topic, partition=key.partition
            )

        return [place(key) for key in keys]

    def passes(self, error: KafkaError) -> bool:
        return error.code in self.PASSING


class Coordinators:
    """Of groups, or of transactional ids."""

    PASSING: Final = frozenset(
        {
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.UNSTABLE_OFFSET_COMMIT,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NETWORK_EXCEPTION,
        }
    )

    def __init__(self, kind: int = GROUP) -> None:
        self.kind = kind

    async def find(self, cluster: Cluster, keys: Sequence[str]) -> Sequence[int | KafkaError]:
        connection = await cluster.any_connection()
        if connection.version(FindCoordinatorRequest.schema.key) < BATCHED_COORDINATORS_SINCE:
            return [await self._find_one(cluster, key) for key in keys]
        request = FindCoordinatorRequest(key_type=self.kind, coordinator_keys=[*keys])
        answer = await connection.post(request, FindCoordinatorResponse, cluster.timing.request_timeout_ms)
        found: dict[str, int | KafkaError] = {}
        for each in answer.coordinators:
            found[each.key] = self._refused(each.error_code, each.error_message, each.key) if each.error_code else each.node_id
            if not each.error_code and each.node_id not in cluster.metadata.brokers:
                cluster.metadata.learn_brokers([Broker(each.node_id, each.host, each.port)])
        return [found.get(key, self._refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, None, key)) for key in keys]

    async def _find_one(self, cluster: Cluster, key: str) -> int | KafkaError:
        cluster.forget_coordinator(self.kind, key)
        try:
            return await cluster.coordinator(self.kind, key)
        except Unreachable:
            raise
        except KafkaError as error:
            return error

    def _refused(self, code: int, reason: str | None, key: str) -> KafkaError:
        group, transactional_id = (key, None) if self.kind == GROUP else (None, key)
        return refused(code, reason, group=group, transactional_id=transactional_id)

    def passes(self, error: KafkaError) -> bool:
        return error.code in self.PASSING


async def look(cluster: Cluster, topics: Iterable[str] | None) -> MetadataResponse:
    """What any broker says of the brokers and of some topics (None: of all), for this one time."""
    kind = MetadataRequest.MetadataRequestTopic
    named = None if topics is None else [kind(name=name) for name in topics]
    request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
    answer = await cluster.ask_any(request, MetadataResponse)
    cluster.metadata.learn_brokers(Broker(each.node_id, each.host, each.port, each.rack) for each in answer.brokers)
    return answer


def no_broker(broker: int) -> KafkaError:
    return refused(ErrorCode.BROKER_NOT_AVAILABLE, f"no broker {broker} is there now")
