"""`odradek log dump`: what it prints and how it ends. What it knows of files is tested in tests/log/test_dump.py."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.log.dump.rows import Row
from odradek.wire.records import Record, build
from tests.cli.program import odradek

SEGMENT = "00000000000000000000.log"


def batch(offset: int) -> bytes:
    records = [
        Record(offset, 1000, b"key", b"\x00\xff", (("name", b"content"),)),
        Record(offset + 1, 1001, None, "süß\t".encode()),
    ]
    return bytes(build(records, base_offset=offset))


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / SEGMENT
    path.write_bytes(b"".join(batch(offset) for offset in range(0, 10, 2)))
    return path


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_table_has_a_heading_and_a_line_for_each_batch(segment: Path) -> None:
    done = odradek("log", "dump", str(segment))
    assert (done.returncode, done.stderr) == (0, "")
    heading, columns, *lines = done.stdout.splitlines()
    assert heading == f"{segment}: segment, {segment.stat().st_size} bytes"
    assert columns.split()[:3] == ["offsets", "position", "bytes"]
    assert [line.split()[0] for line in lines] == ["0-1", "2-3", "4-5", "6-7", "8-9"]
    assert "1970-01-01 00:00:01.001" in lines[0]


def test_table_of_records_shows_keys_and_values(segment: Path) -> None:
    lines = odradek("log", "dump", "--records", "--offset", "8", str(segment)).stdout.splitlines()
    assert lines[1].split() == ["offset", "time", "key", "headers", "value"]
    assert lines[2].split() == ["8", "1970-01-01", "00:00:01.000", "key", "name=content", "0x00ff"]
    assert lines[3].split() == ["9", "1970-01-01", "00:00:01.001", "null", "süß\\t"]
    assert len(lines) == 4


def test_json_has_one_object_a_line_with_the_documented_fields(segment: Path) -> None:
    done = odradek("log", "dump", "--json", "--records", "--limit", "3", str(segment))
    assert done.returncode == 0
    rows = objects(done.stdout)
    assert [row["type"] for row in rows] == ["file", "batch", "record", "record", "batch", "record"]
    fields = {kind.__struct_config__.tag: {"type", *kind.__struct_fields__} for kind in Row.__subclasses__()}
    assert all(set(row) == fields[row["type"]] for row in rows)
    assert all(row["file"] == str(segment) for row in rows)
    first, second = rows[2], rows[3]
    assert (first["key"], first["value"], first["headers"]) == ("key", {"base64": "AP8="}, [["name", "content"]])
    assert (second["key"], second["value"]) == (None, "süß\t")


def test_damage_is_one_line_and_status_1(segment: Path) -> None:
    size = len(batch(0))
    segment.write_bytes(segment.read_bytes()[: 2 * size + 5])
    done = odradek("log", "dump", str(segment))
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 4
    (line,) = done.stderr.splitlines()
    assert f"{segment}: damaged at byte {2 * size}: " in line
    done = odradek("log", "dump", "--json", str(segment))
    assert (done.returncode, done.stderr) == (1, "")
    last = objects(done.stdout)[-1]
    assert (last["position"], "damage" in last) == (2 * size, True)


def test_all_paths_are_shown_even_if_one_cannot_be(segment: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    missing = str(tmp_path / "missing.log")
    done = odradek("log", "dump", missing, str(tmp_path / "notes.txt"), str(segment))
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert missing in first
    assert "No such file" in first
    assert "notes.txt" in second
    assert "--as" in second
    assert len(done.stdout.splitlines()) == 7


def test_folder_is_known_by_its_name_and_by_where_it_is(segment: Path) -> None:
    folder = segment.parent / "__consumer_offsets-0"
    folder.mkdir()
    segment.rename(folder / SEGMENT)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("odradek")), "log", "dump", "--json", "."],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    assert objects(done.stdout.decode())[0]["holds"] == "offsets"


def test_as_says_how_records_are_understood(segment: Path) -> None:
    rows = objects(odradek("log", "dump", "--json", "--records", "--as", "metadata", str(segment)).stdout)
    assert all("frame_version" in row["problem"] for row in rows if row["type"] == "record")


def test_index_of_a_running_node_says_that_it_ends_in_room_to_come(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes((5).to_bytes(4, "big") + (4100).to_bytes(4, "big") + bytes(800))
    done = odradek("log", "dump", str(path))
    assert done.returncode == 0
    assert "from byte 8 on 800 zero bytes" in done.stdout


def test_output_that_nobody_reads_on_ends_quietly(segment: Path) -> None:
    segment.write_bytes(b"".join(batch(offset) for offset in range(0, 10_000, 2)))
    command = f"{Path(sys.executable).with_name('odradek')} log dump --json --records {segment} | head -1"
    done = subprocess.run(command, check=False, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_terminal_that_knows_ascii_only_is_no_problem(segment: Path) -> None:
    done = odradek("log", "dump", "--records", str(segment), PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "s\\xfc\\xdf\\t" in done.stdout
