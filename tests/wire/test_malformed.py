"""What no peer should have sent is refused with the field and the byte; nothing else than ProtocolError comes out."""

import pytest

from odradek.wire.errors import ProtocolError
from odradek.wire.messages import (
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupMemberMetadataValue,
    DeleteTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    MetadataRequest,
    PartitionChangeRecord,
    ProduceRequest,
    message_class,
)

# HeartbeatRequest: group_id, generation_id, member_id; group_instance_id from 3; compact, with tags, in 4
PLAIN = "0001 67000000070001 6d"
COMPACT = "02 670000000702 6d00"
HEARTBEATS = {
    "a fixed field is cut": (0, "0001 67 0000", "generation_id", 3, "4 bytes wanted, 2 left"),
    "a length is cut": (0, "00", "group_id", 0, "2 bytes wanted, 1 left"),
    "a string is cut": (0, "0005 67", "group_id", 0, "5 bytes wanted, 1 left"),
    "the last string is cut": (0, "0001 67 00000007 0002 6d", "member_id", 7, "2 bytes wanted, 1 left"),
    "a length is negative": (0, "fffe", "group_id", 0, "length -2 is negative"),
    "null, where it may not be": (0, "ffff 00000007 0001 6d", "group_id", 0, "null, where it may not be"),
    "null, compact": (4, "00 00000007 02 6d 00 00", "group_id", 0, "null, where it may not be"),
    "a negative length where null may be": (3, PLAIN + "fffe", "group_instance_id", 10, "length -2 is negative"),
    "trailing bytes": (0, PLAIN + "0000", "", 10, "2 bytes are left after the message"),
    "trailing bytes, compact": (4, COMPACT + "00 aa", "", 10, "1 bytes are left after the message"),
    "not UTF-8": (0, "0003 67 ff 67", "group_id", 3, "not UTF-8: invalid start byte"),
    "half of a character": (4, "03 67 c3 00000007", "group_id", 2, "not UTF-8: unexpected end of data"),
    "a varint of six bytes": (4, "ffffffffff01", "group_id", 0, "a number of more than 5 bytes"),
    "a varint of 33 bits": (4, "ffffffff1f", "group_id", 0, "the number 8589934591 does not fit the field"),
    "a varint is cut": (4, "ff", "group_id", 0, "the bytes end inside a number"),
    "a string is over the limit": (4, "818002" + "67" * 32768, "group_id", 0, "a string of 32768 bytes, over 32767"),
    "no tags": (4, COMPACT, "tags", 9, "the bytes end inside a number"),
    "more tags than there are": (4, COMPACT + "02 05 00", "tags", 12, "the bytes end inside a number"),
    "a tag twice": (4, COMPACT + "02 05 00 05 00", "tags", 12, "tag 5 after tag 5"),
    "tags descend": (4, COMPACT + "02 05 01 aa 04 00", "tags", 13, "tag 4 after tag 5"),
    "a tag runs over the end": (4, COMPACT + "01 05 02 aa", "tags", 10, "tag 5 has 2 bytes, and 1 are left"),
    "the count of tags is endless": (4, COMPACT + "ffffffff0f", "tags", 14, "the bytes end inside a number"),
}


@pytest.mark.parametrize("case", HEARTBEATS)
def test_heartbeat_is_refused_when(case: str) -> None:
    version, data, field, position, reason = HEARTBEATS[case]
    with pytest.raises(ProtocolError) as refused:
        HeartbeatRequest.decode(bytes.fromhex(data), version)
    assert refused.value.field == f"HeartbeatRequest.{field}".rstrip(".")
    assert (refused.value.position, refused.value.reason) == (position, reason)


def refused_at(name: str, version: int, data: bytes) -> tuple[str, int]:
    with pytest.raises(ProtocolError) as refused:
        message_class(name).decode(data, version)
    return refused.value.field, refused.value.position


@pytest.mark.parametrize("count", ["7fffffff", "80000000", "fffffffe", "ffffffff", "00000002"])
def test_an_array_count_that_the_bytes_cannot_hold_is_refused_at_the_count(count: str) -> None:
    # two strings of at least two bytes each, and three bytes left
    data = bytes.fromhex(count + "0001 61")
    assert refused_at("DeleteTopicsRequest", 1, data) == ("DeleteTopicsRequest.topic_names", 0)


@pytest.mark.parametrize("count", ["00", "ffffffff0f", "ffffffffff0f", "05"])
def test_a_compact_count_that_the_bytes_cannot_hold_is_refused_at_the_count(count: str) -> None:
    data = bytes.fromhex(count + "0261")
    assert refused_at("DeleteTopicsRequest", 4, data) == ("DeleteTopicsRequest.topic_names", 0)


def test_a_count_is_held_against_the_smallest_size_of_an_element() -> None:
    topics = [FetchRequest.FetchTopic(partitions=[FetchRequest.FetchPartition(partition=1)])]
    data = bytearray(FetchRequest(topics=topics).to_bytes(4))
    assert data[-20:-16] == b"\0\0\0\1"  # the count of partitions, which have 16 bytes each
    data[-20:-16] = b"\0\0\0\2"
    assert refused_at("FetchRequest", 4, bytes(data)) == ("FetchRequest.topics.partitions", len(data) - 20)


def test_the_path_goes_through_the_arrays() -> None:
    topics = [FetchRequest.FetchTopic(partitions=[FetchRequest.FetchPartition(), FetchRequest.FetchPartition()])]
    data = FetchRequest(topics=topics).to_bytes(4)
    # the counts no longer match when a byte is cut, and that is said where the count stands
    assert refused_at("FetchRequest", 4, data[:-1]) == ("FetchRequest.topics.partitions", len(data) - 36)
    metadata = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in ("ab", "cd")])
    cut = metadata.to_bytes(0)[:-1]
    assert refused_at("MetadataRequest", 0, cut) == ("MetadataRequest.topics.name", 8)


def test_records_over_the_end_are_refused_at_their_length() -> None:
    partition = ProduceRequest.PartitionProduceData(records=b"0123456789")
    request = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[partition])])
    for version in (3, 9):
        data = request.to_bytes(version)
        start = data.index(b"0123456789")
        cut = data[: start + 9]
        length_bytes = 4 if version == 3 else 1
        field = "ProduceRequest.topic_data.partition_data.records"
        assert refused_at("ProduceRequest", version, cut) == (field, start - length_bytes)


def test_the_byte_before_a_struct_that_may_be_null_says_null_or_present() -> None:
    assignment = ConsumerGroupHeartbeatResponse.Assignment()
    data = bytearray(ConsumerGroupHeartbeatResponse(assignment=assignment).to_bytes(0))
    mark = len(data) - 4
    assert data[mark:] == b"\x01\x01\x00\x00"
    data[mark] = 2
    assert refused_at("ConsumerGroupHeartbeatResponse", 0, bytes(data)) == ("ConsumerGroupHeartbeatResponse.assignment", mark)
    data[mark:] = b"\xff\x00"
    assert ConsumerGroupHeartbeatResponse.decode(bytes(data), 0).assignment is None


def test_the_varint_before_a_tagged_struct_that_may_be_null_says_null_or_present() -> None:
    name, field = "ConsumerGroupMemberMetadataValue", "ConsumerGroupMemberMetadataValue.classic_member_metadata"
    data = bytearray(ConsumerGroupMemberMetadataValue(classic_member_metadata=None).to_bytes(0))
    assert data[-4:] == b"\x01\x00\x01\x00"  # one tag, 0, of one byte: null
    data[-1] = 2
    assert refused_at(name, 0, bytes(data)) == (field, len(data) - 1)


@pytest.mark.parametrize(("size", "tail"), [("04", "00000001"), ("05", "00000001"), ("03", "00000001"), ("06", "00000001 0000")])
def test_the_size_of_a_known_tag_is_that_of_its_value(size: str, tail: str) -> None:
    # PartitionChangeRecord: partition, topic id, then tag 1, the leader, an int32
    data = bytes.fromhex("00000000" + "00" * 16 + "01 01" + size + tail)
    if size == "04":
        assert PartitionChangeRecord.decode(data, 0).leader == 1
    else:
        field, position = refused_at("PartitionChangeRecord", 0, data)
        assert position == 21
        assert field in ("PartitionChangeRecord.leader", "PartitionChangeRecord.tags")


def test_any_byte_but_0_is_true() -> None:
    data = EndTxnRequest(transactional_id="t").to_bytes(0)
    assert EndTxnRequest.decode(data, 0).committed is False
    assert EndTxnRequest.decode(data[:-1] + b"\x02", 0).committed is True


@pytest.mark.parametrize("version", [-1, 3, 19, 32767])
def test_a_version_that_the_table_lacks_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match=rf"FetchResponse at byte 0: version {version} is not one of 4-18"):
        FetchResponse.decode(b"", version)
    with pytest.raises(ProtocolError, match=rf"version {version} is not one of 4-18"):
        FetchResponse().encode(version)


def test_a_null_array_is_refused_in_versions_without_it() -> None:
    assert MetadataRequest.decode(b"\xff\xff\xff\xff", 1).topics is None
    assert refused_at("MetadataRequest", 0, b"\xff\xff\xff\xff") == ("MetadataRequest.topics", 0)
    assert refused_at("MetadataRequest", 1, b"\xff\xff\xff\xfe") == ("MetadataRequest.topics", 0)


def test_every_cut_of_a_message_is_refused() -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="topic", topic_id=bytes(range(16)))])
    data = request.to_bytes(6)
    assert DeleteTopicsRequest.decode(data, 6) == request
    for size in range(len(data)):
        field, position = refused_at("DeleteTopicsRequest", 6, data[:size])
        assert field.startswith("DeleteTopicsRequest.")
        assert position <= size
