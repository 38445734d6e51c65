"""Compaction of random histories, against a plain dict of last values."""

from collections.abc import Iterable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.log.compaction import compact
from tests.log.compacting import HOUR_MS, Compacted, end
from tests.log.model import check_indexes, consumed

keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.one_of(st.none(), st.binary(min_size=1, max_size=3))
rows = st.lists(st.tuples(keys, values), min_size=1, max_size=4)
producers = st.sampled_from([7, 8])
steps = st.one_of(
    st.tuples(st.just("plain"), rows),
    st.tuples(st.just("transactional"), producers, rows),
    st.tuples(st.just("end"), producers, st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact"), st.integers(0, 2 * HOUR_MS)),
)


class History:
    """Plays steps, and keeps what a read_committed consumer would have seen."""

    def __init__(self) -> None:
        self.of = Compacted(segment_bytes=400, memory_bytes=900)
        self.committed: list[tuple[int, bytes, bytes | None]] = []
        self.open: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
        self.sequences = {7: 0, 8: 0}

    def play(self, step: tuple[object, ...]) -> None:
        match step:
            case ("plain", list(rows)):
                self.committed += self._placed(self.of.write(*rows), rows)
            case ("transactional", int(producer), list(rows)):
                fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": self.sequences[producer]}
                self.sequences[producer] += len(rows)
                first = self.of.write(*rows, **fields, transactional=True)
                self.open.setdefault(producer, []).extend(self._placed(first, rows))
            case ("end", int(producer), bool(commit)) if producer in self.open:
                end(self.of, commit=commit, producer_id=producer)
                rows = self.open.pop(producer)
                self.committed += rows if commit else []
            case ("roll",):
                self.of.log.roll(self.of.now_ms)
            case ("compact", int(ms)):
                self.of.pass_time(ms)
                self.of.settle()
                chosen = self.of.cleaner.next_job(self.of.now_ms)
                if chosen is not None:
                    assert self.of.cleaner.finish(chosen[0], compact(self.of.disk, chosen[1]), self.of.now_ms)

    @staticmethod
    def _placed(first: int, rows: list[tuple[bytes, bytes | None]]) -> list[tuple[int, bytes, bytes | None]]:
        return [(first + number, key, value) for number, (key, value) in enumerate(rows)]

    def check(self) -> None:
        """The table that a consumer builds from the log is the one that it would have built from all that was written."""
        log = self.of.log
        log.move_high_watermark(log.end_offset)
        seen = [(offset, key, value) for offset, _, key, value in consumed(log)]
        written = sorted(row for row in self.committed if row[0] < log.last_stable_offset)
        assert {*seen} <= {*written}
        assert table(seen) == table(written)
        assert {row for rows in self.open.values() for row in rows} <= {*self.of.rows()}


def table(rows: Iterable[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    last = {key: value for _, key, value in rows}
    return {key: value for key, value in last.items() if value is not None}


FIRST_PASS_BEGINS_WITH_A_MARKER = [
    ("plain", [(b"b", b"1")]),
    ("transactional", 8, [(b"a", None)]),
    ("roll",),
    ("end", 8, False),
    ("transactional", 8, [(b"b", None)]),
    ("compact", 0),
    ("end", 8, True),
]


@settings(max_examples=150)
@given(st.lists(steps, max_size=40))
@example(FIRST_PASS_BEGINS_WITH_A_MARKER)
def test_a_table_built_from_the_log_is_the_same_before_and_after(story: list[tuple[object, ...]]) -> None:
    played = History()
    for step in story:
        played.play(step)
        played.check()
    for _ in range(2):
        played.play(("compact", 2 * HOUR_MS))
        played.check()
    check_indexes(played.of.log)
