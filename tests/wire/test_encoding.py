"""The rules of encoding: what a version lacks, null, tags, and records that are never copied."""

from typing import Any

import pytest

from odradek.wire.errors import ProtocolError
from odradek.wire.message import Message
from odradek.wire.messages import (
    ApiVersionsResponse,
    ConsumerGroupHeartbeatResponse,
    CreateTopicsRequest,
    DescribeLogDirsRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    PartitionChangeRecord,
    ProduceRequest,
)


def refusal(message: Message, version: int) -> tuple[str, str]:
    with pytest.raises(ProtocolError) as refused:
        message.encode(version)
    return refused.value.field, refused.value.reason


def test_a_field_that_the_version_lacks_must_hold_its_default() -> None:
    assert refusal(HeartbeatRequest(group_instance_id="i"), 2) == (
        "HeartbeatRequest.group_instance_id",
        "version 2 has no such field, and it is not the default",
    )
    assert HeartbeatRequest(group_instance_id=None).encode(2)
    assert refusal(FindCoordinatorRequest(coordinator_keys=["k"]), 3)[0] == "FindCoordinatorRequest.coordinator_keys"
    leader = FetchResponse.LeaderIdAndEpoch(leader_id=1)
    topic = FetchResponse.FetchableTopicResponse(partitions=[FetchResponse.PartitionData(current_leader=leader)])
    assert refusal(FetchResponse(responses=[topic]), 11)[0] == "FetchResponse.responses.partitions.current_leader"


def test_a_field_that_may_be_ignored_is_left_out() -> None:
    assert HeartbeatResponse(throttle_time_ms=5).to_bytes(0) == HeartbeatResponse().to_bytes(0)
    request = OffsetCommitRequest(topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="t", topic_id=b"i" * 16)])
    assert OffsetCommitRequest.decode(request.to_bytes(9), 9).topics[0].topic_id == bytes(16)
    assert OffsetCommitRequest.decode(request.to_bytes(10), 10).topics[0].name == ""


def test_null_is_refused_where_the_version_has_none() -> None:
    null = "null, where it may not be"
    assert refusal(MetadataRequest(topics=None), 0) == ("MetadataRequest.topics", null)
    assert MetadataRequest(topics=None).to_bytes(1) == b"\xff\xff\xff\xff"
    assert MetadataRequest(topics=None).to_bytes(12) == b"\x00\x01\x00\x00"
    topic = MetadataResponse.MetadataResponseTopic(name=None)
    assert refusal(MetadataResponse(topics=[topic]), 11) == ("MetadataResponse.topics.name", null)
    empty: Any = None
    snapshot = FetchSnapshotResponse.PartitionSnapshot(unaligned_records=empty)
    topics = [FetchSnapshotResponse.TopicSnapshot(partitions=[snapshot])]
    field = "FetchSnapshotResponse.topics.partitions.unaligned_records"
    assert refusal(FetchSnapshotResponse(topics=topics), 0) == (field, null)
    assert refusal(ListOffsetsRequest(topics=empty), 1) == ("ListOffsetsRequest.topics", null)
    assert refusal(DescribeLogDirsRequest(topics=[empty]), 1)[0] == "DescribeLogDirsRequest.topics"


WRONG: dict[str, tuple[Any, str, str]] = {
    "a string over the limit": ({"group_id": "x" * 32768}, "group_id", "a string of 32768 bytes, over 32767"),
    "half of a surrogate pair": ({"group_id": "\ud800"}, "group_id", "not to be written in UTF-8: surrogates not allowed"),
    "bytes for a string": ({"group_id": b"g"}, "group_id", "bytes in place of a string"),
    "an int32 too large": ({"generation_id": 1 << 31}, "generation_id", "2147483648 is not of type int32"),
    "a string for a number": ({"generation_id": "7"}, "generation_id", "'7' is not of type int32"),
}


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("case", WRONG)
def test_a_value_that_does_not_fit_its_type_is_refused(case: str, version: int) -> None:
    values, field, reason = WRONG[case]
    assert refusal(HeartbeatRequest(**values), version) == (f"HeartbeatRequest.{field}", reason)


def test_the_longest_string_is_written() -> None:
    for version in (3, 4):
        request = HeartbeatRequest(group_id="x" * 32767)
        assert HeartbeatRequest.decode(request.to_bytes(version), version) == request


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_uuid_has_16_bytes(size: int) -> None:
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=bytes(size))])
    field, reason = refusal(request, 13)
    assert field == "FetchRequest.topics.topic_id"
    assert reason.endswith("is not the 16 bytes of a uuid")
    record = PartitionChangeRecord(directories=[bytes(size)])
    assert refusal(record, 1)[0] == "PartitionChangeRecord.directories"


def test_tagged_fields_are_written_only_when_they_do_not_hold_their_default() -> None:
    assert ApiVersionsResponse().to_bytes(3) == bytes.fromhex("0000 01 00000000 00")
    assert ApiVersionsResponse(finalized_features_epoch=7).to_bytes(3) == bytes.fromhex(
        "0000 01 00000000 01 01 08 0000000000000007"
    )
    assert PartitionChangeRecord(isr=[]).to_bytes(0)[-4:] == bytes.fromhex("01 00 01 01")  # empty, and the default is null


def test_unknown_tags_are_kept_and_written_among_the_known_in_order() -> None:
    data = bytes.fromhex("0000 01 00000000 0400 01 0101 08 000000000000000703 01 018801 02 abcd")
    response = ApiVersionsResponse.decode(data, 3)
    assert response.unknown_tags == {136: b"\xab\xcd"}
    assert (response.finalized_features_epoch, response.zk_migration_ready) == (7, True)
    # tag 0 is an empty array, its default, so it is not written again
    assert response.to_bytes(3) == bytes.fromhex("0000 01 00000000 0301 08 000000000000000703 01 018801 02 abcd")
    heartbeat = HeartbeatResponse(unknown_tags={300: b"", 2: b"x"})
    assert heartbeat.to_bytes(4) == bytes.fromhex("00000000 0000 0202 01 78ac02 00")


def test_unknown_tags_are_refused_when_they_cannot_be_written() -> None:
    assert refusal(HeartbeatResponse(unknown_tags={1: b""}), 3)[1] == "version 3 has no tagged fields"
    assert refusal(HeartbeatResponse(unknown_tags={-1: b""}), 4)[1] == "-1 is no tag"
    assert refusal(HeartbeatResponse(unknown_tags={1 << 32: b""}), 4)[1] == "4294967296 is no tag"
    clash = ApiVersionsResponse(finalized_features_epoch=7, unknown_tags={1: b"x"})
    assert refusal(clash, 3) == ("ApiVersionsResponse.finalized_features_epoch", "tag 1 is also among the unknown tags")
    assert HeartbeatResponse(unknown_tags={}).to_bytes(0) == HeartbeatResponse().to_bytes(0)
    assert HeartbeatResponse(unknown_tags={}).to_bytes(4) == HeartbeatResponse().to_bytes(4)


class FileRange:
    """Records that are not in memory: only their length is known."""

    def __len__(self) -> int:
        return 1_000_000


def fetched(*records: Any) -> FetchResponse:
    partitions = [FetchResponse.PartitionData(partition_index=index, records=each) for index, each in enumerate(records)]
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=partitions)])


@pytest.mark.parametrize(("version", "length"), [(4, "000f4240"), (17, "c1843d")])
def test_records_are_among_the_buffers_as_they_are(version: int, length: str) -> None:
    view, held, file = memoryview(b"view"), bytearray(b"held"), FileRange()
    buffers = fetched(view, None, held, b"", file).encode(version)
    kinds = [bytes, memoryview, bytes, bytearray, bytes, FileRange]
    assert [type(buffer) for buffer in buffers[:6]] == kinds
    assert buffers[1] is view
    assert buffers[3] is held
    assert buffers[5] is file
    before = buffers[4]
    assert isinstance(before, bytes)
    assert before.endswith(bytes.fromhex(length))
    assert buffers[6:] == ([] if version == 4 else [bytes(3)])  # the tags of the partition, the topic and the message


@pytest.mark.parametrize("version", [4, 17])
def test_decoded_records_are_a_view_of_what_was_decoded(version: int) -> None:
    data = bytearray(fetched(b"records").to_bytes(version))
    records = FetchResponse.decode(data, version).responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    start = data.index(b"records")
    data[start : start + 7] = b"CHANGED"
    assert bytes(records) == b"CHANGED"


def test_an_error_with_records_out_of_memory_is_reported_too() -> None:
    response = fetched(FileRange())
    response.session_id = 1 << 40
    assert refusal(response, 17)[0] == "FetchResponse.session_id"


def test_fields_have_the_defaults_of_the_table_and_no_two_values_share_them() -> None:
    assert (CreateTopicsRequest().timeout_ms, MetadataRequest().allow_auto_topic_creation) == (60000, True)
    one, other = FetchResponse.PartitionData(), FetchResponse.PartitionData()
    one.current_leader.leader_id = 7
    assert other.current_leader.leader_id == -1
    MetadataResponse().topics.append(MetadataResponse.MetadataResponseTopic())
    assert MetadataResponse().topics == []
    response = ConsumerGroupHeartbeatResponse()
    assert (response.assignment, response.unknown_tags) == (None, None)


def test_tuples_are_as_good_as_lists() -> None:
    partitions: Any = (ProduceRequest.PartitionProduceData(records=b"r"),)
    topics: Any = (ProduceRequest.TopicProduceData(partition_data=partitions),)
    listed = [ProduceRequest.TopicProduceData(partition_data=list(partitions))]
    assert ProduceRequest(topic_data=topics).to_bytes(13) == ProduceRequest(topic_data=listed).to_bytes(13)
