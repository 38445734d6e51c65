"""Apache Kafka's own generated classes are the oracle: the bytes of every message and record, its defaults, versions, errors.

A value goes to Kafka as JSON, its class writes the bytes, and ours must be the same; then we read Kafka's bytes. Left out by
name is what 4.3.1 does not have: see kafka_json.py.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire.apis import API_VERSIONS, APIS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import message_class
from odradek.wire.table import NIL_UUID, Field, blocks, schema
from tests.kafka.oracle import Oracle
from tests.wire.kafka_json import FIELDS_NOT_IN_4_3_1, NEWEST_IN_4_3_1, NOT_IN_4_3_1, OLD_NAMES, to_kafka
from tests.wire.values import all_versions, values

KNOWN = [
    (name, version)
    for name, version in all_versions()
    if name not in NOT_IN_4_3_1 and version <= NEWEST_IN_4_3_1.get(name, version)
]
ERRORS_OF_4_4 = {"GROUP_DELETION_FAILED", "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", "CONTROLLER_ID_NOT_REGISTERED"}
PRODUCE = 0


def test_kafka_has_every_message_and_version_but_those_named(oracle: Oracle) -> None:
    theirs = oracle.call("Messages.versions", names=list(blocks()))
    assert {name for name, versions in theirs.items() if versions is None} == NOT_IN_4_3_1
    for name, versions in theirs.items():
        if versions is not None:
            ours = schema(name).versions
            assert versions == [ours[0], NEWEST_IN_4_3_1.get(name, ours[-1])], name
    assert len(KNOWN) == 728


def only_known_fields(part: Any, field: Field) -> st.SearchStrategy[Any] | None:
    return st.just(field.default) if (part.name, field.name) in FIELDS_NOT_IN_4_3_1 else None


@pytest.mark.parametrize(("name", "version"), KNOWN)
@settings(max_examples=4)
@given(data=st.data())
def test_we_write_the_bytes_that_kafka_writes_and_read_them_back(
    name: str, version: int, oracle: Oracle, data: st.DataObject
) -> None:
    value = data.draw(values(name, version, narrow=only_known_fields))
    expected = bytes.fromhex(oracle.call("Messages.encode", message=name, version=version, value=to_kafka(value, version)))
    assert value.to_bytes(version) == expected
    assert message_class(name).decode(expected, version) == value


def plain(field: Field) -> object:
    """A default, as the Java side tells it."""
    if field.default is ...:
        return "struct"
    if field.default == () or (field.default == b"" and field.type != "string"):
        return "empty"
    return "AAAAAAAAAAAAAAAAAAAAAA" if field.default == NIL_UUID else field.default


# Kafka has null there, which it cannot write; and an empty ByteBuffer where it wants no copy, told as an empty string.
OTHER_DEFAULTS = {
    ("FetchSnapshotResponse", "PartitionSnapshot", "UnalignedRecords"): None,
    ("ShareFetchResponse", "PartitionData", "Records"): None,
    ("EnvelopeRequest", "EnvelopeRequest", "RequestData"): "",
    ("PushTelemetryRequest", "PushTelemetryRequest", "Metrics"): "",
}


def test_a_field_that_nobody_set_has_the_value_that_it_has_in_kafka(oracle: Oracle) -> None:
    compared = 0
    for name in blocks().keys() - NOT_IN_4_3_1:
        table = schema(name)
        newest = NEWEST_IN_4_3_1.get(name, table.versions[-1])
        theirs = oracle.call("Messages.defaults", message=name)
        for part in (table, *(struct for struct in table.structs.values() if newest in struct.versions)):
            found = theirs["" if part is table else part.name]
            for field in part.fields:
                if field.versions[0] <= newest and (part.name, field.name) not in FIELDS_NOT_IN_4_3_1:
                    old = OLD_NAMES.get((part.name, field.name), field.name)
                    expected = OTHER_DEFAULTS.get((name, part.name, field.name), plain(field))
                    assert found[old[0].lower() + old[1:]] == expected, (name, part.name, field.name)
                    compared += 1
    assert compared > 1700


def test_we_advertise_what_4_3_1_advertises_and_produce_from_0(oracle: Oracle) -> None:
    theirs = {int(key): api for key, api in oracle.call("Messages.apis").items() if api["latest"] >= 0}
    ours = {key: [api.advertised[0], api.advertised[-1]] for key, api in APIS.items() if api.advertised}
    assert ours.pop(PRODUCE) == [0, 13]
    assert ours == {key: [api["oldest"], api["latest"]] for key, api in theirs.items() if key != PRODUCE}


def test_apis_have_the_names_listeners_and_headers_that_they_have_in_kafka(oracle: Oracle) -> None:
    theirs = oracle.call("Messages.apis")
    for api in APIS.values():
        if api.advertised:
            found = theirs[str(api.key)]
            assert (found["name"], frozenset(found["listeners"])) == (api.name, api.listeners)
            for version, headers in found["headers"].items():
                number = int(version)
                assert headers == [api.request_header_version(number), api.response_header_version(number)]
    assert {APIS[API_VERSIONS].response_header_version(version) for version in APIS[API_VERSIONS].versions} == {0}


def test_errors_have_the_codes_of_kafka_and_are_retriable_as_there(oracle: Oracle) -> None:
    theirs = oracle.call("Messages.errors")
    ours = {error.name: [error.value, error.retriable] for error in ErrorCode if error.name not in ERRORS_OF_4_4}
    assert ours == theirs
