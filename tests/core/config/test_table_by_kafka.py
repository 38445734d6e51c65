"""The table of keys is that of Apache Kafka: names, types, defaults, validity, what may change while running, synonyms."""

import re
from typing import Any

import pytest

from odradek.core.config.key import InvalidConfig, Key
from odradek.core.config.table import sections
from tests.kafka.oracle import Oracle

PROBES = {
    "boolean": [
        "true", "False", " TRUE ", "", "1", "yes",
    ],
    "double": [
        "0", "0.5", "1", "1.0000001", "-1", "-0.1", "1e7", "9999999", "0.001", "0.00099", "1e400", "NaN", "Infinity",
        "-Infinity", "1d", ".5", "5.", "0x1p3", "0x1", "1_0", "", "x", "1e", "123456789.125", "-0.0", "1e22",
    ],
    "string": [
        "", " ", "a", " a ", "producer", "ZSTD", "zstd", "uncompressed", "none", "CreateTime", "createtime", "required",
        "SSL", "ssl", "disabled", "DOWNGRADE", "es256", "latest", "LATEST", "earliest", "by_duration:PT1H",
        "by_duration:pt2h-1m", "by_duration:P1D", "by_duration:P1DT", "by_duration:P", "by_duration:PT",
        "by_duration:-PT1H", "by_duration:PT-1H", "by_duration:+PT1H", "by_duration:PT1.5S", "by_duration:PT1.S",
        "by_duration:PT0.1234567890S", "by_duration:P1Y", "by_duration:PT0S", "read_committed", "READ_COMMITTED",
        "by_duration:", "by_duration:-PT-1H", "\xa0a",
    ],
    "list": [
        "", " ", "a", "a,a", "a,,b", ",", "a,", " a , b ", "a\t,\nb", "delete", "compact,delete", "delete,compact",
        "broker", "controller,broker", "classic", "consumer,classic", "*", "1:2", "1:2,3:4", "1:2,", "1:2,*", "1 :2",
        "a:1", "a:99999", ":1", "[::1]:9", "x y:1", "http://a:1", "a:1,a:1", "a:-1", "1@a:1", "-1@a:1", "1@:1",
        "1@a:99999", "x@a:1", "1@a:1,1@b:2", "1@@a:1", "1@http://a:1", "1@0.0.0.0:0",
    ],
    "password": [
        "", " secret ", "a,b",
    ],
}  # fmt: skip
CLASSES = ("class",)  # whether a Java class exists only Java can say


def probes(key: Key) -> list[str]:
    if key.type not in ("int", "long", "short"):
        return PROBES[key.type]
    bits = {"short": 16, "int": 32, "long": 64}[key.type]
    edges = [0, -1, 2, 2 ** (bits - 1), -(2 ** (bits - 1)), *map(int, re.findall(r"-?\d+", key.validity))]
    numbers = sorted({edge + step for edge in edges for step in (-1, 0, 1)})
    return [*map(str, numbers), "+5", " 7 ", "٣", "1_000", "0x1", "", "1.0", "\u00a07"]


@pytest.fixture(scope="module")
def tables(oracle: Oracle) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = oracle.call("Configs.tables")
    found["broker"] |= found.pop("dynamic")
    return found


@pytest.mark.parametrize("section", ["broker", "topic", "group", "client-metrics"])
def test_keys_types_and_defaults_are_those_of_kafka(tables: dict[str, dict[str, dict[str, Any]]], section: str) -> None:
    ours = {
        name: {"type": key.type, "default": "required" if key.is_required else key.default, "internal": key.is_internal}
        for name, key in sections()[section].items()
    }
    theirs = {name: {what: key[what] for what in ("type", "default", "internal")} for name, key in tables[section].items()}
    assert ours == theirs


@pytest.mark.parametrize("section", ["broker", "topic", "group", "client-metrics"])
def test_a_text_is_read_and_written_and_refused_as_by_kafka(oracle: Oracle, section: str) -> None:
    keys = [key for key in sections()[section].values() if key.type not in CLASSES and not key.is_dynamic_only]
    asked = [(key, text) for key in keys for text in probes(key)]
    answers = oracle.call("Configs.parse", table=section, probes=[(key.name, text) for key, text in asked])
    different = []
    for (key, text), answer in zip(asked, answers, strict=True):
        try:
            ours = {"value": key.format(key.parse(text))}
        except InvalidConfig:
            ours = {}
        theirs = {"value": answer["value"]} if "value" in answer else {}
        if key.is_sensitive:
            ours, theirs = dict.fromkeys(ours), dict.fromkeys(theirs)
        if ours != theirs:
            different.append((key.name, text, ours, answer))
    assert different == []


def test_what_may_change_while_running_is_what_kafka_lets_change(oracle: Oracle) -> None:
    modes = oracle.call("Configs.relations")["modes"]
    keys = sections()["broker"].values()
    assert {key.name: key.mode for key in keys if key.mode != "read-only"} == modes


def test_the_keys_that_stand_behind_others_are_those_of_kafka(oracle: Oracle) -> None:
    relations = oracle.call("Configs.relations")
    topics = {key.name: list(key.synonyms) for key in sections()["topic"].values() if key.synonyms}
    assert topics == relations["topic"]
    groups = {key.name: key.synonyms[0] if key.synonyms else None for key in sections()["group"].values()}
    assert groups == relations["group"]


def test_every_key_is_documented_in_a_sentence() -> None:
    for keys in sections().values():
        for key in keys.values():
            assert re.fullmatch(r"[A-Z`].{20,}[.]", key.documentation), key.name
