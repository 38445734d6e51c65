"""Random histories of a cluster: Apache Kafka's controller and ours are asked the same, write the same records, answer the same.

Four things are ours: a broker that is fenced is not fenced once more, one that said goodbye may register again at once, who is
no replica any more is not eligible to lead, and as many as a partition has replicas are enough in sync. Kafka waits for one that
has no log, and counts the replicas of the topic's first partition: from there on histories part.
"""

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from odradek.core.controller.controller import Controller, ControllerConfig
from odradek.core.controller.decision import Decision
from odradek.core.metadata.features import ELR_VERSION, KNOWN
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import Refused
from odradek.wire.log_records import decode_metadata_record, encode_metadata_record
from odradek.wire.message import Message
from odradek.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationChangeRecord,
    BrokerRegistrationRequest,
    ConfigRecord,
    ElectLeadersRequest,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    UnregisterBrokerRequest,
)
from tests.core.controller.cluster import folder_of, rules
from tests.kafka.oracle import Oracle

BROKERS = (1, 2, 3, 4)
TOPICS = {"strict": b"strict topic 16b", "unclean": b"unclean topic16b"}
PARTITIONS = 2
STRICT_MINIMUM = 2
TIMEOUT_MS = 9_000
VERSIONS = {43: 2, 45: 1, 56: 3, 62: 4, 63: 2, 64: 0, 73: 0}

Step = tuple[str, list[int]]


def second_folder(broker: int) -> bytes:
    return b"second folder %02d" % broker


class Both:
    """Kafka's controller and ours, with the same past."""

    def __init__(self, oracle: Oracle, level: int, *, elr: bool) -> None:
        self.oracle = oracle
        self.image = MetadataImage()
        first: list[tuple[Message, int]] = [
            (FeatureLevelRecord(name="metadata.version", feature_level=level), 0),
            (FeatureLevelRecord(name=ELR_VERSION, feature_level=int(elr)), 0),
            (ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"), 0),
        ]
        self.controller = Controller(
            self.image, ControllerConfig(node_id=1, cluster_id="c", topics=rules(), session_timeout_ms=TIMEOUT_MS)
        )
        self.now_ms = 1
        self.incarnations = dict.fromkeys(BROKERS, 0)
        oracle.call("Clusters.open", cluster_id="c", session_timeout_ms=TIMEOUT_MS, records=[])
        self.replay(first)
        for broker in BROKERS:
            self.register([broker, 1])
            self.beat([broker, 0])
        self.replay(topics(level))

    def replay(self, records: list[tuple[Message, int]]) -> None:
        self.oracle.call("Clusters.replay", records=[encode_metadata_record(*record).hex() for record in records])
        self.controller.replay(records)

    # -- comparing

    def decided(self, theirs: Any, ours: Decision[Any] | None) -> None:
        """Compares the records, and has ours replay its own."""
        written = [] if ours is None else [encode_metadata_record(*record).hex() for record in ours.records]
        expected = [record for record in theirs.get("records", []) if not self.is_fenced_again(record)]
        if self.has_other_minimum() or any(self.has_strangers(record) for record in expected):
            reject()
        assert readable(written) == readable(expected)
        next_offset = self.controller.next_offset + max(len(written), len(theirs.get("records", [])))
        if ours is not None:
            for batch in ours.batches():
                self.controller.replay(batch)
        self.controller.next_offset = next_offset

    def is_fenced_again(self, record: str) -> bool:
        change = decode_metadata_record(bytes.fromhex(record))[0]
        is_fence = isinstance(change, BrokerRegistrationChangeRecord) and change.fenced == 1
        return is_fence and self.image.brokers[change.broker_id].fenced  # type: ignore[attr-defined]

    def has_other_minimum(self) -> bool:
        """Whether who stays eligible is decided by another number of replicas than the first partition of the topic has."""
        if not self.image.features.get(ELR_VERSION, 0) or "strict" not in self.image.topics:
            return False
        partitions = self.image.topics["strict"].partitions.values()
        return len({min(len(each.replicas), STRICT_MINIMUM) for each in partitions}) > 1

    def has_strangers(self, record: str) -> bool:
        """Whether it has eligible leaders that are no replicas."""
        change = decode_metadata_record(bytes.fromhex(record))[0]
        if not isinstance(change, PartitionChangeRecord):
            return False
        known = self.image.topics_by_id[change.topic_id].partitions[change.partition_id]
        eligible = known.elr if change.eligible_leader_replicas is None else change.eligible_leader_replicas
        return bool(set(eligible) - set(change.replicas or known.replicas))

    def ask(self, request: Any) -> Any:
        key = request.schema.key
        version = VERSIONS[key]
        theirs = self.oracle.call(
            "Clusters.decide",
            key=key,
            version=version,
            hex=request.to_bytes(version).hex(),
            offset=self.controller.next_offset,
            now_ms=self.now_ms,
        )
        if theirs.get("error") == "DUPLICATE_BROKER_REGISTRATION" and self.image.brokers[request.broker_id].fenced:
            return None
        ours, error = self.decide(request, version)
        assert error == theirs.get("error"), request
        if ours is None:
            return None
        self.decided(theirs, ours)
        expected = type(ours.response).decode(bytes.fromhex(theirs["answer"]), version)
        assert type(ours.response).decode(ours.response.to_bytes(version), version) == expected, request
        return ours.response

    def decide(self, request: Any, version: int) -> tuple[Decision[Any] | None, str | None]:
        """Ours, or the name of the error."""
        controller = self.controller
        decisions: dict[int, Callable[[], Decision[Any]]] = {
            43: lambda: controller.elect_leaders(request),
            45: lambda: controller.alter_reassignments(request),
            56: lambda: controller.alter_partition(request, version),
            62: lambda: controller.register_broker(request, self.now_ms),
            63: lambda: controller.heartbeat(request, self.now_ms),
            64: lambda: controller.unregister_broker(request.broker_id),
            73: lambda: controller.assign_replicas_to_dirs(request),
        }
        try:
            return decisions[request.schema.key](), None
        except Refused as refused:
            return None, refused.code.name

    def ask_now(self, what: str) -> Any:
        return self.oracle.call("Clusters.decide", now=what, offset=self.controller.next_offset, now_ms=self.now_ms)

    # -- what happens

    def register(self, some: list[int]) -> None:
        """As a new incarnation, after a clean stop or not, or once more as the same one."""
        broker, kind = pick(BROKERS, some, 0), pick(range(4), some, 1)
        self.incarnations[broker] += kind > 0
        known = self.image.brokers.get(broker)
        request = BrokerRegistrationRequest(
            broker_id=broker,
            cluster_id="c",
            incarnation_id=b"incarnation %04d" % self.incarnations[broker],
            features=[
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in KNOWN.items()
            ],
            log_dirs=[folder_of(broker), second_folder(broker)],
            previous_broker_epoch=known.epoch if known is not None and kind == 2 else -1,
        )
        if self.ask(request) is None:
            self.incarnations[broker] -= kind > 0

    def beat(self, some: list[int]) -> None:
        broker, wants = pick(BROKERS, some, 0), pick(range(8), some, 1)
        known = self.image.brokers.get(broker)
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=-1 if known is None else known.epoch - (pick(range(20), some, 2) == 19),
            current_metadata_offset=max(self.controller.next_offset - 1 - pick((0, 0, 5, 50), some, 3), 0),
            want_fence=wants == 1,
            want_shut_down=wants in (2, 3),
        )
        if known is not None and not known.fenced and wants == 4:
            request.offline_log_dirs = [pick([folder_of(broker), second_folder(broker)], some, 2)]
        if wants == 5:
            request.cordoned_log_dirs = [folder_of(broker)]
        self.ask(request)

    def silence(self, some: list[int]) -> None:
        """All but one are heard of; it is fenced."""
        self.now_ms += TIMEOUT_MS
        silent = pick(BROKERS, some, 0)
        for broker in BROKERS:
            if broker != silent and broker in self.image.brokers:
                self.beat([BROKERS.index(broker), 0])
        self.now_ms += 1
        theirs: dict[str, Any] = {"again": True, "records": []}
        while theirs["again"]:  # it may look at brokers first that are there no more, or are fenced
            found = self.ask_now("fence_stale")
            theirs = {"again": found["again"], "records": theirs["records"] + found.get("records", [])}
        ours = self.controller.fence_stale(self.now_ms)
        while ours.response and not ours.records:
            ours = self.controller.fence_stale(self.now_ms)
        self.decided(theirs, ours)
        assert not self.controller.fence_stale(self.now_ms).records

    def alter(self, some: list[int]) -> None:
        """By the leader, mostly; sometimes what it may not."""
        topic_id, number = pick(list(TOPICS.values()), some, 0), pick(range(PARTITIONS), some, 1)
        partition = self.image.topics_by_id[topic_id].partitions[number]
        leader = partition.leader if pick(range(9), some, 2) else pick(BROKERS, some, 3)
        if leader not in self.image.brokers:
            return
        chosen = pick(range(16), some, 3)
        isr = [replica for place, replica in enumerate(partition.replicas) if replica == leader or chosen >> place & 1]
        State = AlterPartitionRequest.BrokerState  # noqa: N806
        states = [
            State(broker_id=broker, broker_epoch=self.image.brokers[broker].epoch - (pick(range(20), some, 4) == 19))
            for broker in isr
            if broker in self.image.brokers
        ]
        wanted = AlterPartitionRequest.PartitionData(
            partition_index=number,
            leader_epoch=partition.leader_epoch + pick((0, 0, 0, 0, -1, 1), some, 5),
            partition_epoch=partition.partition_epoch + pick((0, 0, 0, 0, -1, 1), some, 6),
            leader_recovery_state=pick((0, 0, 1), some, 7),
            new_isr_with_epochs=states,
        )
        topic = AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[wanted])
        epoch = self.image.brokers[leader].epoch
        self.ask(AlterPartitionRequest(broker_id=leader, broker_epoch=epoch, topics=[topic]))

    def reassign(self, some: list[int]) -> None:
        replicas = list(dict.fromkeys(pick((*BROKERS, 9), some, place) for place in range(3, 3 + pick(range(4), some, 2))))
        target = AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=pick(range(PARTITIONS), some, 1), replicas=replicas or None
        )
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=pick(list(TOPICS), some, 0), partitions=[target])
        may_resize = bool(pick(range(3), some, 6))
        self.ask(AlterPartitionReassignmentsRequest(topics=[topic], allow_replication_factor_change=may_resize))

    def elect(self, some: list[int]) -> None:
        Chosen = ElectLeadersRequest.TopicPartitions  # noqa: N806
        chosen = [Chosen(topic=name, partitions=list(range(PARTITIONS))) for name in TOPICS]
        self.ask(ElectLeadersRequest(election_type=pick(range(2), some, 0), topic_partitions=chosen))

    def unregister(self, some: list[int]) -> None:
        self.ask(UnregisterBrokerRequest(broker_id=pick(BROKERS, some, 0)))

    def assign(self, some: list[int]) -> None:
        broker = pick(BROKERS, some, 0)
        if broker not in self.image.brokers:
            return
        directory = pick([folder_of(broker), second_folder(broker), b"a folder of none"], some, 1)
        Topic, Partition = AssignReplicasToDirsRequest.TopicData, AssignReplicasToDirsRequest.PartitionData  # noqa: N806
        partitions = [Partition(partition_index=pick(range(PARTITIONS + 1), some, 2))]
        topics = [Topic(topic_id=pick([*TOPICS.values(), b"z" * 16], some, 3), partitions=partitions)]
        directories = [AssignReplicasToDirsRequest.DirectoryData(id=directory, topics=topics)]
        epoch = self.image.brokers[broker].epoch
        self.ask(AssignReplicasToDirsRequest(broker_id=broker, broker_epoch=epoch, directories=directories))

    def balance(self, _: list[int]) -> None:
        self.decided(self.ask_now("balance_leaders"), self.controller.balance_leaders())

    def elect_unclean(self, _: list[int]) -> None:
        self.decided(self.ask_now("elect_unclean_leaders"), self.controller.elect_unclean_leaders())


def pick(choices: Any, some: list[int], place: int) -> Any:
    return choices[some[place % len(some)] % len(choices)]


def topics(level: int) -> list[tuple[Message, int]]:
    """Four partitions on three of four brokers each; one topic may elect unclean leaders, the other needs two in sync."""
    version = 2 if level >= 23 else 1
    records: list[tuple[Message, int]] = []
    for name, topic_id in TOPICS.items():
        records.append((TopicRecord(name=name, topic_id=topic_id), 0))
        strict = ("min.insync.replicas", str(STRICT_MINIMUM))
        setting, value = ("unclean.leader.election.enable", "true") if name == "unclean" else strict
        records.append((ConfigRecord(resource_type=2, resource_name=name, name=setting, value=value), 0))
        for number in range(PARTITIONS):
            replicas = [BROKERS[(number + place) % len(BROKERS)] for place in range(3)]
            directories = [folder_of(broker) for broker in replicas]
            record = PartitionRecord(
                topic_id=topic_id,
                partition_id=number,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                directories=directories,
            )
            record.leader_epoch = record.partition_epoch = 0
            records.append((record, version))
    return records


def readable(records: Iterable[str]) -> list[str]:
    return sorted(str(decode_metadata_record(bytes.fromhex(record))) for record in records)


KINDS = ("beat", "alter", "reassign", "silence", "register", "elect", "assign", "balance", "elect_unclean", "unregister")
WEIGHTED = ("beat", "beat", "alter", "alter", "reassign", "silence", "register", *KINDS)
steps = st.tuples(st.sampled_from(WEIGHTED), st.lists(st.integers(0, 239), min_size=8, max_size=8))


@settings(max_examples=300)
@given(st.sampled_from([17, 23, 30]), st.booleans(), st.lists(steps, max_size=30))
def test_kafka_and_we_decide_the_same(oracle: Oracle, level: int, elr: bool, history: list[Step]) -> None:
    both = Both(oracle, level, elr=elr and level >= 23)
    for kind, some in history:
        getattr(both, kind)(some)
