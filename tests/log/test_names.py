"""Names of folders and files: ours, and those that Apache Kafka gives and understands."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.log.names import (
    NAME_LENGTH_MAX,
    FileKind,
    FileName,
    FileState,
    FolderState,
    TopicPartition,
    file_name,
    folder_name,
    parse_file_name,
    parse_folder_name,
)
from tests.kafka.oracle import Oracle

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))
UNIQUE_ID = "0123456789abcdef" * 2


@given(PARTITIONS)
def test_folder_names_are_parsed_back(partition: TopicPartition) -> None:
    plain = folder_name(partition)
    if not plain.endswith(("-delete", "-future", "-stray")):
        assert parse_folder_name(plain) == (partition, FolderState.CURRENT)
    for state in (FolderState.DELETE, FolderState.STRAY):
        name = folder_name(partition, state, UNIQUE_ID)
        assert len(name) <= NAME_LENGTH_MAX
        parsed = parse_folder_name(name)
        assert parsed is not None
        assert partition.topic.startswith(parsed[0].topic)
        assert parsed[0].partition == partition.partition
        assert parsed[1] is state
    assert parse_folder_name(folder_name(partition, FolderState.FUTURE, UNIQUE_ID)) == (partition, FolderState.FUTURE)


def test_a_long_topic_is_cut_where_kafka_cuts_it(oracle: Oracle) -> None:
    for topic in ("t", "a.b-c_d", "x" * 249):
        partition = TopicPartition(topic, 12)
        current, deleted, stray, future = oracle.call("LogFiles.folderNames", topic=topic, partition=12)
        assert current == folder_name(partition)
        for theirs, state in ((deleted, FolderState.DELETE), (stray, FolderState.STRAY), (future, FolderState.FUTURE)):
            unique_id = theirs.removesuffix(state).rpartition(".")[2]
            assert len(unique_id) == 32
            assert theirs == folder_name(partition, state, unique_id)


def test_kafka_parses_folder_names_in_the_same_way(oracle: Oracle) -> None:
    @given(st.lists(st.from_regex(r"[a-c.-]{0,4}-?[+-]?[0-9]{0,11}(\.[0-9a.-]{0,3})?(-delete|-future|-stray)?", fullmatch=True)))
    def check(names: list[str]) -> None:
        names = [name for name in names if name not in ("", ".", "..")]
        parsed = [parse_folder_name(name) for name in names]
        assert [part and [*part[0]] for part in parsed] == oracle.call("LogFiles.parseFolderNames", names=names)

    check()
    for name in ("t-0", "t-", "-0", "t", "a-b-1", "t-0-delete", "t-0.x-delete", "t-99999999999", "lost+found", "t-1.2.a-stray"):
        parsed = parse_folder_name(name)
        assert oracle.call("LogFiles.parseFolderNames", names=[name]) == [parsed and [*parsed[0]]]


@given(st.integers(0, 2**63 - 1), st.sampled_from(FileKind), st.sampled_from(FileState))
def test_file_names_are_parsed_back(offset: int, kind: FileKind, state: FileState) -> None:
    assert parse_file_name(file_name(offset, kind, state)) == FileName(offset, kind, state)


def test_file_names_are_those_of_kafka() -> None:
    assert file_name(42, FileKind.LOG) == "00000000000000000042.log"
    assert file_name(42, FileKind.TIME_INDEX) == "00000000000000000042.timeindex"
    assert file_name(42, FileKind.TRANSACTION_INDEX, FileState.CLEANED) == "00000000000000000042.txnindex.cleaned"
    assert file_name(42, FileKind.SNAPSHOT, FileState.DELETED) == "00000000000000000042.snapshot.deleted"
    assert file_name(2**63 - 1, FileKind.INDEX, FileState.SWAP) == "09223372036854775807.index.swap"


def test_other_files_are_none_of_ours() -> None:
    for name in (
        "leader-epoch-checkpoint",
        "partition.metadata",
        "x.log",
        "12.log.tmp",
        "12.logs",
        "12",
        "-1.log",
        ".log",
        "٣.log",
    ):
        assert parse_file_name(name) is None
