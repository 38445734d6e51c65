"""Groups: committed offsets are kept, members begin where the group stopped, and a partition has one owner.

Who owns a partition is known by what its coordinator accepts: once another member was given it, a commit of the one who had it is
refused. That both believe to own it for a while, because one has not been told yet, is in the nature of things.
"""

from tests.checker import history
from tests.checker.committed import BEFORE_ALL, NOBODY, Register
from tests.checker.evidence import Evidence
from tests.checker.facts import Partition
from tests.checker.history import UNKNOWN_OFFSET, AnyEvent, Polled, Position
from tests.checker.report import Report
from tests.checker.writes import name

Share = tuple[str, str, int]  # group, topic, partition


def check(known: Evidence) -> Report:
    report = Report()
    offsets, owners = Offsets(known, report), Owners(report)
    for at, event in enumerate(known.events):
        offsets.take(at, event)
        owners.take(event)
    return report


def shares(group: str, positions: list[Position]) -> list[tuple[Share, int]]:
    return [((group, each.topic, each.partition), each.offset) for each in positions]


class Offsets:
    """What was committed, and what was seen of it."""

    def __init__(self, known: Evidence, report: Report) -> None:
        self.known = known
        self.report = report
        self.registers: dict[Share, Register] = {}
        self.commits: dict[int, tuple[int, history.CommitBegun]] = {}
        self.of_transaction: dict[int, list[tuple[int, Share, int]]] = {}
        self.asked: dict[int, dict[Share, int]] = {}  # what was the newest of each, when somebody asked
        self.generations: dict[Share, int] = {}
        self.told: dict[tuple[str, Share], int] = {}  # what each client was told last, until it begins there
        self.starts: dict[tuple[str, Partition], tuple[int, history.Assigned]] = {}  # at offsets that the client did not say

    def take(self, at: int, event: AnyEvent) -> None:
        match event:
            case history.CommitBegun():
                self._begun(at, event)
            case history.CommitEnded():
                self._ended(at, event)
            case history.TransactionEnding(is_commit=True):
                for commit, share, offset in self.of_transaction.get(event.id, []):
                    self._register(share).begin(commit, offset, at)
            case history.TransactionEnded():
                self._transaction_ended(at, event)
            case history.CommittedAsked():
                newest = {share: each.newest for share, each in self.registers.items() if share[0] == event.group}
                self.asked[event.id] = newest
            case history.CommittedSeen():
                self._seen(event)
            case history.Assigned() if event.group:
                self._assigned(at, event)
            case history.Revoked():
                for each in event.partitions:
                    self.starts.pop((event.client, (each.topic, each.partition)), None)
            case history.Moved():
                self.starts.pop((event.client, (event.topic, event.partition)), None)
            case history.MemberEnded():
                self.starts = {key: start for key, start in self.starts.items() if key[0] != event.client}
            case Polled():
                self._polled(event)
            case history.LossAllowed() if not event.topics:
                for register in self.registers.values():
                    register.forget(at)
            case _:
                pass  # nothing is committed by it

    def _register(self, share: Share) -> Register:
        return self.registers.setdefault(share, Register())

    def _begun(self, at: int, event: history.CommitBegun) -> None:
        self.commits[event.id] = at, event
        for share, offset in shares(event.group, event.offsets):
            if event.transaction is None:
                self._register(share).begin(event.id, offset, at, event.client if event.member else NOBODY)
            else:
                self.of_transaction.setdefault(event.transaction, []).append((event.id, share, offset))

    def _ended(self, at: int, event: history.CommitEnded) -> None:
        begun, commit = self.commits[event.id]
        self.report.looked_at("commits acknowledged", len(event.acknowledged))
        self.report.looked_at("commits refused", len(event.refused))
        refused = shares(commit.group, event.refused)
        if commit.transaction is not None:
            waiting = self.of_transaction[commit.transaction]
            for share, offset in refused:
                waiting.remove((event.id, share, offset))
            return
        for share, offset in refused:
            self.registers[share].refuse(event.id, offset)
        for share, offset in shares(commit.group, event.acknowledged):
            self.registers[share].acknowledge(event.id, offset, begun, at, is_final=event.attempts == 1)

    def _transaction_ended(self, at: int, event: history.TransactionEnded) -> None:
        transaction = self.known.transactions[event.id]
        for commit, share, offset in self.of_transaction.get(event.id, []):
            if event.outcome == "committed":
                self._register(share).acknowledge(commit, offset, transaction.ending, at, is_final=True)
            elif event.outcome == "aborted":
                self._register(share).begin(commit, offset, at)  # where nobody had asked for a commit
                self._register(share).refuse(commit, offset)

    def _seen(self, event: history.CommittedSeen) -> None:
        newest = self.asked.pop(event.id)
        for share, offset in shares(event.group, event.offsets):
            self.report.looked_at("committed offsets seen")
            self._check(event, share, offset, newest.get(share, BEFORE_ALL))
            self.told[event.client, share] = offset

    def _check(self, event: history.CommittedSeen, share: Share, offset: int, newest: int) -> None:
        register = self._register(share)
        is_forgotten = offset == UNKNOWN_OFFSET and self.known.is_topic_deleted(share[1])
        if register.may_be(offset, newest):
            register.see(offset)
            return
        if is_forgotten:
            return
        group, topic, index = share
        what = "nothing" if offset == UNKNOWN_OFFSET else offset
        may = [each for each in register.possible(newest) if each != UNKNOWN_OFFSET]
        sentence = f"{event.client} sees {what} committed by {group} for {topic}-{index}; what can be is {may}"
        self.report.found("committed_offset", sentence, event)

    # -- the start of an assignment

    def _assigned(self, at: int, event: history.Assigned) -> None:
        for share, offset in shares(event.group, event.fresh):
            if event.generation >= self.generations.get(share, event.generation):  # or it hears of it late
                self.generations[share] = event.generation
                self._register(share).settle(event.client, at)
            if offset == UNKNOWN_OFFSET:
                self.starts[event.client, share[1:]] = self._register(share).newest, event
                continue
            self.starts.pop((event.client, share[1:]), None)
            committed = self.told.pop((event.client, share), UNKNOWN_OFFSET)
            if committed != UNKNOWN_OFFSET:
                self.report.looked_at("starts of assignments")
            if committed not in (UNKNOWN_OFFSET, offset):
                what = f"{event.client} begins with {name(share[1:])} at {offset}"
                self.report.found("start_of_assignment", f"{what}, and was told that {committed} is committed", event)

    def _polled(self, event: Polled) -> None:
        if not self.starts:
            return
        for record in event.records:
            partition = record.topic, record.partition
            if (begun := self.starts.pop((event.client, partition), None)) is not None:
                self._check_start(*begun, event, partition, record.offset)

    def _check_start(self, newest: int, assigned: history.Assigned, event: Polled, partition: Partition, offset: int) -> None:
        """The first record that is given is at a committed offset, or is the next that there is to give."""
        self.report.looked_at("starts of assignments")
        possible = self._register((assigned.group, *partition)).possible(newest)
        if not possible or possible[0] == UNKNOWN_OFFSET:  # as auto.offset.reset says
            return
        what = f"{event.client} begins with {name(partition)} at {offset}"
        if offset < possible[0]:
            self.report.found("start_of_assignment", f"{what}, {assigned.group} had committed {possible[0]}", assigned, event)
        log = self.known.log(*partition)
        places = self.known.places(log)
        for missed in range(possible[-1], offset):
            if missed in places and self.known.is_visible(log, missed, places[missed], event.isolation):
                sentence = (
                    f"{what}, {assigned.group} had committed no more than {possible[-1]}: {places[missed].value!r} is left out"
                )
                self.report.found("start_of_assignment", sentence, assigned, event)
                break


class Owners:
    """Who was given a partition last, and whose commits are accepted."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.owners: dict[Share, tuple[str, int, AnyEvent]] = {}
        self.commits: dict[int, tuple[history.CommitBegun, dict[Share, AnyEvent]]] = {}  # what others had been given by then

    def take(self, event: AnyEvent) -> None:
        match event:
            case history.Assigned() if event.group:
                for share, _ in shares(event.group, event.fresh + event.kept):
                    self._own(event, share)
            case history.Revoked() if event.group:
                for share, _ in shares(event.group, event.partitions):
                    if share in self.owners and self.owners[share][0] == event.client:
                        del self.owners[share]
            case history.MemberEnded():
                self.owners = {share: owner for share, owner in self.owners.items() if owner[0] != event.client}
            case history.CommitBegun() if event.member:
                others = {share: self.owners[share] for share, _ in shares(event.group, event.offsets) if share in self.owners}
                given = {share: assigned for share, (client, _, assigned) in others.items() if client != event.client}
                self.commits[event.id] = event, given
            case history.CommitEnded() if event.id in self.commits:
                self._committed(event)
            case _:
                pass  # it gives nobody anything

    def _own(self, event: history.Assigned, share: Share) -> None:
        client, generation, assigned = self.owners.get(share, (event.client, event.generation, event))
        if client != event.client and generation >= 0:
            if generation == event.generation:
                sentence = (
                    f"{share[1]}-{share[2]} of {share[0]} is given to {client} and {event.client} in generation {generation}"
                )
                self.report.found("two_owners", sentence, assigned, event)
            if 0 <= event.generation < generation:
                return  # it hears late of what has been changed since
        self.owners[share] = event.client, event.generation, event

    def _committed(self, event: history.CommitEnded) -> None:
        commit, given = self.commits.pop(event.id)
        for share, _ in shares(commit.group, event.acknowledged):
            if share in given and share in self.owners and self.owners[share][2] is given[share]:
                owner = self.owners[share][0]
                sentence = f"{commit.client} commits {share[1]}-{share[2]} of {share[0]}, which {owner} has been given"
                self.report.found("two_owners", sentence, given[share], commit, event)
