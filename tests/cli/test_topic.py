"""`odradek topic` as a person uses it, on a node and on Apache Kafka."""

import json

from tests.cli.program import odradek, typed
from tests.clients.confluent import create, fill
from tests.clients.waiting import until
from tests.kafka.broker import Broker

ANSI = b"\x1b["


def topics(server: Broker) -> dict[str, dict[str, object]]:
    done = odradek("topic", "list", "--json", "--bootstrap", server.bootstrap)
    assert done.returncode == 0, done.stderr
    return {each["topic"]: each for each in map(json.loads, done.stdout.splitlines())}


def test_a_topic_lives_from_its_creation_to_its_deletion(server: Broker, name: str) -> None:
    at = ("--bootstrap", server.bootstrap)
    made = odradek("topic", "create", name, "--partitions", "2", "--copies", "1", "-o", "retention.ms=4711", *at)
    assert made.stdout == f"topic {name} is created: 2 partitions, 1 copy\n", made.stderr
    until(lambda: name in topics(server), "the topic")
    assert topics(server)[name] == {"topic": name, "partitions": 2, "copies": 1, "unhealthy": 0, "is_internal": False}
    fill(server.bootstrap, name, 3, partition=1)
    found = json.loads(odradek("topic", "describe", name, "--json", *at).stdout)
    assert found["settings"] == {"retention.ms": "4711"}
    spans = [(part["leader"], part["first_offset"], part["end_offset"]) for part in found["partitions"]]
    assert spans == [(1, 0, 0), (1, 0, 3)]
    shown = odradek("topic", "describe", name, *at).stdout.splitlines()
    assert shown[1:4] == ["  retention.ms=4711", "", "partition  leader  replicas  in sync  first offset  end offset"]
    changed = odradek("topic", "alter", name, "--reset", "retention.ms", "-o", "segment.ms=5000", *at)
    assert changed.stdout == f"2 settings of topic {name} changed\n", changed.stderr

    def settings() -> object:
        return json.loads(odradek("topic", "describe", name, "--json", *at).stdout)["settings"] == {"segment.ms": "5000"}

    until(settings, "the settings")
    gone = odradek("topic", "delete", name, "--yes", *at)
    assert gone.stdout == f"topic {name} is deleted\n", gone.stderr
    until(lambda: name not in topics(server), "its end")


def test_nothing_is_destroyed_unless_somebody_says_so(node: Broker, name: str) -> None:
    at = ("--bootstrap", node.bootstrap)
    create(node.bootstrap, name)
    fill(node.bootstrap, name, 2)
    refused = odradek("topic", "delete", name, *at)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"odradek: Delete {name} with 2 records, for good? Nobody is there to answer: say --yes if you are sure\n"
    )
    for answer in ("n\n", "\n", "yesterday\n"):
        denied = typed("topic", "delete", name, *at, answer=answer)
        assert denied.returncode == 1
        assert denied.stderr.endswith(b"odradek: nothing was changed\n")
    assert name in topics(node)
    assert typed("topic", "delete", name, *at, answer="y\n").returncode == 0
    assert name not in topics(node)


def test_partitions_are_added_when_somebody_says_so(node: Broker, name: str) -> None:
    at = ("--bootstrap", node.bootstrap)
    create(node.bootstrap, name, 2)
    refused = odradek("topic", "alter", name, "--partitions", "3", *at)
    assert refused.returncode == 1
    assert "Keys go to other partitions from then on" in refused.stderr
    assert odradek("topic", "alter", name, "--partitions", "3", "--yes", *at).returncode == 0
    fewer = odradek("topic", "alter", name, "--partitions", "2", "--yes", *at)
    assert fewer.stderr == f"odradek: topic {name} has 3 partitions: give more with --partitions, or leave it out\n"
    assert odradek("topic", "alter", name, *at).returncode == 2


def test_errors_are_one_line_that_says_what_to_do(server: Broker, name: str) -> None:
    at = ("--bootstrap", server.bootstrap)
    create(server.bootstrap, name)
    until(lambda: name in topics(server), "the topic")
    for command in ("describe", "delete", "alter"):
        more = ("-o", "retention.ms=1") if command == "alter" else ()
        unknown = odradek("topic", command, f"{name}x", *more, *at)
        assert (unknown.returncode, unknown.stderr) == (1, f"odradek: there is no topic {name}x; did you mean {name}?\n")
    twice = odradek("topic", "create", name, *at)
    assert (twice.returncode, twice.stderr.count("\n")) == (1, 1)
    assert "TOPIC_ALREADY_EXISTS" in twice.stderr
    assert "choose another name" in twice.stderr
    assert odradek("topic", "create", name, "--if-not-exists", *at).returncode == 0
    many = odradek("topic", "create", f"{name}-2", "--copies", "5", *at)
    assert (many.returncode, many.stderr.count("\n")) == (1, 1)
    assert many.stderr.endswith("give fewer copies with --copies, or start more brokers\n")
    tried = odradek("topic", "create", f"{name}-2", "--dry-run", *at)
    assert tried.stdout.startswith(f"topic {name}-2 could be created"), tried.stderr
    assert f"{name}-2" not in topics(server)


def test_where_no_broker_listens_that_is_said_with_what_to_do() -> None:
    for arguments in (["topic", "list"], ["group", "list"], ["cluster", "describe"], ["produce", "x"], ["consume", "x"]):
        done = odradek(*arguments, "--bootstrap", "127.0.0.1:1")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "odradek: --bootstrap: no broker answers (127.0.0.1:1 cannot be connected to: Connection refused): "
            "start one with `odradek start`, or name brokers that are running\n"
        )


def test_the_environment_says_where_the_cluster_is(node: Broker) -> None:
    assert odradek("topic", "list", ODRADEK_BOOTSTRAP=node.bootstrap).returncode == 0
    assert odradek("topic", "list", ODRADEK_BOOTSTRAP="127.0.0.1:1").returncode == 1


def test_colours_are_for_terminals(node: Broker, name: str) -> None:
    create(node.bootstrap, name)
    at = ("--bootstrap", node.bootstrap)
    assert ANSI in typed("topic", "list", *at, answer="").stdout
    assert ANSI.decode() not in odradek("topic", "list", *at).stdout


def test_rich_is_imported_for_tables_alone(node: Broker, name: str) -> None:
    create(node.bootstrap, name)
    at = ("--bootstrap", node.bootstrap)
    for more, is_table in (((), True), (("--json",), False)):
        done = odradek("topic", "list", *more, *at, python=("-X", "importtime"))
        assert any(line.rpartition("|")[2].strip() == "rich.table" for line in done.stderr.splitlines()) == is_table
