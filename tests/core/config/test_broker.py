"""A node's configuration: where a value comes from, what is said of odd keys, what changes while running."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.config.broker import BrokerConfig
from odradek.core.config.key import InvalidConfig
from odradek.core.config.listeners import Listener
from odradek.core.config.table import broker_keys
from odradek.core.config.topic import TopicConfig, topic_config
from odradek.core.config.validity import duration_ms
from odradek.log.config import LogConfig
from tests.core.config.node import BROKER, CONTROLLER, ONE_NODE, node


@pytest.mark.parametrize(
    ("changes", "retention_ms"),
    [
        ({}, 7 * 24 * 3_600_000),
        ({"log.retention.hours": "2"}, 2 * 3_600_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 3 * 60_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.ms": "-5"}, -1),
    ],
)
def test_the_finest_unit_that_is_given_wins(changes: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig(ONE_NODE | changes).retention_ms == retention_ms


def test_what_is_not_given_falls_back() -> None:
    config = node(log_dir="a,b")
    assert config.log_dirs == ("data",)
    config = BrokerConfig({name: value for name, value in ONE_NODE.items() if name != "log.dirs"} | {"log.dir": "a,b"})
    assert config.log_dirs == ("a", "b")
    assert config.metadata_log_dir == "a"
    assert config.integer("broker.id") == config.node_id == 1
    assert config.advertised_listeners == config.listeners
    assert config.text_or_none("broker.rack") is None
    assert config.integer_or_none("sasl.login.connect.timeout.ms") is None


def test_listeners_are_told_apart() -> None:
    client = Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")
    controller = Listener("CONTROLLER", "127.0.0.1", 19092, "PLAINTEXT")
    both = BrokerConfig(ONE_NODE)
    assert (both.broker_listeners, both.controller_listeners) == ([client], [controller])
    assert (both.is_broker, both.is_controller) == (True, True)
    assert BrokerConfig(BROKER).controller_listeners == []
    assert BrokerConfig(CONTROLLER).broker_listeners == []
    assert both.bootstrap_servers == (("127.0.0.1", 19092),)
    elsewhere = node(advertised_listeners="PLAINTEXT://[::1]:1", controller_quorum_voters="1@[::2]:3,2@b:4")
    assert elsewhere.advertised_broker_listeners == [Listener("PLAINTEXT", "::1", 1, "PLAINTEXT")]
    assert elsewhere.advertised_controller_listeners == [controller]
    assert elsewhere.voters == {1: ("::2", 3), 2: ("b", 4)}


def test_a_controller_that_listens_everywhere_advertises_this_machine() -> None:
    config = BrokerConfig(CONTROLLER | {"listeners": "CONTROLLER://0.0.0.0:19092"})
    assert config.advertised_controller_listeners == [Listener("CONTROLLER", "", 19092, "PLAINTEXT")]


def test_dynamic_values_go_before_the_file_and_those_of_one_broker_before_all() -> None:
    config = node(log_cleaner_threads="2", log_retention_hours="5")
    changed = config.with_dynamic({"log.cleaner.threads": "3", "log.retention.ms": "7"}, {})
    assert changed.integer("log.cleaner.threads") == 3
    assert changed.retention_ms == 7
    assert changed.with_dynamic({"log.cleaner.threads": "3"}, {"log.cleaner.threads": "4"}).integer("log.cleaner.threads") == 4
    assert changed.with_dynamic({}, {}).integer("log.cleaner.threads") == 2
    assert config.integer("log.cleaner.threads") == 2


def test_a_dynamic_value_that_cannot_be_used_is_left_out_with_a_warning() -> None:
    config = node().with_dynamic(
        {"log.cleaner.threads": "x", "node.id": "7", "ssl.client.auth": "none", "unknown": "1"}, {"ssl.client.auth": "required"}
    )
    assert config.node_id == 1
    assert config.integer("log.cleaner.threads") == 1
    assert config.text("ssl.client.auth") == "required"
    assert len(config.warnings) == 3
    assert all(" is not used" in warning for warning in config.warnings)


def test_dynamic_values_that_do_not_go_with_the_file_change_nothing() -> None:
    before = node().with_dynamic({"log.cleaner.threads": "2"}, {})
    after = before.with_dynamic({"log.cleaner.threads": "200"}, {})
    assert after.integer("log.cleaner.threads") == 2
    (warning,) = after.warnings
    assert "log.cleaner.dedupe.buffer.size" in warning
    assert before.warnings == ()


def test_a_dynamic_value_out_of_bounds_is_moved_to_the_bound() -> None:
    config = node(group_consumer_max_assignment_interval_ms="2000").with_dynamic(
        {"group.consumer.assignment.interval.ms": "9000"}, {}
    )
    assert config.integer("group.consumer.assignment.interval.ms") == 2000


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("log.retension.hours", "1", "did you mean log.retention.hours?"),
        ("completely.else", "1", "take it out"),
        ("zookeeper.connect", "a:1", "ZooKeeper"),
        ("inter.broker.protocol.version", "3.9", "metadata.version"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "everybody may do everything"),
        ("listener.name.plaintext.nothing", "1", "no key of a listener"),
        ("broker.heartbeat.interval.ms", "5000", "more than half"),
    ],
)
def test_a_key_that_does_nothing_is_named_in_one_line(name: str, value: str, words: str) -> None:
    (warning,) = BrokerConfig(ONE_NODE | {name: value}).warnings
    assert warning.startswith(f"{name}: ")
    assert words in warning
    assert "\n" not in warning


@pytest.mark.parametrize(
    "name", ["listener.name.plaintext.ssl.client.auth", "rsm.config.bucket", "broker.rack", "log.initial.task.delay.ms"]
)
def test_a_key_that_is_known_is_not_warned_of(name: str) -> None:
    assert BrokerConfig(ONE_NODE | {name: "none" if "auth" in name else "1"}).warnings == ()


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_protocol_that_is_not_served_yet_is_refused(protocol: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{protocol}, which odradek does not serve yet"):
        node(listener_security_protocol_map=f"PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT")


def test_a_secret_is_not_in_a_refusal() -> None:
    key = msgspec.structs.replace(broker_keys()["ssl.key.password"], validity="{a, b}")
    with pytest.raises(InvalidConfig) as refusal:
        key.parse("secret")
    assert "secret" not in str(refusal.value)


@given(st.sampled_from(list(broker_keys())), st.text(max_size=30))
def test_whatever_a_key_is_given_it_is_taken_or_refused_by_name(name: str, text: str) -> None:
    key = broker_keys()[name]
    said = ""
    try:
        shown = key.format(key.parse(text))
    except InvalidConfig as refusal:
        said = str(refusal)
    if said:
        assert said.startswith(f"{name}: ")
    else:
        assert shown is not None
        assert key.format(key.parse(shown)) == shown


def test_a_number_of_any_length_is_refused_in_the_same_words() -> None:
    with pytest.raises(InvalidConfig, match="whole number"):
        node(num_partitions="9" * 10_000)


def test_every_setting_of_a_log_is_one_of_its_topic() -> None:
    topic = topic_config(node(), {})
    log = LogConfig(**{name: getattr(topic, name) for name in LogConfig.__struct_fields__})
    assert log == LogConfig()
    assert set(LogConfig.__struct_fields__) <= set(TopicConfig.__struct_fields__)


def test_a_test_of_kafka_may_have_small_segments() -> None:
    assert topic_config(node(), {"internal.segment.bytes": "100"}).segment_bytes == 100


@pytest.mark.parametrize(
    ("reset", "ms"),
    [("by_duration:PT1H", 3_600_000), ("by_duration:P1DT1.5S", 86_401_500), ("by_duration:PT2H-1M", 7_140_000), ("latest", None)],
)
def test_a_duration_is_read(reset: str, ms: int | None) -> None:
    assert duration_ms(reset) == ms
