"""Requests and responses as they travel: size, header, message; both directions."""

from typing import Any

import pytest

from odradek.wire.apis import API_VERSIONS, APIS
from odradek.wire.errors import ProtocolError, UnsupportedRequest
from odradek.wire.frames import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    split_frames,
)
from odradek.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ProduceRequest,
)

FRAME_BYTES_MAX = 1000


def joined(buffers: list[Any]) -> bytes:
    return b"".join(buffers)


def frame_of(buffers: list[Any]) -> bytes:
    """What follows the size, when the size is right."""
    data = joined(buffers)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


def test_every_api_travels_in_both_directions_in_every_version() -> None:
    for api in APIS.values():
        for version in api.versions:
            request, response = api.request(), api.response()
            header, found = decode_request(frame_of(encode_request(request, version, 7, "client")))
            assert found == request
            assert (header.request_api_key, header.request_api_version) == (api.key, version)
            assert (header.correlation_id, header.client_id) == (7, "client")
            assert decode_response(api.response, frame_of(encode_response(response, version, 7)), version) == (7, response)


def test_the_client_id_is_never_compact() -> None:
    plain = frame_of(encode_request(HeartbeatRequest(), 3, 7, "ab"))
    assert plain.startswith(bytes.fromhex("000c 0003 00000007 0002 6162"))
    flexible = frame_of(encode_request(HeartbeatRequest(), 4, 7, "ab"))
    assert flexible.startswith(bytes.fromhex("000c 0004 00000007 0002 6162 00"))
    nameless = frame_of(encode_request(HeartbeatRequest(), 4, 7))
    assert nameless.startswith(bytes.fromhex("000c 0004 00000007 ffff 00"))
    assert decode_request(nameless)[0].client_id is None


def test_the_header_of_a_flexible_response_has_tags_but_that_of_api_versions_has_none() -> None:
    assert joined(encode_response(HeartbeatResponse(), 3, 7)) == bytes.fromhex("0000000a 00000007 00000000 0000")
    assert joined(encode_response(HeartbeatResponse(), 4, 7)) == bytes.fromhex("0000000c 00000007 00 00000000 0000 00")
    assert joined(encode_response(ApiVersionsResponse(), 3, 7)) == bytes.fromhex("0000000c 00000007 0000 01 00000000 00")


def test_tags_of_a_header_are_read() -> None:
    data = bytes.fromhex("000c 0004 00000007 ffff 01 05 01 aa") + HeartbeatRequest().to_bytes(4)
    header, request = decode_request(data)
    assert header.unknown_tags == {5: b"\xaa"}
    assert request == HeartbeatRequest()
    answer = bytes.fromhex("00000007 01 05 01 aa") + HeartbeatResponse().to_bytes(4)
    assert decode_response(HeartbeatResponse, answer, 4) == (7, HeartbeatResponse())


def test_the_size_counts_records_that_are_not_in_memory() -> None:
    class FileRange:
        def __len__(self) -> int:
            return 5000

    file = FileRange()
    topic = FetchResponse.FetchableTopicResponse(partitions=[FetchResponse.PartitionData(records=file)])
    buffers = encode_response(FetchResponse(responses=[topic]), 17, 7)
    assert buffers[1] is file
    first = buffers[0]
    assert isinstance(first, bytes)
    assert int.from_bytes(first[:4], "big") == sum(map(len, buffers)) - 4


def test_records_of_a_request_are_a_view_of_the_frame() -> None:
    partition = ProduceRequest.PartitionProduceData(records=b"records")
    request = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(partition_data=[partition])])
    frame = memoryview(frame_of(encode_request(request, 13, 7)))
    _, found = decode_request(frame)
    assert isinstance(found, ProduceRequest)
    records = found.topic_data[0].partition_data[0].records
    assert records is not None
    assert records.obj is frame.obj


def test_what_is_served_is_both_advertised_and_known() -> None:
    assert (APIS[0].advertised, APIS[0].served) == (range(14), range(3, 14))
    assert (APIS[18].versions, APIS[18].served) == (range(6), range(5))
    assert list(APIS[93].served) == []
    assert {key for key, api in APIS.items() if not api.served} == {93, 94}


def test_a_request_of_an_unknown_api_is_refused_and_can_be_answered() -> None:
    for key in (4, 95, -1, 32767):
        frame = key.to_bytes(2, "big", signed=True) + bytes.fromhex("0001 00000009 ffff")
        with pytest.raises(UnsupportedRequest, match=f"there is no API {key}") as refused:
            decode_request(frame)
        assert (refused.value.api_key, refused.value.api_version, refused.value.correlation_id) == (key, 1, 9)


@pytest.mark.parametrize("version", [-1, 6, 32767])
def test_an_unknown_version_of_api_versions_still_has_a_header(version: int) -> None:
    tags = b"\0" if version > 0 else b""
    frame = bytes.fromhex("0012") + version.to_bytes(2, "big", signed=True) + bytes.fromhex("00000009 0001 63") + tags
    header, start = decode_request_header(frame + b"whatever follows")
    assert (header.correlation_id, header.client_id, start) == (9, "c", len(frame))
    with pytest.raises(UnsupportedRequest, match=f"ApiVersions has versions 0-5, not {version}") as refused:
        decode_request(frame + b"whatever follows")
    assert (refused.value.api_key, refused.value.api_version) == (API_VERSIONS, version)


def test_the_oldest_answer_of_api_versions_can_be_sent_whatever_was_asked() -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, max_version=4)])
    assert joined(encode_response(answer, 0, 9)) == bytes.fromhex("00000010 00000009 0023 00000001 0012 0000 0004")


@pytest.mark.parametrize("size", range(8))
def test_a_frame_too_small_for_a_header_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"a request of {size} bytes has no header"):
        decode_request(bytes(size))


def test_errors_in_a_request_count_the_bytes_of_its_frame() -> None:
    frame = frame_of(encode_request(HeartbeatRequest(group_id="g"), 4, 7, "abc"))
    start = len(frame) - len(HeartbeatRequest(group_id="g").to_bytes(4))
    with pytest.raises(ProtocolError) as refused:
        decode_request(frame[: start + 1])
    assert (refused.value.field, refused.value.position) == ("HeartbeatRequest.group_id", start)
    with pytest.raises(ProtocolError) as refused:
        decode_request(frame[:11])
    assert (refused.value.field, refused.value.position) == ("RequestHeader.client_id", 8)
    with pytest.raises(ProtocolError) as refused:
        decode_response(HeartbeatResponse, b"\0\0\0", 4)
    assert (refused.value.field, refused.value.position) == ("ResponseHeader.correlation_id", 0)


def test_a_stream_is_cut_into_its_whole_frames() -> None:
    stream = b"\0\0\0\3abc" + b"\0\0\0\0" + b"\0\0\0\2de" + b"\0\0\0\5fg"
    frames, size = split_frames(memoryview(stream), FRAME_BYTES_MAX)
    assert [bytes(frame) for frame in frames] == [b"abc", b"", b"de"]
    assert stream[size:] == b"\0\0\0\5fg"
    for end in range(7):
        assert split_frames(memoryview(stream[:end]), FRAME_BYTES_MAX) == ([], 0)


@pytest.mark.parametrize(
    "size", [-1, -(1 << 31), FRAME_BYTES_MAX + 1, int.from_bytes(b"GET ", "big"), int.from_bytes(b"\x16\x03\1\0", "big")]
)
def test_a_size_that_is_negative_or_over_the_limit_is_refused_before_the_frame_is_there(size: int) -> None:
    stream = b"\0\0\0\1x" + size.to_bytes(4, "big", signed=True)
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes, and 1000 are allowed") as refused:
        split_frames(memoryview(stream), FRAME_BYTES_MAX)
    assert (refused.value.field, refused.value.position) == ("size", 5)


def test_api_versions_asks_with_a_name_from_version_3_on() -> None:
    request = ApiVersionsRequest(client_software_name="odradek", client_software_version="1")
    assert decode_request(frame_of(encode_request(request, 3, 1)))[1] == request
    assert decode_request(frame_of(encode_request(request, 2, 1)))[1] == ApiVersionsRequest()
