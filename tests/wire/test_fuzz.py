"""Hostile bytes: a decoder gives a value or ProtocolError, whatever a peer sends, and holds no more than the frame earns."""

import random
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.wire.careful import CarefulDecoder
from odradek.wire.errors import ProtocolError
from odradek.wire.frames import decode_request, encode_request
from odradek.wire.messages import message_class
from odradek.wire.table import EMPTY, blocks, names, schema
from tests.wire.values import values

# Three bytes can be a struct with an empty string and an empty list, about 150 bytes in Python: 55 times as much at worst.
BYTES_PER_BYTE_MAX = 64
BYTES_ANYWAY_MAX = 16 * 1024
HUGE = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\x7f",
    b"\x7f\xff",
)


@st.composite
def mutations(draw: Any, data: bytes) -> bytes:
    """The bytes with a few things wrong."""
    mutated = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(mutated)))
        match draw(st.sampled_from(["flip", "cut", "insert", "huge", "remove"])):
            case "flip" if position < len(mutated):
                mutated[position] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del mutated[position:]
            case "insert":
                mutated[position:position] = draw(st.binary(min_size=1, max_size=4))
            case "huge":
                huge = draw(st.sampled_from(HUGE))
                mutated[position : position + len(huge)] = huge
            case "remove":
                del mutated[position : position + draw(st.integers(1, 4))]
    return bytes(mutated)


def outcome(decode: Callable[[], Any]) -> Any:
    """The value, or the refusal."""
    try:
        return decode()
    except ProtocolError as refused:
        return refused


@pytest.mark.parametrize("name", list(blocks()))
@settings(max_examples=15)
@given(data=st.data())
def test_mutated_bytes_give_a_value_or_a_protocol_error_and_both_decoders_agree(name: str, data: st.DataObject) -> None:
    message = message_class(name)
    version = data.draw(st.sampled_from(message.schema.versions))
    good = data.draw(values(name, version, with_unknown_tags=True)).to_bytes(version)
    bad = data.draw(mutations(good))
    found = outcome(lambda: message.decode(bad, version))
    expected = outcome(lambda: CarefulDecoder(message, version, memoryview(bad)).decode())
    if isinstance(found, ProtocolError):
        assert (found.field, found.position, found.reason) == (expected.field, expected.position, expected.reason)
        assert 0 <= found.position <= len(bad)
    else:
        assert found.to_bytes(version) == expected.to_bytes(version)  # bytes, because a NaN is not even itself


@settings(max_examples=300)
@given(st.binary(max_size=80))
@example(b"GET / HTTP/1.1\r\n\r\n")
@example(bytes.fromhex("16030100"))
@example(b"")
def test_any_bytes_as_a_request_give_a_request_or_a_protocol_error(frame: bytes) -> None:
    found = outcome(lambda: decode_request(frame))
    if isinstance(found, ProtocolError):
        assert 0 <= found.position <= len(frame)
    else:
        header, request = found
        assert request.schema.key == header.request_api_key


@settings(max_examples=300)
@given(data=st.data())
def test_mutated_requests_give_a_request_or_a_protocol_error(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(names("request")))
    version = data.draw(st.sampled_from(schema(name).versions))
    request = data.draw(values(name, version))
    frame = b"".join(encode_request(request, version, 1, "fuzz"))[4:]  # type: ignore[arg-type]
    bad = data.draw(mutations(frame))
    found = outcome(lambda: decode_request(bad))
    assert isinstance(found, (ProtocolError, tuple))


def allocated(decode: Callable[[], Any]) -> int:
    """The bytes held at the worst moment."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    outcome(decode)
    return tracemalloc.get_traced_memory()[1] - before


def hostile_frames(name: str, version: int, source: random.Random) -> list[bytes]:
    """Long runs of one byte after each of a few cuts of an empty message, and huge counts everywhere."""
    empty = message_class(name)().to_bytes(version)
    cuts = sorted({0, len(empty), *(source.randrange(len(empty) + 1) for _ in range(3))})
    runs = [empty[:cut] + bytes([filler]) * 2000 for cut in cuts for filler in (0, 1, 2, 127, 255)]
    counts = [empty[:cut] + count + bytes(2000) for cut in cuts for count in (b"\0\0\x03\xe8", b"\xe8\x07")]
    return runs + counts + [empty[:cut] + huge for cut in cuts for huge in HUGE]


def frames_of_least_elements(name: str, version: int) -> list[bytes]:
    """Each array of the message full of elements that nobody set: many objects from few bytes."""
    message = message_class(name)
    frames = []
    for field in schema(name).fields:
        if field.is_array and version in field.versions and version not in field.tagged:
            element = getattr(message, field.type)() if field.is_struct else EMPTY.get(field.type, 0)
            frames.append(message(**{field.attribute: [element] * 500}).to_bytes(version))
    return frames


def test_no_frame_makes_a_decoder_hold_more_than_the_frame_earns() -> None:
    source = random.Random(20)
    for name in blocks():  # classes and codecs are made before memory is counted
        for version in {schema(name).versions[0], schema(name).versions[-1]}:
            message_class(name).decode(message_class(name)().to_bytes(version), version)
    tracemalloc.start()
    try:
        for name in blocks():
            message = message_class(name)
            for version in {schema(name).versions[0], schema(name).versions[-1]}:
                for frame in hostile_frames(name, version, source) + frames_of_least_elements(name, version):
                    used = allocated(partial(message.decode, frame, version))
                    assert used <= len(frame) * BYTES_PER_BYTE_MAX + BYTES_ANYWAY_MAX, (name, version, frame[:40].hex())
    finally:
        tracemalloc.stop()
