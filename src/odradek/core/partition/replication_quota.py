"""How fast throttled replicas may be copied: `leader.replication.throttled.rate` and `follower.replication.throttled.rate`.

An operator who moves partitions names the replicas of the move and a rate; so what is moved leaves room for everybody else.

Invariants
 1. Only replicas that are not in sync wait for a throttle, so nobody leaves the ISR for one; whoever asks knows who is in sync.
 2. What is copied for a throttled replica counts also while it is in sync: the rate holds for all that is sent.
 3. What is over the rate was sent by one answer: then nothing is, until the rate of the last samples is below it again.
"""

from typing import Final

from odradek.core.config.broker import BrokerConfig
from odradek.core.config.topic import TopicConfig

UNLIMITED: Final = 2**63 - 1
EVERY_REPLICA: Final = "*"


class Sample:
    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.size = 0


class ByteRate:
    """Bytes a second over the last samples, measured as Kafka does: a short time counts as a whole sample."""

    __slots__ = ("current", "sample_ms", "samples", "samples_max")

    def __init__(self, samples_max: int, sample_ms: int) -> None:
        self.samples_max = samples_max
        self.sample_ms = sample_ms
        self.samples: list[Sample] = []  # one more than are counted: the oldest may reach into the time that is
        self.current = 0

    def record(self, size: int, now_ms: int) -> None:
        if not self.samples:
            self.samples.append(Sample(now_ms))
        elif now_ms - self.samples[self.current].start_ms >= self.sample_ms:
            self.current = (self.current + 1) % (self.samples_max + 1)
            if self.current == len(self.samples):
                self.samples.append(Sample(now_ms))
            self.samples[self.current].reset(now_ms)
        sample = self.samples[self.current]
        sample.size += size
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        if not self.samples:
            self.samples.append(Sample(now_ms))
        for sample in self.samples:
            if now_ms - sample.last_ms >= self.samples_max * self.sample_ms:
                sample.reset(now_ms)
        elapsed_ms = now_ms - min(sample.start_ms for sample in self.samples)
        return sum(sample.size for sample in self.samples) * 1000 / max(elapsed_ms, self.sample_ms)


class ReplicationQuota:
    """The replicas of this broker that are throttled in one direction, and what was copied for them."""

    __slots__ = ("bytes_per_second_max", "node_id", "rate", "throttled")

    def __init__(self, node_id: int, samples_max: int, sample_ms: int) -> None:
        self.node_id = node_id
        self.rate = ByteRate(samples_max, sample_ms)
        self.bytes_per_second_max = UNLIMITED
        self.throttled: dict[str, frozenset[int] | None] = {}  # partitions by topic, None for all

    def throttle(self, topic: str, replicas: tuple[str, ...]) -> None:
        """Which replicas are throttled, as the topic's config has it: partition:broker each, or `*`."""
        self.throttled.pop(topic, None)
        pairs = [replica.split(":") for replica in replicas if replica]
        if pairs == [[EVERY_REPLICA]]:
            self.throttled[topic] = None
        elif pairs:
            self.throttled[topic] = frozenset(int(index) for index, broker in pairs if int(broker) == self.node_id)

    def is_throttled(self, topic: str, index: int) -> bool:
        if topic not in self.throttled:
            return False
        partitions = self.throttled[topic]
        return partitions is None or index in partitions

    def copied(self, topic: str, index: int, size: int, now_ms: int) -> None:
        if self.is_throttled(topic, index):
            self.rate.record(size, now_ms)

    def holds_back(self, topic: str, index: int, now_ms: int) -> bool:
        """Whether a replica that is not in sync has to wait."""
        return self.is_throttled(topic, index) and self.rate.measure(now_ms) > self.bytes_per_second_max


class ReplicationQuotas:
    """Of a broker: for what it sends to followers, and for what it fetches from leaders."""

    __slots__ = ("follower", "leader")

    def __init__(self, node_id: int, config: BrokerConfig) -> None:
        samples_max = config.integer("replication.quota.window.num")
        sample_ms = config.integer("replication.quota.window.size.seconds") * 1000
        self.leader = ReplicationQuota(node_id, samples_max, sample_ms)
        self.follower = ReplicationQuota(node_id, samples_max, sample_ms)
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        self.leader.bytes_per_second_max = config.integer("leader.replication.throttled.rate")
        self.follower.bytes_per_second_max = config.integer("follower.replication.throttled.rate")

    def throttle(self, topic: str, config: TopicConfig | None) -> None:
        """What a topic's config says; None for a topic that is no more."""
        self.leader.throttle(topic, () if config is None else config.leader_replication_throttled_replicas)
        self.follower.throttle(topic, () if config is None else config.follower_replication_throttled_replicas)
