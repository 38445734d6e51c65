"""Snapshots as bytes: whole or refused; their names; voters and votes as Kafka writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.raft.batches import (
    CorruptSnapshot,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    parse_snapshot_name,
)
from odradek.core.raft.election import CorruptElection, Election
from odradek.core.raft.voters import Voter, VoterSet, parse_voters
from odradek.wire.message import NIL_UUID, Message
from odradek.wire.messages import TopicRecord

VOTERS = VoterSet((Voter(1, b"d" * 16, (("CONTROLLER", "localhost", 9093),)), Voter(2, b"e" * 16, ())))


def topics(count: int) -> list[tuple[Message, int]]:
    return [(TopicRecord(name=f"topic-{number}", topic_id=number.to_bytes(16, "big")), 0) for number in range(count)]


def snapshot_of(count: int = 3) -> bytes:
    batches = encode_snapshot(topics(count), epoch=4, now_ms=9, timestamp_ms=8, kraft_version=1, voters=VOTERS)
    return b"".join(batches)


def test_a_snapshot_holds_what_went_in() -> None:
    found = decode_snapshot(snapshot_of())
    assert found.records == [record for record, _ in topics(3)]
    assert (found.timestamp_ms, found.kraft_version, found.voters) == (8, 1, VOTERS)


def test_a_large_snapshot_has_several_batches() -> None:
    batches = list(encode_snapshot(topics(60_000), epoch=0, now_ms=1, timestamp_ms=1))
    assert len(batches) > 3
    assert len(decode_snapshot(b"".join(batches)).records) == 60_000


def test_a_snapshot_that_was_cut_anywhere_is_refused() -> None:
    whole = snapshot_of()
    for end in range(len(whole)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(whole[:end])


@given(st.integers(0, 8 * len(snapshot_of()) - 1))
def test_a_flipped_bit_is_seen_or_changes_nothing_that_counts(bit: int) -> None:
    damaged = bytearray(snapshot_of())
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        found = decode_snapshot(bytes(damaged))
    except CorruptSnapshot:
        return
    assert found == decode_snapshot(snapshot_of())  # offsets and epochs of batches, which no CRC covers


def test_nothing_follows_the_footer() -> None:
    with pytest.raises(CorruptSnapshot, match="after the footer"):
        decode_snapshot(snapshot_of() + snapshot_of())


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), st.sampled_from(["", ".part", ".deleted"]))
def test_names_are_read_as_they_are_written(offset: int, epoch: int, ending: str) -> None:
    snapshot = SnapshotId(offset, epoch)
    assert parse_snapshot_name(snapshot.name + ending) == (snapshot, ending)


@pytest.mark.parametrize("name", ["quorum-state", "00000000000000000030.snapshot", "1-1.checkpoint", "bootstrap.checkpoint"])
def test_other_files_are_no_snapshots(name: str) -> None:
    assert parse_snapshot_name(name) is None


def test_voters_of_the_configuration_are_read() -> None:
    found = parse_voters("1@host:9093, 2@[::1]:19093", "CONTROLLER")
    assert found.voters == (
        Voter(1, NIL_UUID, (("CONTROLLER", "host", 9093),)),
        Voter(2, NIL_UUID, (("CONTROLLER", "::1", 19093),)),
    )
    with pytest.raises(ValueError, match=r"controller\.quorum\.voters"):
        parse_voters("host:9093", "CONTROLLER")


def test_the_vote_is_written_as_kafka_writes_it() -> None:
    won = Election(epoch=1, voted_id=1, voted_directory_id=b"d" * 16)
    assert won.to_json(1, [1]) == (
        b'{"leaderId":-1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":"ZGRkZGRkZGRkZGRkZGRkZA","data_version":1}'
    )
    assert Election(epoch=1, leader_id=1).to_json(1, [1]) == (
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    assert Election.of(won.to_json(1, [1])) == won
    static = Election(epoch=1, voted_id=1)
    assert Election.of(static.to_json(0, [1, 2])) == static


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"data_version":2}', b'{"data_version":1,"leaderEpoch":"x"}'])
def test_a_vote_that_cannot_be_read_stops_the_start(content: bytes) -> None:
    with pytest.raises(CorruptElection, match="quorum-state"):
        Election.of(content)
