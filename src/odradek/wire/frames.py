"""Requests and responses as they travel: an int32 size, a header, the message.

Invariants
 1. A frame is what follows the size; positions in errors are bytes of the frame.
 2. The size is refused before a byte is waited for, when it is negative or over the limit that the caller names.
 3. Only `ProtocolError` leaves a decoder; `UnsupportedRequest` when the header could be read, and its message is unknown.
"""

from struct import Struct
from typing import Final, TypeVar

from odradek.wire.apis import APIS
from odradek.wire.errors import ProtocolError, UnsupportedRequest
from odradek.wire.message import Buffer, Buffers, Message
from odradek.wire.messages import RequestHeader, ResponseHeader

SIZE: Final = Struct(">i")
CORRELATION: Final = Struct(">i")
FIXED_PART: Final = Struct(">hhi")  # key, version and correlation id: the same in all request headers

SomeResponse = TypeVar("SomeResponse", bound=Message)


def split_frames(stream: memoryview, frame_bytes_max: int) -> tuple[list[memoryview], int]:
    """The whole frames at the begin of what a connection has read, and the bytes that they and their sizes take."""
    frames: list[memoryview] = []
    position, end = 0, len(stream)
    while end - position >= SIZE.size:
        (size,) = SIZE.unpack_from(stream, position)
        if not 0 <= size <= frame_bytes_max:
            raise ProtocolError(f"a frame of {size} bytes, and {frame_bytes_max} are allowed", "size", position)
        start = position + SIZE.size
        if end - start < size:
            break
        position = start + size
        frames.append(stream[start:position])
    return frames, position


def framed(head: bytes, buffers: Buffers) -> Buffers:
    """The buffers of a message behind the size and `head`."""
    size = len(head) + sum(map(len, buffers))
    first = buffers[0]
    assert isinstance(first, bytes)
    buffers[0] = SIZE.pack(size) + head + first
    return buffers


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None = None) -> Buffers:
    """A request with its header and size, ready to be sent."""
    schema = request.schema
    assert schema.kind == "request"
    header = RequestHeader(
        request_api_key=schema.key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    header_version = APIS[schema.key].request_header_version(version)
    return framed(header.to_bytes(header_version), request.encode(version))


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request, and where its message begins."""
    if len(frame) < FIXED_PART.size:
        raise ProtocolError(f"a request of {len(frame)} bytes has no header", "RequestHeader", 0)
    key, version, correlation_id = FIXED_PART.unpack_from(frame)
    api = APIS.get(key)
    if api is None:
        raise UnsupportedRequest(f"there is no API {key}", key, version, correlation_id)
    return RequestHeader.decode_head(frame, api.request_header_version(version))


def decode_request(frame: Buffer) -> tuple[RequestHeader, Message]:
    """The header and the message of a request."""
    header, start = decode_request_header(frame)
    key, version = header.request_api_key, header.request_api_version
    api = APIS[key]
    if version not in api.versions:
        known = f"{api.versions[0]}-{api.versions[-1]}"
        raise UnsupportedRequest(f"{api.name} has versions {known}, not {version}", key, version, header.correlation_id)
    return header, api.request.decode_from(frame, version, start)


def encode_response(response: Message, version: int, correlation_id: int) -> Buffers:
    """A response with its header and size, ready to be sent."""
    schema = response.schema
    assert schema.kind == "response"
    head = CORRELATION.pack(correlation_id)
    if APIS[schema.key].response_header_version(version):
        head += b"\0"  # no tagged fields
    return framed(head, response.encode(version))


def decode_response(response: type[SomeResponse], frame: Buffer, version: int) -> tuple[int, SomeResponse]:
    """The correlation id and the message of a response: whoever asked knows which it must be."""
    header_version = APIS[response.schema.key].response_header_version(version)
    header, start = ResponseHeader.decode_head(frame, header_version)
    return header.correlation_id, response.decode_from(frame, version, start)
