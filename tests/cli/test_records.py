"""`odradek produce` and `odradek consume` as a person uses them, on a node and on Apache Kafka."""

import asyncio
import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.consume import show_records
from odradek.client.consumer import Consumer
from odradek.client.records import TopicPartition
from tests.cli.program import command, odradek
from tests.clients.confluent import create, fill, read
from tests.clients.confluent_transactor import ConfluentClient
from tests.clients.transactions import transacting
from tests.clients.waiting import until
from tests.kafka.broker import Broker


def made(server: Broker, name: str, partitions: int = 1) -> tuple[str, str]:
    """Makes a topic that commands see; gives the option that says where."""
    at = ("--bootstrap", server.bootstrap)
    create(server.bootstrap, name, partitions)
    until(lambda: odradek("topic", "describe", name, *at).returncode == 0, "the topic")
    return at


def consumed(name: str, *arguments: str) -> list[dict[str, Any]]:
    done = odradek("consume", name, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [*map(json.loads, done.stdout.splitlines())]


@pytest.mark.parametrize("codec", ["auto", "none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_become_records_in_every_codec(server: Broker, name: str, codec: str) -> None:
    at = made(server, name)
    done = odradek("produce", name, "--compression", codec, *at, given="one\ntwo\r\n\nthree")
    assert (done.returncode, done.stderr) == (0, f"4 records in {name}\n")
    assert [each.value() for each in read(server.bootstrap, name, 4)] == [b"one", b"two", b"", b"three"]


def test_keys_headers_and_partitions_are_as_given(server: Broker, name: str) -> None:
    at = made(server, name, 3)
    more = ("--key-separator", "\\t", "--header", "a=1", "--header", "b=x=y", "--partition", "2", "--acks", "1")
    assert odradek("produce", name, *more, *at, given="me\thello\tyou\n").returncode == 0
    (found,) = consumed(name, "--from-beginning", *at)
    assert (found["partition"], found["key"], found["value"]) == (2, "me", "hello\tyou")
    assert found["headers"] == [["a", "1"], ["b", "x=y"]]


def test_what_consume_writes_as_json_produce_takes(server: Broker, name: str, tmp_path: Path) -> None:
    at = made(server, name, 2)
    lines = [
        {"key": "k", "value": "text", "headers": [["h", None], ["i", {"base64": "/w=="}]], "timestamp_ms": 4711, "partition": 1},
        {"key": {"base64": "/wA="}, "value": None},
        {"value": {"nested": [1, 2.5, True]}, "headers": {"j": "2"}},
    ]
    (tmp_path / "lines").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert odradek("produce", name, str(tmp_path / "lines"), "--json", *at).returncode == 0
    again = odradek("produce", name, "--json", *at, given=odradek("consume", name, "--from-beginning", "--json", *at).stdout)
    assert again.stderr == f"3 records in {name}\n"
    found = consumed(name, "--from-beginning", *at)
    assert len(found) == 6
    first = [each for each in found if each["key"] == "k"]
    assert [each["headers"] for each in first] == [[["h", None], ["i", {"base64": "/w=="}]]] * 2
    assert [(each["timestamp_ms"], each["partition"]) for each in first] == [(4711, 1)] * 2
    assert [each["value"] for each in found if each["key"] == {"base64": "/wA="}] == [None, None]
    assert [each["value"] for each in found if each["headers"] == [["j", "2"]]] == ['{"nested":[1,2.5,true]}'] * 2


def test_a_line_that_is_no_record_is_named_and_those_before_it_are_written(node: Broker, name: str) -> None:
    at = made(node, name)
    for more, given in (
        (("--json",), '{"value":"a"}\n{"value":"b"}\nnot JSON\n{"value":"c"}\n'),
        (("--key-separator", ":"), "k:a\nk:b\nno key\nk:c\n"),
    ):
        done = odradek("produce", name, *more, *at, given=given)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert done.stderr.startswith("odradek: line 3: it ")
        assert "2 records before it are written" in done.stderr
    assert [each.value() for each in read(node.bootstrap, name, 4)] == [b"a", b"b"] * 2


def test_what_cannot_be_produced_or_consumed_is_said_with_what_to_do(node: Broker, name: str) -> None:
    at = made(node, name)
    for command_name in ("produce", "consume"):
        unknown = odradek(command_name, f"{name}x", *at, given="a\n")
        assert (unknown.returncode, unknown.stderr) == (1, f"odradek: there is no topic {name}x; did you mean {name}?\n")
        beyond = odradek(command_name, name, "--partition", "7", *at, given="a\n")
        assert beyond.stderr == f"odradek: topic {name} has no partition 7: it has 1, from 0 on\n"
    missing = odradek("produce", name, "/no/such/file", *at)
    assert missing.stderr.startswith("odradek: /no/such/file: cannot be read")
    for arguments in (
        ["produce", name, "--json", "--key", "a"],
        ["produce", name, "--key", "a", "--key-separator", ":"],
        ["consume", name, "--group", "g", "--from-offset", "3"],
        ["consume", name, "--from-time", "soon"],
    ):
        assert odradek(*arguments, *at).returncode == 2


def test_what_is_typed_is_written_before_the_next_line(node: Broker, name: str) -> None:
    at = made(node, name)
    ours, terminal = pty.openpty()
    with subprocess.Popen(command("produce", name, *at), stdin=terminal, stderr=subprocess.PIPE) as process:
        os.close(terminal)
        os.write(ours, b"first\n")
        assert [each.value() for each in read(node.bootstrap, name, 1)] == [b"first"]
        os.write(ours, b"\x04")
        assert process.wait() == 0
        assert process.stderr is not None
        assert process.stderr.read().endswith(f"1 record in {name}\n".encode())
    os.close(ours)


def test_records_are_shown_from_where_one_says(server: Broker, name: str) -> None:
    at = made(server, name)
    fill(server.bootstrap, name, 10)

    def offsets(*arguments: str) -> list[int]:
        return [each["offset"] for each in consumed(name, *arguments, *at)]

    assert offsets("--from-beginning") == [*range(10)]
    assert offsets("--from-offset", "7") == [7, 8, 9]
    assert offsets("--from-offset", "-2") == [8, 9]
    assert offsets("--from-offset", "99") == []
    assert offsets("--from-time", "2020-01-01", "--limit", "3") == [0, 1, 2]
    assert offsets("--from-time", "2099-01-01") == []
    assert odradek("consume", name, "--from-offset", "8", "--format", "raw", *at).stdout == "8\n9\n"
    table = odradek("consume", name, "--from-offset", "9", *at).stdout.splitlines()
    assert table[0].split() == ["partition", "offset", "time", "key", "headers", "value"]
    assert (table[1].split()[:2], table[1].split()[-2:]) == (["0", "9"], ["2", "9"])


def test_it_ends_where_the_topic_ended_when_it_began(node: Broker, name: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    made(node, name)
    fill(node.bootstrap, name, 3)

    async def run() -> None:
        place = TopicPartition(name, 0)
        async with Consumer(bootstrap=node.bootstrap) as consumer:
            await consumer.assign({place: 0})
            fill(node.bootstrap, name, 5)  # after the end was looked at
            await show_records(consumer, {place: 3}, form="raw", limit=None, is_group=False)

    asyncio.run(run())
    assert capsysbinary.readouterr().out == b"0\n1\n2\n"


def test_it_ends_behind_a_transaction_too(server: Broker, name: str) -> None:
    at = made(server, name)
    with transacting(ConfluentClient(), server.bootstrap, name) as transactor:
        for end in (transactor.commit, transactor.abort):
            transactor.begin()
            transactor.send(name, 0, ["a"])
            end()
    until(lambda: [each["value"] for each in consumed(name, "--from-beginning", *at)] == ["a"], "what was committed")


def test_a_group_goes_on_where_it_was_and_its_lag_is_seen(server: Broker, name: str) -> None:
    at = made(server, name, 2)
    fill(server.bootstrap, name, 5)

    def lag() -> int:
        found: int = json.loads(odradek("group", "describe", name, "--json", *at).stdout)["lag"]
        return found

    assert len(consumed(name, "--group", name, "--from-beginning", "--limit", "2", *at)) == 2
    assert lag() == 3
    assert [each["offset"] for each in consumed(name, "--group", name, *at)] == [2, 3, 4]
    assert lag() == 0
    fill(server.bootstrap, name, 1, partition=1)
    assert lag() == 1


def test_who_follows_sees_what_comes_until_interrupted(node: Broker, name: str) -> None:
    at = made(node, name)
    fill(node.bootstrap, name, 2)
    following = command("consume", name, "--from-beginning", "--follow", "--format", "raw", *at)
    with subprocess.Popen(following, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"0\n", b"1\n"]
        fill(node.bootstrap, name, 1)
        assert process.stdout.readline() == b"0\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() == b""


def test_who_has_seen_enough_of_a_topic_is_left_in_peace(node: Broker, name: str) -> None:
    at = made(node, name)
    fill(node.bootstrap, name, 20_000)
    reading = command("consume", name, "--from-beginning", "--json", *at)
    with subprocess.Popen(reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        process.wait()
        assert process.stderr.read() == b""
