"""The index of aborted transactions: what it collects, what it refuses, and that Apache Kafka agrees."""

import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.disk import RealDisk
from odradek.log.index import CorruptIndex
from odradek.log.transaction_index import AbortedTransaction, TransactionIndex
from tests.kafka.oracle import Oracle
from tests.log.disk import SimDisk

PATH = "/disk/00000000000000000010.txnindex"
BASE = 10


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Aborted transactions as a log has them: markers rise, the last stable offset does not fall and is not past the marker."""
    transactions = []
    last_offset, stable = BASE - 1, 0
    for _ in range(draw(st.integers(0, 8))):
        last_offset += draw(st.integers(1, 6))
        first_offset = draw(st.integers(max(0, last_offset - 20), last_offset))
        stable = draw(st.integers(stable, last_offset + 1))
        transactions.append(AbortedTransaction(draw(st.integers(0, 2**62)), first_offset, last_offset, stable))
    return transactions


def index_of(transactions: list[AbortedTransaction]) -> TransactionIndex:
    index = TransactionIndex(SimDisk(), PATH, BASE)
    for transaction in transactions:
        index.append(transaction)
    return index


def test_file_is_made_with_the_first_entry() -> None:
    disk = SimDisk()
    index = TransactionIndex(disk, PATH, BASE)
    assert index.collect(0, 100) == ([], False)
    assert index.entries() == []
    index.check()
    index.truncate_to(BASE)
    index.sync()
    assert disk.steps == []
    index.append(AbortedTransaction(7, 8, 12, 13))
    assert disk.read(PATH) == struct.pack(">hqqqq", 0, 7, 8, 12, 13)
    assert TransactionIndex(disk, PATH, BASE).entries() == [(7, 8, 12, 13)]


def test_collects_what_touches_the_range_until_all_is_known() -> None:
    index = index_of(
        [
            AbortedTransaction(1, 5, 12, 5),
            AbortedTransaction(2, 11, 15, 14),
            AbortedTransaction(3, 14, 20, 21),
            AbortedTransaction(4, 22, 25, 26),
        ]
    )
    assert index.collect(10, 14) == ([(1, 5, 12, 5), (2, 11, 15, 14)], True)
    assert index.collect(13, 15) == ([(2, 11, 15, 14), (3, 14, 20, 21)], True)
    assert index.collect(21, 30) == ([(4, 22, 25, 26)], False)
    assert index.collect(30, 40) == ([], False)


def test_truncation_forgets_markers_from_an_offset_on() -> None:
    index = index_of([AbortedTransaction(1, 5, 12, 5), AbortedTransaction(2, 11, 15, 14), AbortedTransaction(3, 14, 20, 21)])
    index.truncate_to(16)
    assert index.disk.read(PATH) == b"".join(struct.pack(">hqqqq", 0, *entry) for entry in index.entries())
    index.truncate_to(15)
    assert index.entries() == [(1, 5, 12, 5)]
    index.append(AbortedTransaction(9, 13, 14, 15))
    assert TransactionIndex(index.disk, PATH, BASE).entries() == [(1, 5, 12, 5), (9, 13, 14, 15)]
    index.truncate_to(BASE)
    assert index.disk.read(PATH) == b""


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">hqqqq", 0, 1, 2, 12, 3) + b"\0",
        struct.pack(">hqqqq", 1, 1, 2, 12, 3),
        struct.pack(">hqqqq", 0, 1, 2, 9, 3),
        struct.pack(">hqqqq", 0, 1, 13, 12, 3),
        struct.pack(">hqqqq", 0, 1, -1, 12, 3),
        struct.pack(">hqqqq", 0, 1, 2, 12, 3) * 2,
        b"\0" * 34,
    ],
)
def test_damage_is_seen_and_cut_off_with_everything(data: bytes) -> None:
    disk = SimDisk()
    disk.open(PATH, create=True).append([data])
    index = TransactionIndex(disk, PATH, BASE)
    with pytest.raises(CorruptIndex, match=PATH):
        index.check()
    index.truncate_to(BASE)
    index.check()
    assert disk.read(PATH) == b""


def test_stays_open_when_it_is_renamed() -> None:
    index = index_of([AbortedTransaction(1, 5, 12, 5)])
    index.disk.rename(PATH, PATH + ".deleted")
    index.renamed(PATH + ".deleted")
    index.append(AbortedTransaction(2, 11, 15, 14))
    assert len(index.disk.read(PATH + ".deleted")) == 68
    index.sync()
    index.disk.sync_folder("/disk")
    assert isinstance(index.disk, SimDisk)
    assert len(TransactionIndex(index.disk.crash("strict"), PATH + ".deleted", BASE).entries()) == 2


def test_kafka_collects_and_truncates_the_same(oracle: Oracle, tmp_path: Path) -> None:
    disk = RealDisk()
    ranges = st.lists(st.tuples(st.integers(0, 70), st.integers(1, 20)).map(lambda r: (r[0], r[0] + r[1])), max_size=6)

    @given(histories(), ranges, st.integers(BASE, 60))
    def check(transactions: list[AbortedTransaction], ranges: list[tuple[int, int]], cut: int) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            ours, theirs = f"{folder}/a.txnindex", f"{folder}/b.txnindex"
            index = TransactionIndex(disk, ours, BASE)
            for transaction in transactions:
                index.append(transaction)
            index.check()
            answer = oracle.call("LogFiles.transactions", path=theirs, base_offset=BASE, appends=transactions, ranges=ranges)
            assert answer["entries"] == [[*entry] for entry in index.entries()]
            found = [index.collect(*some) for some in ranges]
            assert answer["collected"] == [[[[*entry] for entry in entries], complete] for entries, complete in found]
            assert os.path.exists(ours) == os.path.exists(theirs)
            if transactions:
                assert disk.read(ours) == disk.read(theirs)
                index.truncate_to(cut)
                assert oracle.call("LogFiles.transactions", path=theirs, base_offset=BASE, truncate_to=cut)["entries"] == [
                    [*entry] for entry in index.entries()
                ]
                assert disk.read(ours) == disk.read(theirs)
                assert TransactionIndex(disk, theirs, BASE).entries() == index.entries()

    check()
