"""The table, what is made of it, and when: classes, stubs, generated code."""

import keyword
import linecache
import subprocess
import sys
import traceback

import pytest

from odradek.wire import messages
from odradek.wire.message import Message
from odradek.wire.messages import FetchResponse, HeartbeatRequest, message_class
from odradek.wire.source import PACK, PACKERS_MAX, UNPACK, Packers
from odradek.wire.table import FIXED, Field, Schema, attribute, blocks, parse_field, schema, versions_of
from tools.wire_stubs import STUBS, stubs


def all_parts() -> list[tuple[Schema, Schema]]:
    """Every message with itself and each of its structs."""
    return [(schema(name), part) for name in blocks() for part in (schema(name), *schema(name).structs.values())]


def test_the_stubs_say_what_the_table_says() -> None:
    assert STUBS.read_text(encoding="utf-8") == stubs(), "run python -m tools.wire_stubs"


def test_the_table_has_the_messages_of_4_4() -> None:
    kinds = [schema(name).kind for name in blocks()]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "request": 91,
        "response": 91,
        "data": 14,
        "header": 2,
        "coordinator-key": 25,
        "coordinator-value": 25,
        "metadata": 31,
    }


def test_field_names_are_usable_in_python_and_meet_nothing_of_the_classes() -> None:
    taken = {name for name in vars(Message) if not name.startswith("__")} | {"unknown_tags"}
    for message, part in all_parts():
        attributes = [field.attribute for field in part.fields]
        assert len(attributes) == len(set(attributes)), part.name
        for name in attributes:
            assert name.isidentifier(), (message.name, name)
            assert not keyword.iskeyword(name), (message.name, name)
            assert name not in taken, (message.name, name)


def test_tags_of_a_struct_differ_and_stand_in_flexible_versions_only() -> None:
    for message, part in all_parts():
        for version in message.versions:
            tags = [field.tag for field in part.fields if version in field.tagged]
            assert len(tags) == len(set(tags)), part.name
            assert not tags or version in message.flexible, (message.name, version)


def test_requests_and_responses_are_pairs_of_the_same_versions() -> None:
    for name in blocks():
        if schema(name).kind == "request":
            response = schema(f"{name.removesuffix('Request')}Response")
            request = schema(name)
            assert (request.key, request.versions, request.flexible) == (response.key, response.versions, response.flexible)


def test_field_names_become_attributes() -> None:
    assert attribute("KRaftVersion") == "kraft_version"
    assert attribute("V3AndBelowTransactionalId") == "v3_and_below_transactional_id"
    assert attribute("timeoutMs") == "timeout_ms"
    assert attribute("Isr") == "isr"


def test_versions_are_read() -> None:
    assert (versions_of("3"), versions_of("0-2"), versions_of("none")) == (range(3, 4), range(3), range(0))
    assert 32767 in versions_of("9+")
    assert 8 not in versions_of("9+")


def test_a_line_of_the_table_is_a_field() -> None:
    assert parse_field("Ids  []uuid  null 2+  1+  tag 3 1+  = null  ignorable") == Field(
        name="Ids",
        type="uuid",
        is_array=True,
        versions=versions_of("1+"),
        nullable=versions_of("2+"),
        tag=3,
        tagged=versions_of("1+"),
        default=None,
        ignorable=True,
        may_be_compact=True,
    )
    with pytest.raises(ValueError, match="sometimes"):
        parse_field("Ids  int32  0+  sometimes")
    with pytest.raises(AssertionError, match="not at all"):
        parse_field("Ids  int32  0+  not at all")


def test_an_unknown_message_is_no_attribute_of_the_module() -> None:
    with pytest.raises(AttributeError, match="the table knows no message 'FetchReqest'"):
        message_class("FetchReqest")
    assert not hasattr(messages, "_private")
    assert "FetchRequest" in dir(messages)
    assert messages.FetchRequest is message_class("FetchRequest")


def test_importing_the_package_imports_nothing_and_importing_messages_reads_nothing() -> None:
    program = """
import sys
before = set(sys.modules)
import odradek.wire
assert set(sys.modules) - before <= {"odradek", "odradek.wire"}, set(sys.modules) - before
from odradek.wire import messages, table
assert table.blocks.cache_info().currsize == 0
assert not {"numpy", "asyncio", "odradek.wire.decoder", "odradek.wire.encoder", "odradek.wire.careful"} & set(sys.modules)
messages.HeartbeatRequest
assert table.schema.cache_info().currsize == 1
assert not messages.HeartbeatRequest.decoders
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_codec_is_compiled_once() -> None:
    HeartbeatRequest().encode(4)
    encoder = HeartbeatRequest.encoders[4]
    HeartbeatRequest().encode(4)
    assert HeartbeatRequest.encoders[4] is encoder


def test_generated_code_is_readable_in_a_traceback() -> None:
    FetchResponse().encode(17)
    text = "".join(linecache.getlines("<odradek.wire FetchResponse v17 encode>"))
    assert text.startswith("def encode(message):\n    parts = []\n")
    linecache.checkcache()
    try:
        FetchResponse.encoders[17](None)
    except AttributeError as error:
        assert "message.responses" in "".join(traceback.format_exception(error))  # noqa: PT017


def test_the_tables_of_packers_are_bounded() -> None:
    packers = Packers("i", "pack")
    for count in range(PACKERS_MAX + 100):
        assert packers[count](*range(count)) == b"".join(number.to_bytes(4, "big") for number in range(count))
    assert len(packers) == PACKERS_MAX
    codes = {code for kind, code in FIXED.items() if kind != "uuid"}
    assert PACK.keys() == UNPACK.keys() == codes


def test_values_say_what_they_are_without_their_defaults() -> None:
    assert repr(HeartbeatRequest(group_id="g")) == "HeartbeatRequest(group_id='g')"
    assert FetchResponse.PartitionData.__qualname__ == "FetchResponse.PartitionData"
    assert FetchResponse.PartitionData.__module__ == "odradek.wire.messages"
