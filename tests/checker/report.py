"""What a check found, and how much it looked at: a check that saw nothing proves nothing.

Invariants
 1. A violation names its rule, says in a sentence what is wrong, and holds the events that show it.
"""

from collections import Counter
from typing import Final

import msgspec

from tests.checker.history import AnyEvent

EXAMPLES_MAX: Final = 3  # of a rule, for people
EVENT_CHARACTERS_MAX: Final = 300

RULES: Final = {
    "unique_values": "a value is sent once under its key (or the workload cannot be judged)",
    "unread_log": "a partition with acknowledged records is read in the end (or it cannot be judged)",
    "lost_write": "what was acknowledged with acks=all, or read by anybody, is there in the end",
    "two_values": "an offset has one value, for all readers, all acknowledgements, and the final reading",
    "duplicate": "a record is there once; without idempotence a retry may repeat it",
    "never_sent": "what is read was sent, to that partition, before it was read",
    "earlier_topic": "what was sent to a topic is in none that was made anew under its name",
    "refused_read": "what was refused for sure is never read",
    "order_of_sends": "what an idempotent producer sent to a partition is in the order of its sends",
    "removed_without_leave": "a log starts where retention or DeleteRecords may have moved it, not later",
    "deleted_records": "records that were deleted do not come back",
    "nonmonotonic_poll": "within an assignment a reader never goes back",
    "skipped_poll": "within an assignment a reader skips nothing that others saw",
    "unseen_record": "a reader does not pass an acknowledged record without seeing it",
    "denied_position": "who has come to an offset is not told that there is none, so that it would go back",
    "aborted_read": "read_committed never gives a record of an aborted transaction",
    "torn_transaction": "of a transaction all is visible, or nothing",
    "read_above_last_stable_offset": "read_committed never passes a transaction that is still open",
    "precommitted_read": "a transaction does not read, in read_committed, what it has written itself",
    "processed_twice": "of a record that a group processes in transactions with its offsets there is one result",
    "unprocessed": "what is behind the offsets of such a group has its result",
    "write_cycle": "there is one order of all writes that agrees with offsets and with time (G0)",
    "read_write_cycle": "there is one order of all writes and reads that agrees with offsets, transactions and time (G1c)",
    "committed_offset": "a committed offset is one that was committed, and no newer one was acknowledged before",
    "start_of_assignment": "a member begins where its group had committed",
    "two_owners": "a partition of a group has one owner at a time",
    "topic": "a topic is there when its creation was acknowledged, and gone when its deletion was",
    "last_value": "compaction keeps the last value of every key",
    "tombstone": "a tombstone is not removed before what it deletes",
}


class Violation(msgspec.Struct):
    rule: str
    sentence: str
    events: list[AnyEvent]

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


class Report(msgspec.Struct):
    violations: list[Violation] = []
    checked: dict[str, int] = {}

    def found(self, rule: str, sentence: str, *events: AnyEvent) -> None:
        assert rule in RULES
        self.violations.append(Violation(rule, sentence, list(events)))

    def looked_at(self, what: str, count: int = 1) -> None:
        self.checked[what] = self.checked.get(what, 0) + count

    def add(self, other: "Report") -> None:
        self.violations += other.violations
        for what, count in other.checked.items():
            self.looked_at(what, count)

    @property
    def is_well(self) -> bool:
        return not self.violations

    @property
    def by_rule(self) -> dict[str, int]:
        return dict(Counter(each.rule for each in self.violations))

    def __str__(self) -> str:
        """For people: the figures, then some examples of each rule that was broken, with their events."""
        lines = ["checked: " + ", ".join(f"{count} {what}" for what, count in self.checked.items())]
        for rule, count in self.by_rule.items():
            lines.append(f"{rule}, {count} times; the rule: {RULES[rule]}")
            for each in [each for each in self.violations if each.rule == rule][:EXAMPLES_MAX]:
                lines.append(f"  {each.sentence}")
                lines += [f"    {str(event)[:EVENT_CHARACTERS_MAX]}" for event in each.events]
        if self.is_well:
            lines.append("no violation")
        return "\n".join(lines)
