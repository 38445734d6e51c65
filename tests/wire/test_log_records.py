"""The records of Kafka's own logs, in their frames: Kafka's bytes, and ours, and back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire.control import ControlType, control_key
from odradek.wire.errors import ProtocolError, UnknownRecord
from odradek.wire.log_records import (
    METADATA_TOPIC,
    REMOTE_LOG_TOPIC,
    decode_consumer_protocol,
    decode_control_record,
    decode_coordinator_record,
    decode_metadata_record,
    decode_self_versioned,
    decode_versioned,
    encode_control_record,
    encode_coordinator_record,
    encode_metadata_record,
    encode_self_versioned,
    encode_versioned,
)
from odradek.wire.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    DefaultPrincipalData,
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    NoOpRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    ProducerSnapshot,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    SubscriptionInfoData,
    TopicRecord,
    TransactionLogKey,
    VotersRecord,
)
from odradek.wire.table import Field, Schema, names, schema
from tests.kafka.oracle import Oracle
from tests.wire.kafka_json import FIELDS_NOT_IN_4_3_1, NOT_IN_4_3_1, to_kafka
from tests.wire.values import values

PLUGGED = (
    "ConsumerProtocolSubscription",
    "ConsumerProtocolAssignment",
    "DefaultPrincipalData",
    "EndTxnMarker",
    "ProducerSnapshot",
)
COORDINATORS = {"__consumer_offsets": 22, "__transaction_state": 1, "__share_group_state": 2}


def of_kind(kind: str) -> list[str]:
    return [name for name in names(kind) if name not in NOT_IN_4_3_1]


def known(part: Schema, field: Field) -> st.SearchStrategy[Any] | None:
    return st.just(field.default) if (part.name, field.name) in FIELDS_NOT_IN_4_3_1 else None


def test_the_logs_have_all_their_records() -> None:
    topics = [schema(name).topic for name in names("metadata")]
    assert (topics.count(METADATA_TOPIC), topics.count(REMOTE_LOG_TOPIC)) == (27, 4)
    for kind in ("coordinator-key", "coordinator-value"):
        found = [schema(name).topic for name in names(kind)]
        assert {topic: found.count(topic) for topic in found} == COORDINATORS


@pytest.mark.parametrize("name", of_kind("metadata"))
@settings(max_examples=8)
@given(data=st.data())
def test_metadata_records_are_framed_as_kafka_frames_them(name: str, oracle: Oracle, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(schema(name).versions))
    record = data.draw(values(name, version))
    topic = schema(name).topic
    call = "Messages.metadataRecord" if topic == METADATA_TOPIC else "Messages.remoteLogRecord"
    expected = bytes.fromhex(oracle.call(call, message=name, version=version, value=to_kafka(record, version)))
    assert encode_metadata_record(record, version) == expected
    assert decode_metadata_record(expected, topic) == (record, version)


@pytest.mark.parametrize("key_name", of_kind("coordinator-key"))
@settings(max_examples=8)
@given(data=st.data())
def test_coordinators_records_are_written_as_kafka_writes_them(key_name: str, oracle: Oracle, data: st.DataObject) -> None:
    value_name = f"{key_name.removesuffix('Key')}Value"
    version = data.draw(st.sampled_from(schema(value_name).versions))
    key, value = data.draw(values(key_name, 0)), data.draw(values(value_name, version, narrow=known))
    expected_key = bytes.fromhex(oracle.call("Messages.coordinatorKey", message=key_name, version=0, value=to_kafka(key, 0)))
    expected = bytes.fromhex(
        oracle.call("Messages.versioned", message=value_name, version=version, value=to_kafka(value, version))
    )
    topic = schema(key_name).topic
    assert encode_coordinator_record(key, value, version) == (expected_key, expected)
    assert decode_coordinator_record(topic, expected_key, expected) == (key, value, version)
    assert encode_coordinator_record(key, None, version) == (expected_key, None)
    assert decode_coordinator_record(topic, expected_key, None) == (key, None, -1)


@pytest.mark.parametrize("name", PLUGGED)
@settings(max_examples=8)
@given(data=st.data())
def test_plugged_data_have_their_version_first_as_in_kafka(name: str, oracle: Oracle, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(schema(name).versions))
    value = data.draw(values(name, version))
    expected = bytes.fromhex(oracle.call("Messages.versioned", message=name, version=version, value=to_kafka(value, version)))
    assert encode_versioned(value, version) == expected
    assert decode_versioned(type(value), expected) == (value, version)


CONTROL = [
    (ControlType.ABORT, EndTxnMarker(coordinator_epoch=7), "0000 00000007"),
    (ControlType.COMMIT, EndTxnMarker(coordinator_epoch=7), "0000 00000007"),
    (
        ControlType.LEADER_CHANGE,
        LeaderChangeMessage(version=0, leader_id=1, voters=[LeaderChangeMessage.Voter(voter_id=1)]),
        "0000 00000001 02 00000001 00 01 00",
    ),
    (
        ControlType.LEADER_CHANGE,
        LeaderChangeMessage(version=1, leader_id=1, voters=[LeaderChangeMessage.Voter(voter_id=1, voter_directory_id=b"d" * 16)]),
        "0001 00000001 02 00000001 " + "64" * 16 + " 00 01 00",
    ),
    (ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord(last_contained_log_timestamp=5), "0000 0000000000000005 00"),
    (ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), "0000 00"),
    (ControlType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=1), "0000 0001 00"),
    (
        ControlType.KRAFT_VOTERS,
        VotersRecord(voters=[VotersRecord.Voter(voter_id=3, endpoints=[VotersRecord.Endpoint(name="C", host="h", port=9093)])]),
        "0000 02 00000003 " + "00" * 16 + " 02 0243 0268 2385 00 0000 0000 00 00 00",
    ),
]


@pytest.mark.parametrize(("kind", "value", "expected"), CONTROL)
def test_control_records_have_their_type_in_the_key(kind: ControlType, value: Any, expected: str) -> None:
    key, encoded = encode_control_record(kind, value)
    assert key == bytes([0, 0, 0, kind])
    assert encoded == bytes.fromhex(expected)
    assert decode_control_record(key, encoded) == (kind, value)


def test_what_says_its_own_version_is_read_in_that_version() -> None:
    for version in SubscriptionInfoData.schema.versions:
        info = SubscriptionInfoData(version=version, process_id=b"p" * 16)
        encoded = encode_self_versioned(info)
        assert encoded[:4] == version.to_bytes(4, "big")
        assert decode_self_versioned(SubscriptionInfoData, encoded) == info
    for bad in (b"", b"\0\0\0", b"\0\0\0\x0c", b"\0\0\0\0"):
        with pytest.raises(UnknownRecord, match=r"SubscriptionInfoData\.version at byte 0"):
            decode_self_versioned(SubscriptionInfoData, bad)


def test_a_subscription_of_a_newer_version_is_read_as_the_newest_known() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"], generation_id=4, rack_id="r")
    newest = encode_versioned(subscription, 3)
    assert decode_consumer_protocol(ConsumerProtocolSubscription, newest) == subscription
    assert decode_consumer_protocol(ConsumerProtocolSubscription, b"\0\7" + newest[2:] + b"added") == subscription
    assignment = ConsumerProtocolAssignment(user_data=b"u")
    assert decode_consumer_protocol(ConsumerProtocolAssignment, b"\0\7" + encode_versioned(assignment, 3)[2:]) == assignment
    with pytest.raises(ProtocolError, match=rf"ConsumerProtocolSubscription\.rack_id at byte {len(newest) - 3}"):
        decode_consumer_protocol(ConsumerProtocolSubscription, b"\0\7" + newest[2:-1])
    with pytest.raises(UnknownRecord, match="version -1 is unknown"):
        decode_consumer_protocol(ConsumerProtocolSubscription, b"\xff\xff")
    with pytest.raises(ProtocolError, match="1 bytes hold no version"):
        decode_consumer_protocol(ConsumerProtocolSubscription, b"\0")


UNKNOWN_METADATA = {
    "another frame": ("02 02 00", "frame_version", 0),
    "a key that is not in use": ("01 06 00", "key", 1),
    "a key of a newer Kafka": ("01 e807 00", "key", 1),
    "a version of a newer Kafka": ("01 02 01", "TopicRecord", 2),
}


@pytest.mark.parametrize("case", UNKNOWN_METADATA)
def test_metadata_of_a_newer_kafka_is_told_from_malformed_metadata(case: str) -> None:
    data, field, position = UNKNOWN_METADATA[case]
    with pytest.raises(UnknownRecord) as refused:
        decode_metadata_record(bytes.fromhex(data))
    assert (refused.value.field, refused.value.position) == (field, position)


def test_malformed_metadata_is_refused_with_its_byte() -> None:
    good = encode_metadata_record(TopicRecord(name="t"), 0)
    for end in range(len(good)):
        with pytest.raises(ProtocolError) as refused:
            decode_metadata_record(good[:end])
        assert not isinstance(refused.value, UnknownRecord)
        assert refused.value.position <= end
    with pytest.raises(ProtocolError, match=f"TopicRecord at byte {len(good)}: 1 bytes are left"):
        decode_metadata_record(good + b"\0")
    with pytest.raises(ProtocolError, match="frame_version at byte 0"):
        decode_metadata_record(b"\xff" * 6)
    assert encode_metadata_record(NoOpRecord(), 0) == bytes.fromhex("01 14 00 00")


def test_unknown_records_of_coordinators_are_told_from_malformed_ones() -> None:
    with pytest.raises(UnknownRecord, match="__consumer_offsets has no record 9"):
        decode_coordinator_record("__consumer_offsets", b"\0\x09\0\0", None)
    key, value = encode_coordinator_record(OffsetCommitKey(group="g", topic="t", partition=1), OffsetCommitValue(offset=5), 4)
    assert value is not None
    with pytest.raises(UnknownRecord, match="OffsetCommitValue at byte 0: version 5 is unknown"):
        decode_coordinator_record("__consumer_offsets", key, b"\0\5" + value[2:])
    with pytest.raises(ProtocolError, match=r"OffsetCommitKey\.partition at byte 8: 4 bytes wanted, 3 left"):
        decode_coordinator_record("__consumer_offsets", key[:-1], value)
    with pytest.raises(ProtocolError, match="key at byte 0: 1 bytes hold no version"):
        decode_coordinator_record("__transaction_state", b"\0", None)
    found = decode_coordinator_record("__transaction_state", b"\0\0\0\1x", None)
    assert found.key == TransactionLogKey(transactional_id="x")


def test_control_records_of_an_unknown_type_or_version_are_refused() -> None:
    with pytest.raises(UnknownRecord, match="there is no control record of type 7"):
        decode_control_record(b"\0\0\0\7", b"")
    with pytest.raises(ProtocolError):
        decode_control_record(b"\0\0", b"")
    with pytest.raises(UnknownRecord, match=r"LeaderChangeMessage\.version at byte 0: version 2 is unknown"):
        decode_control_record(control_key(ControlType.LEADER_CHANGE), b"\0\2\0\0\0\1")


def test_principals_and_producer_snapshots_have_their_version_first() -> None:
    assert encode_versioned(DefaultPrincipalData(type="User", name="a"), 0) == bytes.fromhex("0000 05 55736572 02 61 00 00")
    entry = ProducerSnapshot.ProducerEntry(producer_id=1, epoch=2, current_txn_first_offset=-1)
    encoded = encode_versioned(ProducerSnapshot(crc=0xFFFFFFFF, producer_entries=[entry]), 1)
    assert encoded[:10] == bytes.fromhex("0001 ffffffff 00000001")
    assert len(encoded) == 10 + 46
