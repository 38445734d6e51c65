"""Control records: end markers byte for byte as Apache Kafka writes them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire.batch import check, read_header
from odradek.wire.control import ControlType, control_key, end_marker, read_control_type, read_end_marker
from odradek.wire.errors import ProtocolError
from odradek.wire.records import Record, records
from tests.kafka.oracle import Oracle


@given(
    st.booleans(),
    st.integers(0, (1 << 63) - 1),
    st.integers(0, (1 << 15) - 1),
    st.integers(0, (1 << 31) - 1),
    st.integers(0, 1 << 45),
    st.integers(0, 1 << 60),
    st.integers(-1, (1 << 31) - 1),
)
@settings(max_examples=50)
def test_end_marker_is_kafkas_byte_for_byte(
    oracle: Oracle,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int,
    leader_epoch: int,
) -> None:
    marker = end_marker(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    kafka = oracle.call(
        "Batches.endMarker",
        commit=commit,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    assert marker.hex() == kafka
    header = read_header(marker)
    check(marker, 0, header)
    assert header.is_control
    assert header.is_transactional
    (record,) = records(marker, 0, header)
    assert read_end_marker(record) == (ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch)
    assert oracle.call("Batches.readEndMarker", hex=marker.hex()) == [int(commit), coordinator_epoch]


@pytest.mark.parametrize("control_type", ControlType)
def test_control_type_comes_back(control_type: ControlType) -> None:
    key = control_key(control_type)
    assert key == b"\x00\x00\x00" + bytes([control_type])
    assert read_control_type(key) == control_type


def test_control_type_of_a_newer_node_is_no_error() -> None:
    assert read_control_type(b"\x00\x07\x00\x63later") == 99


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_malformed_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(ProtocolError, match="control record key at byte 0"):
        read_control_type(key)


@pytest.mark.parametrize("value", [None, b"", b"\x00" * 5, b"\xff\xff\x00\x00\x00\x00"])
def test_malformed_end_marker_is_refused(value: bytes | None) -> None:
    with pytest.raises(ProtocolError, match="end marker at byte 0"):
        read_end_marker(Record(0, 0, control_key(ControlType.COMMIT), value))


def test_only_commit_and_abort_end_a_transaction() -> None:
    with pytest.raises(ProtocolError, match="type 2 does not end a transaction"):
        read_end_marker(Record(0, 0, control_key(ControlType.LEADER_CHANGE), b"\x00" * 6))


def test_later_version_of_an_end_marker_is_read() -> None:
    later = b"\x00\x01" + b"\x00\x00\x00\x09" + b"more"
    assert read_end_marker(Record(0, 0, control_key(ControlType.ABORT), later)) == (ControlType.ABORT, 9)
