"""All rules on one history."""

from tests.checker import compaction, cycles, groups, processing, reads, topics, transactions, writes
from tests.checker.evidence import Evidence
from tests.checker.history import History
from tests.checker.incarnations import told_apart
from tests.checker.report import Report


def check(history: History) -> Report:
    report = Report()
    report.looked_at("events", len(history.events))
    known = Evidence(told_apart(history.events))
    for family in (writes, reads, transactions, processing, cycles, groups, topics, compaction):
        report.add(family.check(known))
    return report
