"""`odradek cluster` where there is no cluster to speak of; with one, it is tried in tests/cluster."""

from pathlib import Path

from tests.cli.program import odradek, started


def test_the_only_voter_is_not_taken_out(tmp_path: Path) -> None:
    with started(tmp_path / "data") as node:
        done = odradek("cluster", "decommission", "1", "--bootstrap-server", f"127.0.0.1:{node.port}")
    assert done.returncode == 1
    assert done.stderr.startswith("odradek: node 1 is the only voter of the metadata quorum: start another controller")


def test_what_is_no_address_is_said_so() -> None:
    done = odradek("cluster", "decommission", "1", "--bootstrap-server", "somewhere")
    assert (done.returncode, done.stderr) == (
        1,
        "odradek: --bootstrap-server: 'somewhere' is no address; write HOST:PORT, several with commas\n",
    )
