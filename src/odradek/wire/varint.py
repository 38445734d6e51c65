"""Variable-length integers: seven bits a byte, lowest first, the high bit set on all bytes but the last.

The protocol's flexible versions write them unsigned; records write them zigzag (0, -1, 1, -2, … become 0, 1, 2, 3, …),
so that a null length of -1 takes one byte. Numbers that nearly every record holds are taken from tables.

Invariants
 1. what `encode` and `encode_unsigned` give is the shortest form, and the form that Kafka writes
 2. a decoder reads any form that fits its width, padded ones too as Kafka's own reader does, and refuses more than
    5 bytes of an int32, more than 10 of an int64, and values that do not fit
"""

from typing import Final, TypeAlias

from odradek.wire.errors import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview

BYTES_MAX_INT32: Final = 5
BYTES_MAX_INT64: Final = 10


def encode_unsigned(number: int) -> bytes:
    """An unsigned number, as lengths of the flexible versions are written."""
    assert 0 <= number < 1 << 64
    if number < 0x80:
        return ONE_BYTE[number]
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


ONE_BYTE: Final = tuple(bytes((number,)) for number in range(0x80))


def encode(number: int) -> bytes:
    """A signed number in zigzag: Kafka's varint and varlong, which differ in their range alone."""
    if -1 <= number < SMALL_END:
        return SMALL[number]
    assert -(1 << 63) <= number < 1 << 63
    return encode_unsigned(number << 1 if number >= 0 else ~(number << 1))


# The zigzag forms of 0 to 8190, all that one or two bytes hold, then that of -1, which Python's index -1 finds.
SMALL_END: Final = 8191
SMALL: Final = (*(encode_unsigned(number << 1) for number in range(SMALL_END)), encode_unsigned(1))


def decode_unsigned(data: Buffer, position: int, bytes_max: int = BYTES_MAX_INT32, field: str = "varint") -> tuple[int, int]:
    """The number at a position, and the position after it."""
    number = shift = 0
    cursor = position
    end = len(data)
    while cursor < end:
        byte = data[cursor]
        number |= (byte & 0x7F) << shift
        cursor += 1
        if byte < 0x80:
            if number >> (32 if bytes_max == BYTES_MAX_INT32 else 64):
                raise ProtocolError(f"the number {number} does not fit the field", field, position)
            return number, cursor
        shift += 7
        if cursor - position == bytes_max:
            raise ProtocolError(f"a number of more than {bytes_max} bytes", field, position)
    raise ProtocolError("the bytes end inside a number", field, position)


def decode(data: Buffer, position: int, bytes_max: int = BYTES_MAX_INT32, field: str = "varint") -> tuple[int, int]:
    """The signed number in zigzag at a position, and the position after it."""
    if position < len(data) and (number := data[position]) < 0x80:
        return (number >> 1) ^ -(number & 1), position + 1
    number, cursor = decode_unsigned(data, position, bytes_max, field)
    return (number >> 1) ^ -(number & 1), cursor
