"""Each record has one result: rules on histories of a group that reads and writes in transactions."""

from tests.checker import history
from tests.checker.check import check
from tests.checker.history import AnyEvent, FinalRead, History, Record, SendBegun, SendEnded, Source


def sent(number: int, topic: str, offset: int, transaction: int | None, source: Source | None = None) -> list[AnyEvent]:
    value = f"value-{number}"
    return [
        SendBegun(0, "writer", number, topic, 0, None, value, "writer", -1, True, transaction, source),
        SendEnded(0, "writer", number, "acknowledged", offset),
    ]


def transaction(number: int, is_commit: bool, *events: AnyEvent) -> list[AnyEvent]:
    return [
        history.TransactionBegun(0, "writer", number, "id", "writer"),
        *events,
        history.TransactionEnding(0, "writer", number, is_commit),
        history.TransactionEnded(0, "writer", number, "committed" if is_commit else "aborted"),
    ]


def read(topic: str, values: dict[int, str], log_end: int) -> list[AnyEvent]:
    records = [Record(topic, 0, offset, None, value) for offset, value in values.items()]
    return [FinalRead(0, "end", topic, 0, 0, log_end, records, "read_committed")]


def rules(*events: AnyEvent) -> list[str]:
    return [each.rule for each in check(History(events)).violations]


FIRST, SECOND = Source("group", "input", 0, 0), Source("group", "input", 0, 1)
INPUT = [*sent(1, "input", 0, None), *sent(2, "input", 1, None)]


def test_a_record_has_one_result_however_often_it_was_tried() -> None:
    aborted = transaction(10, False, *sent(3, "output", 0, 10, FIRST))
    committed = transaction(11, True, *sent(4, "output", 2, 11, FIRST), *sent(5, "output", 3, 11, SECOND))
    ends = read("input", {0: "value-1", 1: "value-2"}, 2) + read("output", {2: "value-4", 3: "value-5"}, 5)
    assert rules(*INPUT, *aborted, *committed, *ends) == []


def test_two_results_of_one_record_are_found() -> None:
    once = transaction(10, True, *sent(3, "output", 0, 10, FIRST))
    again = transaction(11, True, *sent(4, "output", 2, 11, FIRST), *sent(5, "output", 3, 11, SECOND))
    ends = read("input", {0: "value-1", 1: "value-2"}, 2) + read("output", {0: "value-3", 2: "value-4", 3: "value-5"}, 5)
    assert rules(*INPUT, *once, *again, *ends) == ["processed_twice"]


def test_a_record_without_a_result_is_found() -> None:
    once = transaction(10, True, *sent(3, "output", 0, 10, SECOND))
    ends = read("input", {0: "value-1", 1: "value-2"}, 2) + read("output", {0: "value-3"}, 2)
    assert rules(*INPUT, *once, *ends) == ["unprocessed"]


def test_what_retention_may_have_taken_needs_no_result() -> None:
    may = history.RemovalAllowed(0, "administrator", "input", "delete")
    once = transaction(10, True, *sent(3, "output", 0, 10, SECOND))
    ends = read("input", {0: "value-1", 1: "value-2"}, 2) + read("output", {0: "value-3"}, 2)
    assert rules(may, *INPUT, *once, *ends) == []
