"""Python source under construction, and what the generated functions call when they meet the rare case.

The compilers write straight-line code for the common case: short strings, no tagged fields. Everything rare is a call to
one of the functions here. Generated code is registered with `linecache`, so that a traceback shows its lines.

Invariants
 1. What generated code refuses raises `Malformed`, or one of `REFUSALS`; the caller then asks `careful` for the field.
 2. The tables of packers are bounded: a peer that sends arrays of every length cannot make them grow without end.
"""

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct, calcsize, error
from typing import Any, Final

from odradek.wire.table import Schema
from odradek.wire.varint import BYTES_MAX_INT32, Buffer, encode_unsigned

STRING_BYTES_MAX: Final = 32767
PACKERS_MAX: Final = 1024
UINT32_END: Final = 1 << 32
BYTES: Final = tuple(bytes([n]) for n in range(256))


class Malformed(Exception):
    """Generated code found something that may not be; `careful` says what."""


REFUSALS: Final = (Malformed, error, IndexError, AttributeError, TypeError, ValueError)


def uvarint_rest(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """An unsigned varint whose first byte, just before `position`, says that more follow: the number and where it ends."""
    number = first & 127
    for shift in range(7, 7 * BYTES_MAX_INT32, 7):
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number >= UINT32_END:
                break
            return number, position
    raise Malformed


def string_rest(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """As `uvarint_rest`, for the length + 1 of a string."""
    number, position = uvarint_rest(data, position, first)
    if number > STRING_BYTES_MAX + 1:
        raise Malformed
    return number, position


def string_prefix(length: int) -> bytes:
    """The length + 1 of a string of more than 126 bytes."""
    if length > STRING_BYTES_MAX + 1:
        raise Malformed
    return encode_unsigned(length)


def unknown_tags(data: Buffer, position: int, end: int, count: int) -> tuple[dict[int, bytes], int]:
    """The tagged fields of a struct that has none we know."""
    if count > 127:
        count, position = uvarint_rest(data, position, count)
    found: dict[int, bytes] = {}
    last = -1
    for _ in range(count):
        tag = data[position]
        position += 1
        if tag > 127:
            tag, position = uvarint_rest(data, position, tag)
        size = data[position]
        position += 1
        if size > 127:
            size, position = uvarint_rest(data, position, size)
        stop = position + size
        if tag <= last or stop > end:
            raise Malformed
        found[tag] = bytes(data[position:stop])
        last, position = tag, stop
    return found, position


def put_tags(parts: list[bytes], known: dict[int, bytes], unknown: dict[int, bytes] | None) -> None:
    """Appends all tagged fields of a struct, in the order of their tags."""
    if unknown:
        if known.keys() & unknown.keys() or min(unknown) < 0 or max(unknown) >= UINT32_END:
            raise Malformed
        known.update(unknown)
    parts.append(encode_unsigned(len(known)))
    for tag in sorted(known):
        value = known[tag]
        parts += (encode_unsigned(tag), encode_unsigned(len(value)), value)


class Packers(dict[int, Callable[..., Any]]):
    """`pack` or `unpack_from` for arrays of one fixed-size type, by the number of elements."""

    def __init__(self, code: str, method: str) -> None:
        super().__init__()
        self.code = code
        self.method = method

    def __missing__(self, count: int) -> Callable[..., Any]:
        packer: Callable[..., Any] = getattr(Struct(f">{count}{self.code}"), self.method)
        if len(self) < PACKERS_MAX:
            self[count] = packer
        return packer


PACK: Final = {code: Packers(code, "pack") for code in "bhiqHId?"}
UNPACK: Final = {code: Packers(code, "unpack_from") for code in "bhiqHId?"}


class Source:
    """Lines of one function for a message in a version, and the names it uses."""

    def __init__(self, message: Any, version: int) -> None:
        self.message = message
        self.schema: Schema = message.schema
        self.version = version
        self.flexible = version in self.schema.flexible
        self.run: list[tuple[str, str]] = []  # format characters of the fixed-size run so far, each with what it holds
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "Malformed": Malformed,
            "BYTES": BYTES,
            "uvarint": encode_unsigned,
            "uvarint_rest": uvarint_rest,
            "string_rest": string_rest,
            "string_prefix": string_prefix,
            "unknown_tags": unknown_tags,
            "put_tags": put_tags,
        }
        self.depth = 0
        self.count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def local(self, name: str) -> str:
        """A local variable that nothing else in the function uses."""
        self.count += 1
        return f"{name}_{self.count}"

    def packer(self, codes: str, method: str) -> tuple[str, int]:
        """The name of a struct's `pack` or `unpack_from` for these format characters, and its size."""
        name = f"{method}_{codes.replace('?', 'bool')}"
        if name not in self.names:
            self.names[name] = getattr(Struct(f">{codes}"), method)
        return name, calcsize(f">{codes}")

    def constant(self, name: str, value: object) -> str:
        assert self.names.setdefault(name, value) is value, name
        return name

    def compiled(self, name: str, title: str) -> Callable[..., Any]:
        """The function of that name; `title` is its file in a traceback."""
        text = "\n".join(self.lines) + "\n"
        file = f"<odradek.wire {title}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), self.names)
        function: Callable[..., Any] = self.names[name]
        return function
