"""What a topic asks of a batch, rule by rule. Apache Kafka judges the answers in tests/api/test_versions_by_kafka.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.partition.admission import NO_LIMIT_MS, Admission, RefusedRecords
from odradek.wire.batch import check_produced, read_header, set_max_timestamp
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.records import Record, build, records

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
PLAIN = Admission(codec=None, level=None, stamps=False, wants_keys=False, before_max_ms=NO_LIMIT_MS, after_max_ms=HOUR_MS)


def topic(**changes: object) -> Admission:
    values = {name: getattr(PLAIN, name) for name in PLAIN.__struct_fields__}
    return Admission(**{**values, **changes})


def batch(*timestamps: int, key: bytes | None = b"k", codec: int = Codec.NONE) -> bytearray:
    return build([Record(number, time_ms, key, b"v%d" % number) for number, time_ms in enumerate(timestamps)], codec=codec)


def admitted(of: Admission, made: bytearray) -> list[Record]:
    taken = of.admit(made, NOW_MS)
    header = read_header(taken)
    check_produced(taken, 0, header._replace(attributes=header.attributes & ~8))
    return list(records(taken, 0, header))


def test_a_plain_topic_needs_the_header_alone() -> None:
    assert PLAIN.is_plain
    assert PLAIN.is_plausible(read_header(batch(NOW_MS)), NOW_MS)
    for changes in ({"stamps": True}, {"wants_keys": True}, {"codec": Codec.NONE}, {"before_max_ms": 5}):
        assert not topic(**changes).is_plain


def test_timestamps_that_cannot_be_right_are_not_plausible() -> None:
    header = read_header(batch(NOW_MS))
    assert not PLAIN.is_plausible(header._replace(max_timestamp=-1), NOW_MS)
    assert not PLAIN.is_plausible(header._replace(max_timestamp=NOW_MS - 1), NOW_MS)
    assert not PLAIN.is_plausible(header._replace(max_timestamp=NOW_MS + HOUR_MS + 1), NOW_MS)
    assert PLAIN.is_plausible(header._replace(max_timestamp=NOW_MS + HOUR_MS), NOW_MS)


@given(st.lists(st.integers(NOW_MS - 10**6, NOW_MS), min_size=1, max_size=20), st.sampled_from(list(Codec)))
def test_a_wrong_greatest_timestamp_is_corrected(timestamps: list[int], codec: Codec) -> None:
    made = batch(*timestamps, codec=codec)
    set_max_timestamp(made, 0, -1, log_append_time=False)
    taken = PLAIN.admit(made, NOW_MS)
    assert read_header(taken).max_timestamp == max(timestamps)
    check_produced(taken, 0, read_header(taken))


def test_records_that_are_too_old_or_too_new_are_named() -> None:
    of = topic(before_max_ms=1000)
    with pytest.raises(RefusedRecords) as refused:
        of.admit(batch(NOW_MS, NOW_MS - 1001, NOW_MS - 1000, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1), NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refused.value.records] == [1, 4]
    assert len(admitted(of, batch(NOW_MS, NOW_MS - 1000))) == 2


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_takes_no_record_without_a_key(codec: Codec) -> None:
    of = topic(wants_keys=True)
    with pytest.raises(RefusedRecords) as refused:
        of.admit(batch(NOW_MS, NOW_MS, key=None, codec=codec), NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refused.value.records] == [0, 1]
    assert len(admitted(of, batch(NOW_MS, codec=codec))) == 1


@pytest.mark.parametrize("codec", list(Codec))
def test_the_time_of_the_append_is_stamped_on_the_batch(codec: Codec) -> None:
    for record in admitted(topic(stamps=True), batch(5, 7, 6, codec=codec)):
        assert record.timestamp == NOW_MS


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_a_topics_codec_replaces_the_producers(codec: Codec, target: Codec) -> None:
    made = batch(NOW_MS, NOW_MS - 5, codec=codec)
    taken = topic(codec=target).admit(made, NOW_MS)
    header = read_header(taken)
    assert header.codec == target
    assert (taken is made) == (codec == target)
    assert [record.value for record in records(taken, 0, header)] == [b"v0", b"v1"]
    assert header.max_timestamp == NOW_MS


def test_a_producer_that_claims_the_time_of_the_append_is_corrected_or_refused() -> None:
    made = batch(NOW_MS - 5)
    set_max_timestamp(made, 0, NOW_MS - 3, log_append_time=True)
    assert not PLAIN.is_plausible(read_header(made), NOW_MS)
    with pytest.raises(Refused) as refused:
        topic(stamps=True).admit(bytearray(made), NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    taken = PLAIN.admit(made, NOW_MS)
    assert not read_header(taken).is_log_append_time
    assert read_header(taken).max_timestamp == NOW_MS - 3
