"""A transaction is seen as a whole, when it is committed, or never; by those who read committed records only.

What became of one whose client heard nothing is told by its readers: it was committed if anybody saw a record of it.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from tests.checker.evidence import Evidence
from tests.checker.facts import NEVER, Partition, Send, Transaction
from tests.checker.history import AnyEvent, FinalRead, Polled, Record
from tests.checker.report import Report
from tests.checker.writes import final_of, is_deleted, name, without_records


def check(known: Evidence) -> Report:
    report = Report()
    for state in ("committed", "aborted", "unknown"):
        report.looked_at(f"transactions {state}", sum(each.state == state for each in known.transactions.values()))
    for at, event, record in _committed_reads(known):
        send = known.sender(record, at)
        if send is not None and send.event.transaction is not None:
            _check_read(at, event, record, send, known.transactions[send.event.transaction], report)
    _check_last_stable_offset(known, report)
    for transaction in known.transactions.values():
        if transaction.state == "committed":
            _check_whole(known, transaction, report)
    return report


def _committed_reads(known: Evidence) -> Iterator[tuple[int, Polled | FinalRead, Record]]:
    """All records that were read in read_committed, and when."""
    polls: list[tuple[int, Polled | FinalRead]] = [*known.polls]
    finals = [(NEVER - 1, reading) for readings in known.finals.values() for reading in readings.values()]
    for at, event in polls + finals:
        if event.isolation == "read_committed":
            for record in event.records:
                yield at, event, record


def _check_read(at: int, event: Polled | FinalRead, record: Record, send: Send, transaction: Transaction, report: Report) -> None:
    report.looked_at("records of transactions read")
    told: AnyEvent = event if isinstance(event, Polled) else without_records(event)
    what = f"{event.client} reads {record.value!r} at offset {record.offset} of {record.topic}-{record.partition}"
    if isinstance(event, Polled) and event.transaction == transaction.id:
        report.found("precommitted_read", f"{what} in the transaction that wrote it", send.event, told)
    elif transaction.state == "aborted":
        report.found("aborted_read", f"{what}, of transaction {transaction.id}, which is aborted", send.event, told)
    elif at < transaction.ending:
        report.found("read_above_last_stable_offset", f"{what}, of a transaction that is open", send.event, told)


def _check_last_stable_offset(known: Evidence, report: Report) -> None:
    """Who reads past a record of a transaction reads after its end was asked for.

    Only of transactions that were committed in the end it is known that nobody else, as a time-out, had ended them before. A
    record that was deleted may have been so before its transaction ended: nothing of that is left then to wait for."""
    open_until: dict[Partition, list[tuple[int, int]]] = {}
    for transaction in known.transactions.values():
        if transaction.state == "committed" and not any(known.losses.count(send.event.topic) for send in transaction.sends):
            for send in transaction.sends:
                partition = send.event.topic, send.event.partition
                final = final_of(known, partition)
                is_gone = is_deleted(known, partition, final, send.offset)
                if send.outcome == "acknowledged" and send.offset >= 0 and not is_gone:
                    open_until.setdefault(partition, []).append((send.offset, transaction.ending))
    ends = {partition: list(accumulate((end for _, end in sorted(pairs)), max)) for partition, pairs in open_until.items()}
    for pairs in open_until.values():
        pairs.sort()
    for at, event in known.polls:
        if event.isolation != "read_committed":
            continue
        for record in event.records:
            pairs = open_until.get((record.topic, record.partition), [])
            below = bisect_left(pairs, (record.offset, 0))
            if below and ends[record.topic, record.partition][below - 1] > at:
                what = f"{event.client} reads offset {record.offset} of {record.topic}-{record.partition}"
                report.found("read_above_last_stable_offset", f"{what}, above a transaction that is open", event)


def _check_whole(known: Evidence, transaction: Transaction, report: Report) -> None:
    for send in transaction.sends:
        partition = send.event.topic, send.event.partition
        final = known.finals.get(partition, {}).get("read_committed")
        if final is None or send.outcome != "acknowledged" or send.offset < 0 or partition[0] in known.compacted:
            continue
        if is_deleted(known, partition, final, send.offset) or known.losses.count(partition[0], send.begun) != known.losses.count(
            partition[0]
        ):
            continue
        report.looked_at("records of transactions looked for")
        if send.offset not in known.offsets_of(final):
            sentence = (
                f"{send} at offset {send.offset} of {name(partition)} is not there, transaction {transaction.id} is committed"
            )
            report.found("torn_transaction", sentence, send.event, known.events[send.ended], without_records(final))
