"""`odradek start`, as far as it goes without serving: what it says when it cannot start."""

from pathlib import Path

import pytest

from tests.cli.program import odradek


def refused(*arguments: str) -> str:
    """The one line with which a start ended that could not go on."""
    done = odradek("start", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("odradek: ")
    return line


def test_a_bad_setting_is_named_with_what_would_be_valid(tmp_path: Path) -> None:
    line = refused("--data", str(tmp_path / "data"), "-o", "num.partitions=many")
    assert "num.partitions" in line
    assert "'many'" in line
    assert "whole number" in line
    assert not (tmp_path / "data").exists(), "a start that was refused leaves nothing behind"


def test_a_bad_address_is_named(tmp_path: Path) -> None:
    assert "HOST:PORT" in refused("--data", str(tmp_path), "--listen", "nowhere")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "none.properties")
    assert path in refused("--config", path)


def test_a_file_that_is_broken_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nlog.dirs=\\uXYZ\n")
    line = refused("--config", str(path))
    assert str(path) in line
    assert "line 2" in line


def test_a_file_that_is_not_utf_8_is_named_with_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(b"broker.rack=\xff\n")
    assert "byte 12" in refused("--config", str(path))


def test_what_is_not_served_yet_is_refused_plainly(tmp_path: Path) -> None:
    line = refused("--data", str(tmp_path), "-o", "listener.security.protocol.map=PLAINTEXT:SSL,CONTROLLER:PLAINTEXT")
    assert "SSL" in line


def test_a_folder_that_was_moved_is_not_started_in_its_old_place(tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    moved.mkdir()
    properties = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:19092\n"
    properties += (
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=a:19092\nlog.dirs={tmp_path}/before\n"
    )
    (moved / "server.properties").write_text(properties)
    line = refused("--data", str(moved))
    assert f"{tmp_path}/before" in line
    assert str(moved) in line


@pytest.mark.parametrize("arguments", [["-o", "=x"], ["-o", "node.id"], ["--config", "a", "--data", "b"]])
def test_what_cannot_be_understood_has_status_2(arguments: list[str]) -> None:
    done = odradek("start", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused("--data", str(tmp_path / "file" / "data"))
