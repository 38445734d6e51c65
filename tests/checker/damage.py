"""What could go wrong in a cluster, done to a history that was right: one thing, after which a rule has to complain.

Each takes chance and events, changes them in place, and says whether it found something to break.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from tests.checker.evidence import Evidence
from tests.checker.history import (
    AnyEvent,
    Assigned,
    CommitBegun,
    CommitEnded,
    CommittedAsked,
    CommittedSeen,
    FinalRead,
    Polled,
    Position,
    Record,
    Revoked,
    SendBegun,
    SendEnded,
    TopicBegun,
    TopicEnded,
    TopicsSeen,
    TransactionEnded,
    TransactionEnding,
)

Events = list[AnyEvent]
Damage = Callable[[Random, Events], bool]


def index_of(events: Events, event: AnyEvent) -> int:
    return next(at for at, each in enumerate(events) if each is event)


def renamed(record: Record, value: str | None) -> Record:
    return Record(record.topic, record.partition, record.offset, record.key, value)


def readings(events: Events) -> list[Polled | FinalRead]:
    return [event for event in events if isinstance(event, Polled | FinalRead)]


def polls(events: Events, count: int = 1) -> list[Polled]:
    """Of at least so many records. Of a topic that loses nothing: what was read around a loss may be read again."""
    found = [event for event in events if isinstance(event, Polled) and len(event.records) >= count]
    return [event for event in found if event.records[0].topic == "t"]


def finals(events: Events) -> dict[str, FinalRead]:
    return {event.topic: event for event in events if isinstance(event, FinalRead) and event.isolation == "read_uncommitted"}


def finals_committed(events: Events) -> list[FinalRead]:
    return [event for event in events if isinstance(event, FinalRead) and event.isolation == "read_committed"]


def acknowledged(events: Events, topic: str) -> list[tuple[SendBegun, SendEnded, Record]]:
    """What acks=all was said of, and where it is in the end."""
    begun = {event.id: event for event in events if isinstance(event, SendBegun) and event.topic == topic}
    ended = [event for event in events if isinstance(event, SendEnded) and event.id in begun and event.outcome == "acknowledged"]
    there = {record.offset: record for record in finals(events)[topic].records}
    found = [(begun[end.id], end, there.get(end.offset)) for end in ended]
    return [(send, end, record) for send, end, record in found if record and send.acks == -1 and record.value == send.value]


def drop_from_the_end(chance: Random, events: Events) -> bool:
    choices = acknowledged(events, "t")
    if choices:
        record = chance.choice(choices)[2]
        for event in (event for event in events if isinstance(event, FinalRead) and event.topic == "t"):
            event.records = [each for each in event.records if each.offset != record.offset]
    return bool(choices)


def drop_what_was_read(chance: Random, events: Events) -> bool:
    """Nobody acknowledged it."""
    plain = {event.value for event in events if isinstance(event, SendBegun) and event.acks == 0 and event.topic == "t"}
    read = [record for event in polls(events) for record in event.records if record.value in plain]
    if read:
        record = chance.choice(read)
        for event in (event for event in events if isinstance(event, FinalRead) and event.topic == "t"):
            event.records = [each for each in event.records if each.offset != record.offset]
    return bool(read)


def append_again(chance: Random, events: Events) -> bool:
    choices = [(send, record) for send, _, record in acknowledged(events, "t") if send.is_idempotent]
    if choices:
        record = chance.choice(choices)[1]
        final = finals(events)["t"]
        final.records.append(Record("t", 0, final.log_end, record.key, record.value))
        final.log_end += 1
    return bool(choices)


def swap_in_one_reading(chance: Random, events: Events) -> bool:
    """One reader sees two records in each other's place, which others saw right."""
    choices = [event for event in polls(events, 2) if len({record.value for record in event.records}) > 1]
    if not choices:
        return False
    event = chance.choice(choices)
    first, second = next(pair for pair in zip(event.records, event.records[1:]) if pair[0].value != pair[1].value)
    index = event.records.index(first)
    event.records[index : index + 2] = [renamed(first, second.value), renamed(second, first.value)]
    return any(reading is not event and first in reading.records for reading in readings(events)) or is_acknowledged(
        events, first
    )


def is_acknowledged(events: Events, record: Record) -> bool:
    return any(end.offset == record.offset for _, end, _ in acknowledged(events, record.topic))


def swap_in_all(events: Events, one: tuple[SendBegun, SendEnded], other: tuple[SendBegun, SendEnded]) -> None:
    """As if they had been appended the other way round."""
    one[1].offset, other[1].offset = other[1].offset, one[1].offset
    offsets = {end.offset: (send.key, send.value) for send, end in (one, other)}
    for event in readings(events):
        event.records = [
            Record("t", 0, each.offset, *offsets[each.offset]) if each.topic == "t" and each.offset in offsets else each
            for each in event.records
        ]


def swap_sends_of_a_producer(chance: Random, events: Events) -> bool:
    by_producer: dict[str, list[tuple[SendBegun, SendEnded]]] = {}
    for send, end, _ in acknowledged(events, "t"):
        if send.is_idempotent and send.transaction is None:
            by_producer.setdefault(send.producer, []).append((send, end))
    choices = [sends for sends in by_producer.values() if len(sends) > 1]
    if choices:
        swap_in_all(events, *chance.sample(chance.choice(choices), 2))
    return bool(choices)


def swap_sends_in_time(chance: Random, events: Events) -> bool:
    """One had ended before the other began."""
    at = {id(event): index for index, event in enumerate(events)}
    sends = [(send, end) for send, end, _ in acknowledged(events, "t") if send.transaction is None and end.attempts == 1]
    pairs = [(one, other) for one in sends for other in sends if at[id(one[1])] < at[id(other[0])]]
    if pairs:
        swap_in_all(events, *chance.choice(pairs))
    return bool(pairs)


def read_what_nobody_sent(chance: Random, events: Events) -> bool:
    final = finals(events)["t"]
    final.records.append(Record("t", 0, final.log_end, None, "nobody"))
    return True


def read_before_it_was_sent(chance: Random, events: Events) -> bool:
    choices = [event for event in polls(events) if event.records[-1].value is not None and event.records[-1].topic == "t"]
    if not choices:
        return False
    event = chance.choice(choices)
    sent = next(each for each in events if isinstance(each, SendBegun) and each.value == event.records[-1].value)
    events[:] = [each for each in events if not (isinstance(each, SendEnded) and each.id == sent.id) and each is not sent]
    events.insert(index_of(events, event) + 1, sent)
    return True


def refuse_what_is_there(chance: Random, events: Events) -> bool:
    choices = [end for _, end, _ in acknowledged(events, "t")]
    if choices:
        chance.choice(choices).outcome = "refused"
    return bool(choices)


def leave_out_of_a_poll(chance: Random, events: Events) -> bool:
    choices = [event for event in polls(events, 3) if event.records[0].topic == "t"]
    if choices:
        event = chance.choice(choices)
        left_out = event.records.pop(1)
        return any(reading is not event and left_out in reading.records for reading in readings(events))
    return False


def poll_again(chance: Random, events: Events) -> bool:
    choices = polls(events)
    if choices:
        event = chance.choice(choices)
        events.insert(index_of(events, event) + 1, msgspec.structs.replace(event))
    return bool(choices)


def turn_a_poll_round(chance: Random, events: Events) -> bool:
    choices = polls(events, 2)
    if choices:
        chance.choice(choices).records.reverse()
    return bool(choices)


def give_an_aborted_record(chance: Random, events: Events) -> bool:
    known = Evidence(events)
    final = next(event for event in finals_committed(events) if event.topic == "t")
    aborted = [
        record
        for record in finals(events)["t"].records
        if (send := known.sender(record)) is not None and known.state_of(send) == "aborted"
    ]
    if aborted:
        final.records = sorted([*final.records, chance.choice(aborted)], key=lambda record: record.offset)
    return bool(aborted)


def tear_a_transaction(chance: Random, events: Events) -> bool:
    sure = {event.id for event in events if isinstance(event, TransactionEnded)}  # of others its readers are the only witnesses
    written = {send.value for send, _, _ in acknowledged(events, "t") if send.transaction in sure}
    final = next(event for event in finals_committed(events) if event.topic == "t")
    committed = [record for record in final.records if record.value in written]
    if committed:
        final.records.remove(chance.choice(committed))
    return bool(committed)


def read_before_the_commit(chance: Random, events: Events) -> bool:
    """The question for the commit comes only after somebody saw what is committed."""
    known = Evidence(events)
    choices = [
        (event, transaction)
        for event in polls(events)
        for record in event.records
        if event.isolation == "read_committed" and (send := known.sender(record)) is not None
        if (transaction := send.event.transaction) is not None and event.transaction is None
    ]
    if choices:
        event, transaction = chance.choice(choices)
        ends = [each for each in events if isinstance(each, TransactionEnding | TransactionEnded) and each.id == transaction]
        events[:] = [each for each in events if each not in ends]
        at = index_of(events, event) + 1
        events[at:at] = ends
    return bool(choices)


def read_in_the_transaction_that_wrote(chance: Random, events: Events) -> bool:
    known = Evidence(events)
    choices = [
        (event, send)
        for event in polls(events)
        for record in event.records
        if event.isolation == "read_committed" and (send := known.sender(record)) is not None
        if send.event.transaction is not None
    ]
    if choices:
        event, send = chance.choice(choices)
        event.transaction = send.event.transaction
    return bool(choices)


def commits_of_members(events: Events) -> list[tuple[int, int, int]]:
    """Begun, acknowledged, offset: of group g, in the order of their ends."""
    begun = {event.id: at for at, event in enumerate(events) if isinstance(event, CommitBegun) and event.group == "g"}
    ended = [(at, event) for at, event in enumerate(events) if isinstance(event, CommitEnded) and event.id in begun]
    return [(begun[event.id], at, event.acknowledged[0].offset) for at, event in ended if event.acknowledged]


def sights(events: Events) -> list[tuple[int, CommittedSeen]]:
    """What was seen of group g, and when it was asked for."""
    asked = {event.id: at for at, event in enumerate(events) if isinstance(event, CommittedAsked)}
    return [(asked[event.id], event) for event in events if isinstance(event, CommittedSeen) and event.group == "g"]


def forget_what_was_committed(chance: Random, events: Events) -> bool:
    first = min((ended for _, ended, _ in commits_of_members(events)), default=len(events))
    choices = [event for asked, event in sights(events) if asked > first]
    if choices:
        chance.choice(choices).offsets = [Position("t", 0)]
    return bool(choices)


def see_an_older_offset(chance: Random, events: Events) -> bool:
    commits = commits_of_members(events)
    ended = {offset: end for _, end, offset in commits}  # the last of each
    done = {event.id for event in events if isinstance(event, CommitEnded) and event.acknowledged}
    loose = {event.offsets[0].offset for event in events if isinstance(event, CommitBegun) and event.id not in done}
    choices = [
        (event, old)
        for asked, event in sights(events)
        for begun, end, _ in commits
        for old, old_end in ended.items()
        if old_end < begun and end < asked and old not in loose
    ]
    if choices:
        event, old = chance.choice(choices)
        event.offsets = [Position("t", 0, old)]
    return bool(choices)


def commit_what_nobody_committed(chance: Random, events: Events) -> bool:
    seen = [event for event in events if isinstance(event, CommittedSeen)]
    if seen:
        chance.choice(seen).offsets = [Position("t", 0, 1 << 20)]
    return bool(seen)


def begin_elsewhere(chance: Random, events: Events) -> bool:
    choices = [event for event in events if isinstance(event, Assigned) and event.group and event.fresh[0].offset > 0]
    if choices:
        chance.choice(choices).fresh = [Position("t", 0, 1 << 20)]
    return bool(choices)


def accept_a_former_owner(chance: Random, events: Events) -> bool:
    """A commit that was refused because the partition had been given to another."""
    begun = {event.id: event for event in events if isinstance(event, CommitBegun)}
    for event in events:
        if isinstance(event, CommitEnded) and event.refused:
            commit = begun[event.id]
            begins, ends = index_of(events, commit), index_of(events, event)
            before = [each for each in events[:begins] if isinstance(each, Assigned) and each.group]
            between = [each for each in events[begins:ends] if isinstance(each, Assigned | Revoked) and each.group]
            is_given = before and not any(isinstance(each, Revoked) for each in events[index_of(events, before[-1]) : begins])
            if is_given and before[-1].client != commit.client and not between:
                event.acknowledged, event.refused = event.refused, []
                return True
    return False


def forget_a_topic(chance: Random, events: Events) -> bool:
    ended = {event.id for event in events if isinstance(event, TopicEnded)}
    created = {event.topic for event in events if isinstance(event, TopicBegun) and event.id in ended}
    seen = next(event for event in events if isinstance(event, TopicsSeen))
    choices = [topic for topic in seen.topics if topic in created]
    if choices:
        seen.topics.remove(chance.choice(choices))
    return bool(choices)


def forget_the_last_value(chance: Random, events: Events) -> bool:
    known = Evidence(events)
    final = finals(events)["c"]
    last = known.last_of_key(known.log("c", 0)).items()
    kept = [offset for key, offset in last if ("c", 0, key) not in known.loose_tombstones]
    choices = [
        record
        for record in final.records
        if record.offset in kept and record.value is not None and (send := known.sender(record)) is not None
        if known.state_of(send) == "committed"
    ]
    seen = [record for record in choices if any(record in event.records for event in events if isinstance(event, Polled))]
    if seen:
        final.records.remove(chance.choice(seen))
    return bool(seen)


DAMAGES: Final[dict[Damage, str]] = {
    drop_from_the_end: "lost_write",
    drop_what_was_read: "lost_write",
    append_again: "duplicate",
    swap_in_one_reading: "two_values",
    swap_sends_of_a_producer: "order_of_sends",
    swap_sends_in_time: "write_cycle",
    read_what_nobody_sent: "never_sent",
    read_before_it_was_sent: "read_write_cycle",
    refuse_what_is_there: "refused_read",
    leave_out_of_a_poll: "unseen_record skipped_poll",
    poll_again: "nonmonotonic_poll",
    turn_a_poll_round: "nonmonotonic_poll",
    give_an_aborted_record: "aborted_read",
    tear_a_transaction: "torn_transaction",
    read_before_the_commit: "read_above_last_stable_offset",
    read_in_the_transaction_that_wrote: "precommitted_read",
    forget_what_was_committed: "committed_offset",
    see_an_older_offset: "committed_offset",
    commit_what_nobody_committed: "committed_offset",
    begin_elsewhere: "start_of_assignment",
    accept_a_former_owner: "two_owners",
    forget_a_topic: "topic",
    forget_the_last_value: "last_value",
}
