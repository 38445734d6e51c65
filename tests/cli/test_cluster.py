"""`odradek cluster` where there is no cluster to speak of; with one, it is tried in tests/cluster."""

import json
from pathlib import Path

from tests.cli.program import odradek, started
from tests.kafka.broker import Broker


def test_the_only_voter_is_not_taken_out(tmp_path: Path) -> None:
    with started(tmp_path / "data") as node:
        done = odradek("cluster", "decommission", "1", "--bootstrap-server", f"127.0.0.1:{node.port}")
    assert done.returncode == 1
    assert done.stderr.startswith("odradek: node 1 is the only voter of the metadata quorum: start another controller")


def test_what_is_no_address_is_said_so() -> None:
    done = odradek("cluster", "decommission", "1", "--bootstrap-server", "some:where")
    assert done.returncode == 1
    assert done.stderr == (
        "odradek: --bootstrap: 'some:where' is no broker's address: it is written host:port, "
        "and several have commas between them\n"
    )


def test_a_cluster_is_described_for_people_and_for_programs(server: Broker) -> None:
    at = ("--bootstrap", server.bootstrap)
    found = json.loads(odradek("cluster", "describe", "--json", *at).stdout)
    assert (found["controller"], found["unhealthy"]) == (1, [])
    (node,) = found["nodes"]
    assert (node["node"], node["address"], node["state"]) == (1, server.bootstrap, "up")
    assert node["is_broker"]
    assert node["is_controller"]
    shown = odradek("cluster", "describe", *at).stdout
    assert "broker, controller, voter" in shown
    assert shown.endswith("All partitions are healthy.\n")
