"""Protocol Buffers: each value is one message, whose descriptor came with the options.

Invariants
 1. a decoder has descriptors of its own: those of other schemas, or of the process, do not meet them
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from odradek.client.errors import InvalidOption
from odradek.spark.formats import Bad
from odradek.spark.formats.protobuf_schema import read_message
from odradek.spark.formats.rows import decode_rows
from odradek.spark.formats.schema import arrow_type, content


class ProtobufDecoder:
    def __init__(self, descriptors: bytes, message: str) -> None:
        self.descriptors = descriptors
        self.message = message
        descriptor = _descriptor(descriptors, message)
        self._class = GetMessageClass(descriptor)
        self.data_type, self._convert = read_message(descriptor)

    @classmethod
    def of(cls, option: str, message: str) -> "ProtobufDecoder":
        data = content(option)
        if not option.startswith("@"):
            try:
                data = base64.b64decode(b"".join(data.split()), validate=True)
            except binascii.Error:
                raise InvalidOption(
                    "the schema is no base64: give @ and the path of a FileDescriptorSet, or its base64"
                ) from None
        return cls(data, message)

    def __reduce__(self) -> tuple[Callable[..., "ProtobufDecoder"], tuple[bytes, str]]:
        return ProtobufDecoder, (self.descriptors, self.message)

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[Bad]]:
        return decode_rows(values.to_pylist(), self._read, arrow_type(self.data_type))

    def _read(self, value: bytes) -> Any:
        try:
            found = self._class.FromString(value)
        except DecodeError as error:
            raise ValueError(f"not a {self.message}: {error}") from error
        if not found.IsInitialized():
            raise ValueError(f"a {self.message} that lacks a required field")
        return self._convert(found)


def _descriptor(data: bytes, message: str) -> Descriptor:
    pool = DescriptorPool()
    try:
        files = FileDescriptorSet.FromString(data).file
    except DecodeError:
        raise InvalidOption("the schema is no FileDescriptorSet: make one with protoc --descriptor_set_out") from None
    for file in files:
        try:
            pool.Add(file)
        except TypeError as error:
            problem = f"{file.name} cannot be used ({error})"
            raise InvalidOption(f"{problem}: make the set with protoc --include_imports --descriptor_set_out") from error
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        known = [f"{file.package}.{kind.name}".lstrip(".") for file in files for kind in file.message_type]
        raise InvalidOption(f"message {message!r} is not in the schema, which has {', '.join(known) or 'none'}") from None
