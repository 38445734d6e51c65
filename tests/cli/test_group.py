"""`odradek group` as a person uses it, on a node and on Apache Kafka."""

import json
from typing import Any

from confluent_kafka import TopicPartition

from tests.cli.program import odradek, typed
from tests.clients.confluent import consuming, create, fill, patiently, rows
from tests.clients.waiting import until
from tests.kafka.broker import Broker

RECORDS = 10


def commit(server: Broker, name: str, offset: int) -> None:
    with consuming(server.bootstrap, name) as consumer:
        patiently(lambda: consumer.commit(offsets=[TopicPartition(name, 0, offset)], asynchronous=False))


def described(server: Broker, name: str) -> dict[str, Any]:
    done = odradek("group", "describe", name, "--json", "--bootstrap", server.bootstrap)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_lag_is_shown_for_each_partition(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 2)
    fill(server.bootstrap, name, RECORDS)
    commit(server, name, 4)
    listed = odradek("group", "list", "--json", "--state", "Empty", "--bootstrap", server.bootstrap)
    assert {"group": name, "type": "classic", "state": "Empty", "coordinator": 1} in map(json.loads, listed.stdout.splitlines())
    found = described(server, name)
    assert (found["state"], found["lag"], found["members"]) == ("Empty", RECORDS - 4, [])
    assert [(each["partition"], each["committed"], each["end"], each["lag"]) for each in found["partitions"]] == [
        (0, 4, RECORDS, RECORDS - 4)
    ]
    shown = odradek("group", "describe", name, "--bootstrap", server.bootstrap).stdout
    assert shown.startswith(f"group {name}: Empty, classic, {RECORDS - 4} records behind\n")


def test_members_are_shown_and_keep_a_group_from_being_reset_or_deleted(server: Broker, name: str) -> None:
    at = ("--bootstrap", server.bootstrap)
    create(server.bootstrap, name)
    fill(server.bootstrap, name, RECORDS)
    with consuming(server.bootstrap, name, client_id="reader") as consumer:
        consumer.subscribe([name])
        rows(consumer, RECORDS)
        found = described(server, name)
        (member,) = found["members"]
        assert (member["client"], member["partitions"]) == ("reader", [f"{name}-0"])
        assert [(each["committed"], each["lag"], each["member"]) for each in found["partitions"]] == [
            (None, None, member["member"])
        ]
        for arguments in (("reset", name, "--to-earliest"), ("delete", name)):
            refused = odradek("group", *arguments, "--yes", *at)
            assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
            assert "members first; `odradek group describe" in refused.stderr


def test_a_reset_is_shown_before_it_is_done(server: Broker, name: str) -> None:
    at = ("--bootstrap", server.bootstrap)
    create(server.bootstrap, name)
    fill(server.bootstrap, name, RECORDS)
    commit(server, name, 4)
    reset = ("group", "reset", name)

    def committed() -> int:
        offset: int = described(server, name)["partitions"][0]["committed"]
        return offset

    dry = odradek(*reset, "--to-latest", "--dry-run", "--json", *at)
    assert json.loads(dry.stdout) == {"group": name, "topic": name, "partition": 0, "from": 4, "to": RECORDS}
    refused = odradek(*reset, "--to-latest", *at)
    assert refused.stdout.splitlines()[1].split() == [name, "0", "4", str(RECORDS), f"+{RECORDS - 4}"]
    assert (refused.returncode, committed()) == (1, 4)
    assert typed(*reset, "--to-latest", *at, answer="no\n").returncode == 1
    assert committed() == 4
    done = typed(*reset, "--to-latest", *at, answer="y\n")
    assert (done.returncode, committed()) == (0, RECORDS), done.stderr
    for how, offset in (
        (("--shift-by", "-3"), RECORDS - 3),
        (("--to-offset", "99"), RECORDS),
        (("--to-time", "2020-01-01"), 0),
        (("--to-time", "2099-01-01T00:00+02:00"), RECORDS),
        (("--to-earliest",), 0),
        (("--to-offset", "5", "--topic", f"{name}:0"), 5),
    ):
        done_so = odradek(*reset, *how, "--yes", *at)
        assert (done_so.returncode, committed()) == (0, offset), done_so.stderr


def test_a_reset_makes_a_group_where_topics_are_named(server: Broker, name: str) -> None:
    at = ("--bootstrap", server.bootstrap)
    create(server.bootstrap, name, 2)
    fill(server.bootstrap, name, RECORDS)
    unknown = odradek("group", "reset", name, "--to-latest", "--yes", *at)
    assert unknown.returncode == 1
    assert f"there is no group {name}" in unknown.stderr
    wrong = odradek("group", "reset", name, "--topic", f"{name}:7", "--to-latest", "--yes", *at)
    assert wrong.stderr == f"odradek: topic {name} has no partition 7: it has 2, from 0 on\n"

    def made() -> bool:
        return odradek("group", "reset", name, "--topic", name, "--to-latest", "--yes", *at).returncode == 0

    until(made, "the coordinator")
    assert [each["committed"] for each in described(server, name)["partitions"]] == [RECORDS, 0]


def test_a_group_is_deleted_when_somebody_says_so(server: Broker, name: str) -> None:
    at = ("--bootstrap", server.bootstrap)
    create(server.bootstrap, name)
    commit(server, name, 0)
    refused = odradek("group", "delete", name, *at)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    done = odradek("group", "delete", name, "--yes", *at)
    assert done.stdout == f"group {name} is deleted\n", done.stderr
    gone = odradek("group", "describe", name, *at)
    assert gone.returncode == 1
    assert f"there is no group {name}" in gone.stderr


def test_what_is_no_time_or_number_is_refused() -> None:
    for how in (("--to-time", "soon"), ("--to-offset", "x"), (), ("--to-latest", "--to-earliest"), ("--topic", ":1")):
        assert odradek("group", "reset", "g", *how).returncode == 2
