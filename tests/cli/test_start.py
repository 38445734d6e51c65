"""`odradek start`: what it says when it serves, and when it cannot."""

from pathlib import Path

import pytest

from tests.cli.program import Started, odradek, started


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


def test_a_first_start_needs_nothing_and_says_where_it_is(tmp_path: Path) -> None:
    node = Started(tmp_path / "data")
    screen = node.screen()
    assert node.stop() == ""
    assert f"127.0.0.1:{node.port}" in screen
    assert str(tmp_path / "data" / "server.properties") in screen
    assert "\x1b" not in screen
    assert node.process.returncode == 0
    assert f"PLAINTEXT://127.0.0.1:{node.port}" in (tmp_path / "data" / "server.properties").read_text()


def test_a_later_start_reads_what_was_edited_and_writes_nothing(tmp_path: Path) -> None:
    with started(tmp_path / "data"):
        pass
    file = tmp_path / "data" / "server.properties"
    file.write_text(edited := file.read_text() + "nummer.partitions=3\n")
    node = Started(tmp_path / "data")  # on another port, which goes before the file's
    assert f"127.0.0.1:{node.port}" in node.screen()
    assert node.stop().splitlines() == [
        "odradek: nummer.partitions: no key has this name, it does nothing; did you mean num.partitions?"
    ]
    assert file.read_text() == edited


def test_two_nodes_do_not_share_a_folder_or_a_port(tmp_path: Path) -> None:
    with started(tmp_path / "data") as first:
        other = Started(tmp_path / "data")
        assert other.process.wait(timeout=30) == 1
        assert "odradek: " in other.stop()
        taken = odradek("start", "--data", str(tmp_path / "other"), "--listen", f"127.0.0.1:{first.port}")
        assert taken.returncode == 1
        assert len(taken.stderr.splitlines()) == 1
        assert str(first.port) in taken.stderr
