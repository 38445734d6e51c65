"""Options: what is understood, as Spark's connector understands it, and what is refused, with a line that helps."""

import pytest

from odradek.client.errors import InvalidOption
from odradek.client.records import TopicPartition
from odradek.spark.options import EARLIEST, LATEST, Position, read_options, write_options

BASE = {"kafka.bootstrap.servers": "there:1"}
READ = {**BASE, "subscribe": "t"}
PLACES = {TopicPartition("t", 0): 23, TopicPartition("t", 1): -2}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers is missing"),
        (BASE, "one of subscribe, subscribePattern and assign"),
        ({**READ, "assign": '{"t": [0]}'}, "one of subscribe, subscribePattern and assign"),
        ({**READ, "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({**READ, "maxOffsetsPerTriggr": "1"}, "did you mean maxOffsetsPerTrigger?"),
        ({**READ, "kafka.fetch.max.byte": "1"}, "there is no property 'fetch.max.byte' here; did you mean 'fetch.max.bytes'?"),
        ({**READ, "minPartitions": "0"}, "minPartitions=0: it is a number from 1 on"),
        ({**READ, "minPartitions": "many"}, "minPartitions=many: it is a number from 1 on"),
        ({**READ, "startingOffsets": "first"}, "startingOffsets=first"),
        ({**READ, "startingOffsets": '{"t": 3}'}, "startingOffsets="),
        ({**READ, "endingOffsets": "earliest"}, "endingOffsets are latest, or offsets of partitions"),
        ({**READ, "endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets are latest, or offsets of partitions"),
        ({**READ, "startingOffsets": "latest"}, "a batch that begins at the end reads nothing"),
        ({**READ, "startingOffsets": "group"}, "startingOffsets=group needs groupId"),
        ({**READ, "startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({**READ, "startingOffsetsByTimestampStrategy": "maybe"}, "it is error or latest"),
        ({**READ, "isolation": "serializable"}, "it is read_committed or read_uncommitted"),
        ({**READ, "failOnDataLoss": "perhaps"}, "failOnDataLoss=perhaps"),
        ({**READ, "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger means nothing in a batch"),
        ({**READ, "maxTriggerDelay": "5m"}, "maxTriggerDelay means nothing in a batch"),
        ({**BASE, "subscribePattern": "t("}, "subscribePattern=t("),
        ({**BASE, "assign": '{"t": 0}'}, "assign="),
        ({**READ, "valueSchema": "a int"}, "valueSchema means nothing without valueFormat"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        read_options(given, is_streaming=False)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_end_means_nothing_in_a_stream() -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(InvalidOption, match=f"{name} means nothing in a stream"):
            read_options({**READ, name: "latest"}, is_streaming=True)


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({}, Position(offset=EARLIEST)),
        ({"startingOffsets": " Earliest "}, Position(offset=EARLIEST)),
        ({"startingOffsets": '{"t": {"0": 23, "1": -2}}'}, Position(offsets=PLACES)),
        ({"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t": {"0": 23, "1": -2}}'}, Position(timestamps=PLACES)),
        ({"startingOffsetsByTimestamp": "{}", "startingTimestamp": "17"}, Position(timestamp_ms=17)),
        ({"startingOffsets": "group", "groupId": "g"}, Position(is_group=True)),
        ({"startingOffsets": "group", "kafka.group.id": "g"}, Position(is_group=True)),
    ],
)
def test_a_beginning_is_said_in_the_order_of_sparks_connector(given: dict[str, str], start: Position) -> None:
    assert read_options({**READ, **given}, is_streaming=False).start == start


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert read_options(READ, is_streaming=True).start == Position(offset=LATEST)
    assert read_options(READ, is_streaming=False).start == Position(offset=EARLIEST)


def test_names_of_options_have_no_case_and_those_of_the_client_pass_through() -> None:
    found = read_options(
        {"KAFKA.BOOTSTRAP.SERVERS": "there:1", "SUBSCRIBE": "a, b", "kafka.isolation.level": "read_uncommitted"},
        is_streaming=False,
    )
    assert found.properties == {"bootstrap.servers": "there:1"}
    assert (found.topics, found.isolation) == (("a", "b"), "read_uncommitted")


def test_delays_have_units() -> None:
    for text, ms in (("15m", 900_000), ("10s", 10_000), ("500ms", 500), ("2 h", 7_200_000)):
        assert read_options({**READ, "maxTriggerDelay": text}, is_streaming=True).delay_ms_max == ms
    with pytest.raises(InvalidOption, match="a number with one of"):
        read_options({**READ, "maxTriggerDelay": "5 moons"}, is_streaming=True)


def test_what_is_written_goes_to_a_topic_with_properties_of_a_producer() -> None:
    found = write_options({**BASE, "topic": "t", "compression": "zstd", "kafka.linger.ms": "7"})
    assert found.topic == "t"
    assert found.properties == {"bootstrap.servers": "there:1", "linger.ms": "7", "compression.type": "zstd"}
    with pytest.raises(InvalidOption, match="did you mean topic"):
        write_options({**BASE, "topics": "t"})
