"""meta.properties: as Java writes it, as Kafka understands it."""

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.log.checkpoint import CorruptFile, uuid_text
from odradek.log.disk import RealDisk, replace_file
from odradek.log.meta_properties import (
    MetaProperties,
    format_properties,
    parse_properties,
    read_meta_properties,
    write_meta_properties,
)
from tests.kafka.oracle import Oracle, OracleError
from tests.log.disk import SimDisk

PATH = "/disk/meta.properties"
DIRECTORY = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
META = MetaProperties(1, "MkU3OEVBNTcwNTJENDM2Qg", 3, DIRECTORY, {})
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def disk_with(content: bytes) -> SimDisk:
    disk = SimDisk()
    replace_file(disk, PATH, content)
    return disk


def test_is_written_as_kafka_writes_it(oracle: Oracle, tmp_path: Path) -> None:
    disk = SimDisk()
    write_meta_properties(disk, PATH, META, 1_234_567_890_123)
    expected = [
        "#",
        "#Fri Feb 13 23:31:30 UTC 2009",
        "node.id=3",
        f"directory.id={uuid_text(DIRECTORY)}",
        "version=1",
        "cluster.id=MkU3OEVBNTcwNTJENDM2Qg",
        "",
    ]
    assert disk.read(PATH).decode() == "\n".join(expected)
    path = str(tmp_path / "meta.properties")
    values = {"version": "1", "cluster.id": str(META.cluster_id), "node.id": "3", "directory.id": uuid_text(DIRECTORY)}
    oracle.call("LogFiles.writeMeta", path=path, values=values)
    theirs = Path(path).read_text().split("\n")
    assert [theirs[0], *theirs[2:]] == [expected[0], *expected[2:]]  # but for the date
    assert read_meta_properties(RealDisk(), path) == META


def test_kafka_understands_ours(oracle: Oracle, tmp_path: Path) -> None:
    path = str(tmp_path / "meta.properties")
    write_meta_properties(RealDisk(), path, META._replace(other={"spare key": " a=b\\:#! \té€𝄞", "": "empty"}), 0)
    answer = oracle.call("LogFiles.readMeta", path=path, understand=True)
    assert answer["meta"] == (
        f"MetaProperties(version=1, clusterId={META.cluster_id}, nodeId=3, directoryId={uuid_text(DIRECTORY)})"
    )
    assert answer["values"]["spare key"] == " a=b\\:#! \té€𝄞"
    assert answer["values"][""] == "empty"


@given(st.dictionaries(TEXT, TEXT, max_size=4))
@example({"a": "\\", "b": "", "": "x"})
def test_properties_are_parsed_back(values: dict[str, str]) -> None:
    assert parse_properties(PATH, format_properties(values, 0))[1] == values


def test_java_parses_properties_in_the_same_way(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "p"
    signs = st.sampled_from([*"ab=: \t\f\\#!\n\r", "\\\n", "\\\r\n", "u00e9", "\\u0041", "\\u00E9", "\\t", "é"])

    @given(st.lists(signs, max_size=12).map("".join))
    @example("a\\")
    @example("a=\\\n  b\\\n")
    @example("# c\\\na=1")
    @example("a=b\\\n#c\n")
    @example(" = x")
    @example("=a\n\\\r\n")  # a lone backslash at the end is a nameless nothing to Java; before these two it is not
    def check(text: str) -> None:
        content = text.encode("latin-1")
        path.write_bytes(content)
        try:
            theirs = oracle.call("LogFiles.readMeta", path=str(path))["values"]
        except OracleError:
            with pytest.raises(CorruptFile):
                parse_properties(str(path), content)
        else:
            assert parse_properties(str(path), content)[1] == theirs

    check()


def test_version_0_calls_the_node_a_broker() -> None:
    found = read_meta_properties(disk_with(b"#\n#date\nversion=0\nbroker.id=7\ncluster.id=c\nold=1\n"), PATH)
    assert found == MetaProperties(0, "c", 7, None, {"old": "1"})
    assert read_meta_properties(disk_with(b""), PATH) == MetaProperties(0, None, None, None, {})
    assert found is not None
    disk = SimDisk()
    write_meta_properties(disk, PATH, found, 0)
    assert read_meta_properties(disk, PATH) == found


def test_a_folder_without_it_is_new() -> None:
    assert read_meta_properties(SimDisk(), PATH) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version=2\n", "line 1: version 2"),
        (b"\nversion=x\n", "line 2: 'x' is no number"),
        (b"version=1\ncluster.id=c\n", "node.id is missing"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\nnode.id= 1 x\ncluster.id=c", "line 2"),
        (b"version=1\nnode.id=1\ncluster.id=c\ndirectory.id=short", "line 4: 'short' is no id"),
        (b"a=\\u12", "line 1"),
    ],
)
def test_damaged_is_refused(oracle: Oracle, tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        read_meta_properties(disk_with(content), PATH)
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(OracleError):
        oracle.call("LogFiles.readMeta", path=str(tmp_path / "m"), understand=True)
