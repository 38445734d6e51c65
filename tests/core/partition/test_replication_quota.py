"""The throttle of replication: whom it holds back, and for how long. Apache Kafka's own rate is the judge of the figures."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.core.config.broker import BrokerConfig
from odradek.core.config.topic import topic_config
from odradek.core.partition.replication_quota import ByteRate, ReplicationQuota, ReplicationQuotas
from tests.kafka.oracle import Oracle

SAMPLES, SAMPLE_MS = 11, 1000
NODE = 2
PROPERTIES = {
    "node.id": str(NODE),
    "process.roles": "broker",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data",
}


def quota_of(*replicas: str, bytes_per_second_max: int = 1000) -> ReplicationQuota:
    quota = ReplicationQuota(NODE, SAMPLES, SAMPLE_MS)
    quota.bytes_per_second_max = bytes_per_second_max
    quota.throttle("t", replicas)
    return quota


@given(
    events=st.lists(st.tuples(st.sampled_from([0, 1, 300, 999, 1000, 1001, 2500, 4000]), st.integers(-1, 5000)), max_size=60),
    samples=st.sampled_from([1, 2, 3, 11]),
)
@settings(max_examples=200)
def test_the_rate_is_kafkas(oracle: Oracle, events: list[tuple[int, int]], samples: int) -> None:
    now_ms = 1_000_000
    rate = ByteRate(samples, SAMPLE_MS)
    history: list[tuple[int, int]] = []
    found: list[float] = []
    for pause_ms, size in events:
        now_ms += pause_ms
        history += [(now_ms, size)] if size >= 0 else []
        if size >= 0:
            rate.record(size, now_ms)
        history.append((now_ms, -1))
        found.append(rate.measure(now_ms))
    assert found == pytest.approx(oracle.call("Rates.measure", samples=samples, sample_ms=SAMPLE_MS, events=history))


def test_what_is_above_the_rate_holds_back_until_the_rate_is_below_it_again() -> None:
    quota = quota_of("0:2")
    quota.copied("t", 0, 3000, 0)
    assert quota.holds_back("t", 0, 2999)
    assert not quota.holds_back("t", 0, 3000)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 3000)), min_size=1, max_size=100))
def test_no_more_is_copied_than_the_rate_and_one_answer(offers: list[tuple[int, int]]) -> None:
    quota = quota_of("*")
    now_ms = copied = largest = 0
    for pause_ms, size in offers:
        now_ms += pause_ms
        if not quota.holds_back("t", 0, now_ms):
            quota.copied("t", 0, size, now_ms)
            copied += size
            largest = max(largest, size)
        assert copied <= 1000 * max(now_ms, SAMPLE_MS) / 1000 + largest


def test_a_throttle_is_for_the_replicas_of_this_broker_that_are_named() -> None:
    quota = quota_of("0:2", "1:3", "3:2")
    assert [index for index in range(5) if quota.is_throttled("t", index)] == [0, 3]
    assert not quota.is_throttled("other", 0)


def test_a_star_names_all_replicas() -> None:
    assert all(quota_of("*").is_throttled("t", index) for index in range(5))


@pytest.mark.parametrize("replicas", [(), ("",), ("0:3",)])
def test_who_is_not_named_is_neither_counted_nor_held_back(replicas: tuple[str, ...]) -> None:
    quota = quota_of(*replicas, bytes_per_second_max=0)
    quota.copied("t", 0, 1_000_000, 0)
    assert quota.rate.measure(0) == 0
    assert not quota.holds_back("t", 0, 0)


def test_a_throttle_that_is_taken_away_holds_nobody_back() -> None:
    quota = quota_of("0:2", bytes_per_second_max=0)
    quota.copied("t", 0, 1, 0)
    assert quota.holds_back("t", 0, 0)
    quota.throttle("t", ())
    assert not quota.holds_back("t", 0, 0)


def test_each_direction_has_its_rate_and_its_replicas() -> None:
    config = BrokerConfig(PROPERTIES).with_dynamic(
        {"follower.replication.throttled.rate": "70"}, {"leader.replication.throttled.rate": "60"}
    )
    quotas = ReplicationQuotas(NODE, config)
    assert (quotas.leader.bytes_per_second_max, quotas.follower.bytes_per_second_max) == (60, 70)
    overrides = {"leader.replication.throttled.replicas": "0:2,1:1", "follower.replication.throttled.replicas": "1:2"}
    quotas.throttle("t", topic_config(config, overrides))
    assert [quotas.leader.is_throttled("t", index) for index in (0, 1)] == [True, False]
    assert [quotas.follower.is_throttled("t", index) for index in (0, 1)] == [False, True]
    quotas.throttle("t", None)
    assert not quotas.leader.throttled
    assert not quotas.follower.throttled
