"""Leader epochs: the rules one by one, and Apache Kafka's answers to the same histories."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.checkpoint import CorruptFile
from odradek.log.disk import DiskFull, RealDisk, replace_file, replace_files
from odradek.log.epochs import LEADER_EPOCHS, EpochStart, LeaderEpochs
from tests.kafka.oracle import Oracle, OracleError
from tests.log.disk import PowerLost, SimDisk

PATH = f"/disk/{LEADER_EPOCHS}"


def save(epochs: LeaderEpochs) -> None:
    """As a flush does."""
    written = epochs.unsaved()
    replace_files(epochs.disk, written)
    epochs.saved(written)


def epochs_with(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(SimDisk(), PATH)
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


def test_file_is_kafkas() -> None:
    epochs = epochs_with((2, 0), (5, 70))
    save(epochs)
    assert epochs.disk.read(PATH) == b"0\n2\n2 0\n5 70\n"
    assert LeaderEpochs(epochs.disk, PATH).entries == [EpochStart(2, 0), EpochStart(5, 70)]


def test_an_epoch_is_written_when_it_is_saved_and_not_before() -> None:
    disk = SimDisk()
    epochs = LeaderEpochs(disk, PATH)
    assert epochs.assign(3, 10)
    assert not epochs.assign(3, 10)
    assert not epochs.assign(3, 99)
    assert disk.steps == []
    save(epochs)
    assert LeaderEpochs(disk.crash("strict"), PATH).entries == epochs.entries
    steps = len(disk.steps)
    save(epochs)
    assert len(disk.steps) == steps


def test_what_conflicts_with_an_epoch_goes() -> None:
    epochs = epochs_with((1, 0), (2, 10), (4, 20))
    epochs.assign(3, 15)  # a leader of epoch 3 wrote where 4 was
    assert epochs.entries == [(1, 0), (2, 10), (3, 15)]
    epochs.assign(5, 10)
    assert epochs.entries == [(1, 0), (5, 10)]
    epochs.assign(5, 5)
    assert epochs.entries == [(1, 0), (5, 5)]


def test_end_of_an_epoch() -> None:
    epochs = epochs_with((2, 10), (4, 20), (7, 30))
    assert epochs.end_offset_for(-1, 100) == (-1, -1)
    assert epochs.end_offset_for(7, 100) == (7, 100)
    assert epochs.end_offset_for(8, 100) == (-1, -1)
    assert epochs.end_offset_for(1, 100) == (1, 10)
    assert epochs.end_offset_for(2, 100) == (2, 20)
    assert epochs.end_offset_for(3, 100) == (2, 20)
    assert epochs.end_offset_for(6, 100) == (4, 30)
    assert epochs_with().end_offset_for(0, 100) == (-1, -1)


def test_truncation_moves_the_ends() -> None:
    epochs = epochs_with((2, 10), (4, 20), (7, 30))
    epochs.truncate_from_end(30)
    assert epochs.entries == [(2, 10), (4, 20)]
    epochs.truncate_from_start(15)
    assert epochs.entries == [(2, 15), (4, 20)]
    epochs.truncate_from_start(5)
    assert epochs.entries == [(2, 15), (4, 20)]
    epochs.truncate_from_start(50)
    assert epochs.entries == [(4, 50)]
    save(epochs)
    assert LeaderEpochs(epochs.disk, PATH).entries == [(4, 50)]
    epochs.truncate_from_end(0)
    assert (epochs.entries, epochs.latest_epoch, epochs.previous_epoch) == ([], -1, -1)


def test_a_full_disk_takes_no_epoch_away() -> None:
    disk = SimDisk()
    epochs = LeaderEpochs(disk, PATH)
    epochs.assign(1, 0)
    epochs.assign(2, 10)
    save(epochs)
    disk.room = 0
    with pytest.raises(DiskFull):
        epochs.truncate_from_end(10)
    assert epochs.latest_epoch == 2
    disk.room = 1000
    epochs.truncate_from_end(10)
    assert LeaderEpochs(disk.crash("strict"), PATH).entries == epochs.entries == [(1, 0)]


def test_power_loss_leaves_the_old_epochs_or_the_new() -> None:
    for step in range(5):
        disk = SimDisk()
        epochs = LeaderEpochs(disk, PATH)
        epochs.assign(1, 0)
        save(epochs)
        disk.stop_at(len(disk.steps) + step)
        epochs.assign(2, 10)
        with pytest.raises(PowerLost):
            save(epochs)
        for seed in range(20):
            assert len(LeaderEpochs(disk.crash("mixed", seed=seed), PATH).entries) in (1, 2)


@pytest.mark.parametrize("content", [b"1\n0\n", b"0\n1\n1\n", b"0\n1\n1 2 3\n", b"0\n1\n-1 5\n", b"0\n1\n1 -5\n", b"0\n1\nx 5\n"])
def test_damaged_file_is_refused(oracle: Oracle, tmp_path: Path, content: bytes) -> None:
    disk = SimDisk()
    replace_file(disk, PATH, content)
    with pytest.raises(CorruptFile, match="line"):
        LeaderEpochs(disk, PATH)
    (tmp_path / LEADER_EPOCHS).write_bytes(content)
    with pytest.raises(OracleError):
        oracle.call("LogFiles.epochs", path=str(tmp_path / LEADER_EPOCHS), calls=[])


SMALL = st.integers(0, 8)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), SMALL, st.integers(0, 20)),
        st.tuples(st.just("end"), st.integers(-2, 9), st.just(25)),
        st.tuples(st.just("epoch_for"), st.integers(-1, 22)),
        st.tuples(st.just("previous")),
        st.tuples(st.just("entries")),
        st.tuples(st.just("truncate_end"), st.integers(-1, 20)),
        st.tuples(st.just("truncate_start"), st.integers(0, 20)),
        st.tuples(st.just("clear")),
    ),
    max_size=25,
)


def answer(epochs: LeaderEpochs, name: str, numbers: tuple[int, ...]) -> list[int]:
    match name:
        case "assign":
            epochs.assign(*numbers)
        case "end":
            return [*epochs.end_offset_for(*numbers)]
        case "epoch_for":
            return [epochs.epoch_for(*numbers)]
        case "previous":
            return [epochs.previous_epoch, epochs.latest_epoch]
        case "entries":
            return [number for entry in epochs.entries for number in entry]
        case "truncate_end":
            epochs.truncate_from_end(*numbers)
        case "truncate_start":
            epochs.truncate_from_start(*numbers)
        case "clear":
            epochs.truncate_from_end(0)
    return []


def test_kafka_gives_the_same_answers(oracle: Oracle, tmp_path: Path) -> None:
    disk = RealDisk()

    @given(CALLS)
    def check(calls: list[tuple[Any, ...]]) -> None:
        calls = [*calls, ("entries",), ("previous",)]
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            os.mkdir(f"{folder}/t-0")
            theirs = f"{folder}/t-0/{LEADER_EPOCHS}"
            ours = f"{folder}/{LEADER_EPOCHS}"
            epochs = LeaderEpochs(disk, ours)
            answers = [answer(epochs, name, tuple(numbers)) for name, *numbers in calls]
            save(epochs)
            assert answers == oracle.call("LogFiles.epochs", path=theirs, calls=calls)
            assert oracle.call("LogFiles.epochs", path=ours, calls=[["entries"]]) == [answers[-2]]
            if epochs.entries:
                assert Path(ours).read_bytes() == Path(theirs).read_bytes()

    check()


def test_kafka_loads_any_rows_as_we_do(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / LEADER_EPOCHS

    @given(st.lists(st.tuples(SMALL, SMALL), max_size=8))
    def check(rows: list[tuple[int, int]]) -> None:
        path.write_text("\n".join(["0", str(len(rows)), *[f"{epoch} {start}" for epoch, start in rows], ""]))
        epochs = LeaderEpochs(RealDisk(), str(path))
        assert [answer(epochs, "entries", ())] == oracle.call("LogFiles.epochs", path=str(path), calls=[["entries"]])

    check()
