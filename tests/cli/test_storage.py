"""`odradek storage`: what it writes is what kafka-storage.sh writes, and what it refuses it says in one line."""

import subprocess
from pathlib import Path

import pytest

from odradek.core.raft.batches import Snapshot, decode_snapshot
from odradek.wire.message import Message
from tests.cli.program import odradek
from tools.kafka_jars import class_path

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
DIRECTORIES = ("JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A", "07R5amHmR32VDA6jHkGbTA")
VOTERS = ",".join(f"{number}@host{number}:909{number}:{directory}" for number, directory in enumerate(DIRECTORIES))
NOT_SERVED = ("share.version", "streams.version")


def properties(folder: Path, *more: str, roles: str = "broker,controller", quorum: str = "bootstrap.servers=host0:9090") -> Path:
    path = folder.with_suffix(".properties")
    lines = [f"process.roles={roles}", "node.id=1", f"log.dirs={folder}", "controller.listener.names=CONTROLLER"]
    listeners = {"broker": "PLAINTEXT://host1:9092", "controller": "CONTROLLER://host1:9091"}
    lines += ["listeners=" + ",".join(listeners[role] for role in roles.split(",")), f"controller.quorum.{quorum}", *more]
    path.write_text("\n".join(lines) + "\n")
    return path


def refused(*arguments: str) -> str:
    done = odradek("storage", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def snapshot(path: Path) -> Snapshot:
    return decode_snapshot(path.read_bytes())


def fields(records: list[Message]) -> list[str]:
    return sorted(map(repr, records))


@pytest.mark.parametrize("release", ["3.7-IV4", "4.0-IV3", "4.1-IV0", "4.3-IV0"])
def test_a_folder_is_formatted_as_kafka_does_it(tmp_path: Path, release: str) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    options = ["-t", CLUSTER_ID, "-I", VOTERS, "-r", release]
    assert odradek("storage", "format", "-c", str(properties(ours)), *options).returncode == 0
    levels = [word for name in NOT_SERVED for word in ("-f", f"{name}=0")]
    command = ["java", "-cp", class_path(), "kafka.tools.StorageTool", "format", "-c", str(properties(theirs))]
    subprocess.run([*command, *options, *levels], check=True, capture_output=True)
    names = {str(path.relative_to(theirs)) for path in theirs.rglob("*")}
    later = {"__cluster_metadata-0/partition.metadata"}  # which Kafka writes when it starts
    assert {str(path.relative_to(ours)) for path in ours.rglob("*")} == names | later
    assert [line for line in (ours / "meta.properties").read_text().splitlines() if line[0] != "#"] == [
        line for line in (theirs / "meta.properties").read_text().splitlines() if line[0] != "#"
    ]
    assert fields(snapshot(ours / "bootstrap.checkpoint").records) == fields(snapshot(theirs / "bootstrap.checkpoint").records)
    first = Path("__cluster_metadata-0") / "00000000000000000000-0000000000.checkpoint"
    mine, kafkas = snapshot(ours / first), snapshot(theirs / first)
    assert (mine.kraft_version, mine.voters) == (kafkas.kraft_version, kafkas.voters)
    assert mine.voters is not None
    assert mine.voters.ids == [0, 1, 2]


def test_static_voters_leave_the_folder_without_any(tmp_path: Path) -> None:
    path = properties(tmp_path / "data", quorum="voters=1@host1:9091,2@host2:9092")
    assert odradek("storage", "format", "-c", str(path)).returncode == 0
    assert not (tmp_path / "data" / "__cluster_metadata-0").exists()
    assert "controller.quorum.voters" in refused("format", "-c", str(path), "--standalone")


def test_a_broker_keeps_no_voters(tmp_path: Path) -> None:
    path = properties(tmp_path / "data", roles="broker")
    assert "process.roles" in refused("format", "-c", str(path), "--standalone")
    assert odradek("storage", "format", "-c", str(path), "-t", CLUSTER_ID).returncode == 0
    assert not (tmp_path / "data" / "__cluster_metadata-0").exists()


def test_the_first_voters_have_to_be_named(tmp_path: Path) -> None:
    path = str(properties(tmp_path / "data"))
    assert "--standalone" in refused("format", "-c", path)
    assert "node.id=1" in refused("format", "-c", path, "-I", f"2@host2:9092:{DIRECTORIES[0]}")
    assert "id@host:port:directory" in refused("format", "-c", path, "-I", "1@host1:9091")
    assert "twice" in refused("format", "-c", path, "-I", f"1@a:1:{DIRECTORIES[0]},1@b:1:{DIRECTORIES[1]}")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-r", "3.1"], "3.3-IV3"),
        (["-f", "group.version=3"], "0 to 1"),
        (["-f", "grop.version=1"], "group.version"),
        (["-r", "4.0-IV0", "-f", "eligible.leader.replicas.version=1"], "4.0-IV1"),
        (["-t", "short"], "short"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, arguments: list[str], named: str) -> None:
    assert named in refused("format", "-c", str(properties(tmp_path / "data")), "--standalone", *arguments)
    assert not (tmp_path / "data").exists()


def test_a_formatted_folder_is_left_as_it_is_and_shown(tmp_path: Path) -> None:
    path = str(properties(tmp_path / "data"))
    assert str(tmp_path / "data") in refused("info", "-c", path)
    assert odradek("storage", "format", "-c", path, "-t", CLUSTER_ID, "--standalone").returncode == 0
    before = (tmp_path / "data" / "meta.properties").read_bytes()
    assert CLUSTER_ID in refused("format", "-c", path, "-t", CLUSTER_ID, "--standalone")
    assert odradek("storage", "format", "-c", path, "-t", CLUSTER_ID, "--standalone", "-g").returncode == 0
    assert CLUSTER_ID in refused("format", "-c", path, "-t", DIRECTORIES[0], "--standalone", "-g")
    assert (tmp_path / "data" / "meta.properties").read_bytes() == before
    shown = odradek("storage", "info", "-c", path)
    assert shown.returncode == 0
    assert f"cluster {CLUSTER_ID}, node 1" in shown.stdout


def test_random_ids_differ_and_never_look_like_options() -> None:
    ids = [odradek("storage", "random-uuid").stdout.strip() for _ in range(2)]
    assert ids[0] != ids[1]
    assert all(len(found) == 22 and not found.startswith("-") for found in ids)
