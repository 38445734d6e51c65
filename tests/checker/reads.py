"""Within an assignment a reader gets every record once, in the order of the log, and passes none that it should have got.

Offsets may be left out where nothing is to be given there: markers of transactions, what was aborted, what compaction took. So a
gap is a fault only where somebody is known to have put a record. Two records of one poll are held to the same (internal) as the
last of one poll and the first of the next (external). Who begins past the start of a log says so with `Moved`.
"""

from bisect import bisect_left

from tests.checker import history
from tests.checker.evidence import Evidence
from tests.checker.facts import Log, Partition, is_made_anew
from tests.checker.history import UNKNOWN_OFFSET, Polled, Position
from tests.checker.report import Report
from tests.checker.writes import name


def check(known: Evidence) -> Report:
    reading = Reading(known)
    for at, event in enumerate(known.events):
        reading.take(at, event)
    return reading.report


class Reading:
    """Follows all readers through the history."""

    def __init__(self, known: Evidence) -> None:
        self.known = known
        self.report = Report()
        self.positions: dict[str, dict[Partition, int]] = {}  # by client, of what comes next
        self.last: dict[tuple[str, Partition], history.AnyEvent] = {}  # that moved the position
        self.offsets: dict[Log, list[int]] = {}  # of each log, in order

    def take(self, at: int, event: history.AnyEvent) -> None:
        match event:
            case history.Assigned():
                self._assigned(event)
            case history.Revoked():
                for each in event.partitions:
                    self._own(event.client).pop((each.topic, each.partition), None)
            case history.MemberEnded():
                self.positions.pop(event.client, None)
            case history.Moved():
                self._moved(at, event)
            case Polled():
                self._polled(at, event)
            case _:
                pass  # it moves no reader

    def _own(self, client: str) -> dict[Partition, int]:
        return self.positions.setdefault(client, {})

    def _moved(self, at: int, event: history.Moved) -> None:
        """An offset that a group has committed by the name of a topic may be one of another of that name, and so may be where
        logs part: epochs are asked for by names."""
        partition = event.topic, event.partition
        here = self._own(event.client).get(partition)
        is_back = here is not None and UNKNOWN_OFFSET != event.offset < here
        if is_back and is_made_anew(event.topic):
            is_back = event.why == "out of range" and isinstance(self.last[event.client, partition], Polled)
        if is_back and event.why != "seek" and not self.known.losses.count(event.topic, at):
            sentence = f"{event.client} is told that there is no offset {here} in {name(partition)}, and goes to {event.offset}"
            self.report.found("denied_position", sentence, self.last[event.client, partition], event)
        self._move(event, Position(event.topic, event.partition, event.offset))

    def _move(self, event: history.AnyEvent, to: Position) -> None:
        partition = to.topic, to.partition
        if to.offset == UNKNOWN_OFFSET:
            self._own(event.client).pop(partition, None)
        else:
            self._own(event.client)[partition] = to.offset
            self.last[event.client, partition] = event

    def _assigned(self, event: history.Assigned) -> None:
        self.report.looked_at("assignments")
        for each in event.fresh:
            self._move(event, each)
        for each in event.kept:
            here = self._own(event.client).get((each.topic, each.partition))
            if here is None:
                self._move(event, each)
            elif each.offset not in (UNKNOWN_OFFSET, here):
                rule = "nonmonotonic_poll" if each.offset < here else "skipped_poll"
                sentence = f"{event.client} kept {each.topic}-{each.partition} and goes on at {each.offset}, not at {here}"
                self.report.found(rule, sentence, self.last[event.client, (each.topic, each.partition)], event)
                self._move(event, each)

    def _polled(self, at: int, event: Polled) -> None:
        self.report.looked_at("polls")
        self.report.looked_at("records polled", len(event.records))
        own = self._own(event.client)
        for record in event.records:
            self._pass(at, event, (record.topic, record.partition), record.offset)
            own[record.topic, record.partition] = record.offset + 1
            self.last[event.client, (record.topic, record.partition)] = event
        for position in event.positions:
            if position.offset != UNKNOWN_OFFSET:
                self._pass(at, event, (position.topic, position.partition), position.offset)
                self._move(event, position)

    def _pass(self, at: int, event: Polled, partition: Partition, offset: int) -> None:
        """The reader goes to `offset` from where it was."""
        here = self._own(event.client).get(partition)
        if here is None or offset == here:
            return
        before = self.last[event.client, partition]
        how = "within one poll" if before is event else "between two polls"
        if offset < here:
            sentence = f"{event.client} goes back in {name(partition)} from {here} to {offset} {how}"
            self.report.found("nonmonotonic_poll", sentence, before, event)
            return
        log = self.known.log(*partition, self.known.poll_begun[at])
        places = self.known.places(log)
        for missed in self._between(log, here, offset):
            place = places[missed]
            if self.known.is_visible(log, missed, place, event.isolation):
                rule = "unseen_record" if place.acknowledged else "skipped_poll"
                way = f"goes in {name(partition)} from {here} to {offset} {how}"
                sentence = f"{event.client} {way}, past {place.value!r} at {missed}"
                self.report.found(rule, sentence, before, event, self.known.events[place.at])

    def _between(self, log: Log, here: int, there: int) -> list[int]:
        """The offsets at which somebody saw a record."""
        if log not in self.offsets:
            self.offsets[log] = sorted(self.known.places(log))
        offsets = self.offsets[log]
        return offsets[bisect_left(offsets, here) : bisect_left(offsets, there)]
