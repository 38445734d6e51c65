"""What a history says, put in order: sends with their ends, transactions with theirs, and which record is at which offset.

One pass over the events; the rules look things up here.

Invariants
 1. A record is at an offset if an acknowledgement with acks=all, a reader, or the final reading says so. What a leader alone
    acknowledged (acks=1) may have been cut off, and says nothing.
 2. What was seen before a loss that is allowed is not held against what is seen after it: each time between has its own log.
"""

from collections.abc import Sequence

import msgspec

from tests.checker import history
from tests.checker.facts import NEVER, Conflict, Log, Partition, Place, Send, Transaction, name_of
from tests.checker.history import UNKNOWN_OFFSET, AnyEvent, FinalRead, Isolation, Polled, Record, SendBegun
from tests.checker.losses import Losses


class Evidence:
    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.events = events
        self.sends: dict[int, Send] = {}
        self.sent: dict[tuple[str, int, str | None, str | None], Send] = {}
        self.sent_by_name: dict[tuple[str, int, str | None, str | None], Send] = {}  # to any topic of a name
        self.sent_again: list[Send] = []
        self.first_acknowledged: dict[tuple[str, int, str], int] = {}  # by topic, partition and producer: when
        self.transactions: dict[int, Transaction] = {}
        self.logs: dict[Log, dict[int, Place]] = {}
        self.conflicts: list[Conflict] = []
        self.finals: dict[Partition, dict[Isolation, FinalRead]] = {}
        self.finals_at: dict[Partition, int] = {}  # when the first of them had not asked yet where the log ends
        self.polls: list[tuple[int, Polled]] = []  # those that overlap no loss, and when they ended
        self.poll_begun: dict[int, int] = {}  # of each that ended, when it began
        self.compacted: set[str] = set()
        self.retained: set[str] = set()  # topics with retention
        self.deletable: dict[Partition, int] = {}  # below it DeleteRecords was asked for
        self.deletions: dict[int, history.DeletionBegun] = {}
        self.deleted: dict[Partition, tuple[int, int]] = {}  # the highest that was acknowledged, and when
        self.deleted_topics: set[str] = set()
        self.loose_tombstones: set[tuple[str, int, str | None]] = set()  # of keys that may have been deleted at any offset
        self.losses = Losses(events)
        self._poll_begun: dict[str, int] = {}
        self._last_of_key: dict[Log, dict[str | None, int]] = {}
        self._offsets: dict[tuple[str, int, Isolation], frozenset[int]] = {}
        for at, event in enumerate(events):
            self._take(at, event)
        self._resolve_transactions()
        self._find_loose_tombstones()

    @property
    def partitions(self) -> list[Partition]:
        """All of which anything is known, in the order in which they came up."""
        return list(dict.fromkeys([*((topic, index) for topic, index, _ in self.logs), *self.finals]))

    # -- looking things up

    def log(self, topic: str, partition: int, at: int = NEVER) -> Log:
        """The one that there was at that time."""
        return topic, partition, self.losses.count(topic, at)

    def places(self, log: Log) -> dict[int, Place]:
        return self.logs.get(log, {})

    def send_of(self, log: Log, place: Place) -> Send | None:
        """Tombstones have no value to know them by: only who was told of its offset is known to have sent one."""
        if place.value is not None:
            return self.sent.get((log[0], log[1], place.key, place.value))
        send = place.acknowledged
        return send if send is not None and send.event.key == place.key and send.event.value is None else None

    def sender(self, record: Record, at: int = NEVER) -> Send | None:
        """Who sent what was read at that time."""
        log = self.log(record.topic, record.partition, at)
        place = self.places(log).get(record.offset)
        if place is None or (place.key, place.value) != (record.key, record.value):
            place = Place(record.key, record.value, at, is_read=True)  # another says otherwise
        return self.send_of(log, place)

    def sent_to_another(self, log: Log, place: Place) -> Send | None:
        """To a topic of the same name, and not to this one."""
        if place.value is None or (log[0], log[1], place.key, place.value) in self.sent:
            return None
        return self.sent_by_name.get((name_of(log[0]), log[1], place.key, place.value))

    def state_of(self, send: Send) -> str:
        """Whether a record is visible in read_committed: committed, aborted, or unknown."""
        transaction = send.event.transaction
        return "committed" if transaction is None else self.transactions[transaction].state

    def is_visible(self, log: Log, offset: int, place: Place, isolation: Isolation) -> bool:
        """Whether every reader that passes what is at the offset has to get it."""
        if isolation == "read_committed":
            send = self.send_of(log, place)
            if send is None or self.state_of(send) != "committed":
                return False
        return not self.is_compactable(log, offset, place)

    def offsets_of(self, final: FinalRead) -> frozenset[int]:
        key = final.topic, final.partition, final.isolation
        if key not in self._offsets:
            self._offsets[key] = frozenset(record.offset for record in final.records)
        return self._offsets[key]

    def is_before_loss(self, topic: str, at: int) -> bool:
        """Whether it may be gone, because something happened after which it may."""
        return self.losses.count(topic, at) != self.losses.count(topic)

    def is_topic_deleted(self, topic: str) -> bool:
        """Whether anybody asked for it, whatever the answer was."""
        return topic in self.deleted_topics

    def is_compactable(self, log: Log, offset: int, place: Place) -> bool:
        topic, partition, _ = log
        if topic not in self.compacted:
            return False
        if log != self.log(topic, partition):
            return True  # what came in its place may have been lost before anybody saw it
        is_deleted = place.value is None or (topic, partition, place.key) in self.loose_tombstones
        is_kept = self._state(log, place) == "committed"  # one of which nobody knows how it ended may have been aborted
        return is_deleted or not is_kept or offset < self.last_of_key(log).get(place.key, offset)

    def _state(self, log: Log, place: Place) -> str:
        send = self.send_of(log, place)
        return "committed" if send is None else self.state_of(send)

    def last_of_key(self, log: Log) -> dict[str | None, int]:
        """What compaction has to keep. Aborted records go, and take nobody's place."""
        if log not in self._last_of_key:
            places = sorted(self.places(log).items())
            self._last_of_key[log] = {place.key: offset for offset, place in places if self._state(log, place) != "aborted"}
        return self._last_of_key[log]

    # -- taking events in

    def _take(self, at: int, event: AnyEvent) -> None:
        match event:
            case SendBegun():
                self._send_begun(at, event)
            case history.SendEnded():
                self._send_ended(at, event)
            case history.PollBegun():
                self._poll_begun[event.client] = at
            case Polled():
                self._polled(at, event)
            case FinalRead():
                self._final(at, event)
            case history.TransactionBegun() | history.TransactionEnding() | history.TransactionEnded():
                self._transaction(at, event)
            case history.RemovalAllowed():
                (self.compacted if event.policy == "compact" else self.retained).add(event.topic)
            case history.DeletionBegun():
                self._deletion_begun(event)
            case history.DeletionEnded():
                self._deletion_ended(at, event)
            case history.TopicBegun(change="delete"):
                self.deleted_topics.add(event.topic)
            case _:
                pass  # of readers and groups, which are looked at in order

    def _send_begun(self, at: int, event: SendBegun) -> None:
        send = self.sends[event.id] = Send(event, at)
        known = self.sent.setdefault((event.topic, event.partition, event.key, event.value), send)
        self.sent_by_name.setdefault((name_of(event.topic), event.partition, event.key, event.value), send)
        if known is not send and event.value is not None:
            self.sent_again.append(send)
        if event.transaction is not None:
            self.transactions[event.transaction].sends.append(send)

    def _send_ended(self, at: int, event: history.SendEnded) -> None:
        send = self.sends[event.id]
        send.ended, send.outcome, send.offset, send.attempts = at, event.outcome, event.offset, event.attempts
        sent = send.event
        if event.outcome == "acknowledged":
            self.first_acknowledged.setdefault((sent.topic, sent.partition, sent.producer), at)
        if event.outcome != "acknowledged" or event.offset == UNKNOWN_OFFSET or sent.acks != -1:
            return
        place = self._observe(
            Record(sent.topic, sent.partition, event.offset, sent.key, sent.value), send.begun, at, is_read=False
        )
        if place is not None:
            place.acknowledged = place.acknowledged or send

    def _observe(self, record: Record, begun: int, at: int, is_read: bool) -> Place | None:
        """What overlaps a loss may be of before or of after, and shows nothing."""
        topic, partition, offset, key, value = msgspec.structs.astuple(record)
        where = self.log(topic, partition, at)
        if where != self.log(topic, partition, begun):
            return None
        log = self.logs.setdefault(where, {})
        place = log.get(offset)
        if place is None:
            place = log[offset] = Place(key, value, at, is_read)
        elif place.value != value or place.key != key:
            self.conflicts.append(Conflict((topic, partition), offset, place, value, at))
        place.is_read |= is_read
        return place

    def _polled(self, at: int, event: Polled) -> None:
        begun = self._poll_begun.pop(event.client, at)
        self.poll_begun[at] = begun
        if not self.losses.overlap(begun, at):
            self.polls.append((at, event))
        for each in event.records:
            self._observe(each, begun, at, is_read=True)

    def _final(self, at: int, event: FinalRead) -> None:
        self.finals.setdefault((event.topic, event.partition), {})[event.isolation] = event
        self.finals_at.setdefault((event.topic, event.partition), self._poll_begun.pop(event.client, at))
        for each in event.records:
            self._observe(each, at, at, is_read=True)

    def _deletion_begun(self, event: history.DeletionBegun) -> None:
        self.deletions[event.id] = event
        where = event.topic, event.partition
        self.deletable[where] = max(event.offset, self.deletable.get(where, 0))

    def _deletion_ended(self, at: int, event: history.DeletionEnded) -> None:
        begun = self.deletions[event.id]
        where = begun.topic, begun.partition
        if event.outcome == "acknowledged":
            self.deleted[where] = max((begun.offset, at), self.deleted.get(where, (0, 0)))

    def _transaction(
        self, at: int, event: history.TransactionBegun | history.TransactionEnding | history.TransactionEnded
    ) -> None:
        if isinstance(event, history.TransactionBegun):
            self.transactions[event.id] = Transaction(event.id, at)
            return
        transaction = self.transactions[event.id]
        if isinstance(event, history.TransactionEnding):
            transaction.ending = at
            transaction.state = "unknown" if event.is_commit else "aborted"
        elif event.outcome != "unknown":
            transaction.ended, transaction.state = at, event.outcome

    def _resolve_transactions(self) -> None:
        """One of which somebody saw a record in read_committed was committed, whatever its client heard."""
        readings: list[tuple[int, Polled | FinalRead]] = [*self.polls]
        readings += [(NEVER, reading) for each in self.finals.values() for reading in each.values()]
        for at, event in readings:
            for record in event.records if event.isolation == "read_committed" else []:
                send = self.sender(record, at)
                if send is not None and send.event.transaction is not None:
                    transaction = self.transactions[send.event.transaction]
                    if transaction.state == "unknown":
                        transaction.state = "committed"

    def _find_loose_tombstones(self) -> None:
        for send in self.sends.values():
            sent = send.event
            if sent.value is None and send.outcome != "refused":
                place = self.places(self.log(sent.topic, sent.partition)).get(send.offset)
                if place is None or place.acknowledged is not send:
                    self.loose_tombstones.add((sent.topic, sent.partition, sent.key))
