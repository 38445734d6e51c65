"""Topics that were made anew under a name that had been used: each incarnation becomes a topic of its own, `name@id`.

The rules need not know of it: they get a history in which no name is used twice. Of a topic that was made once nothing changes.

What a client did by a topic's id was done to that one. What it did by the name was done to one that had been asked for by then;
and how long a node that has heard of nothing takes a name for what it was, nobody can tell. So where that is more than one

 - a send, or a commit of offsets, may be in each of them, and is expected in none: it becomes one of each, whose end is unknown;
 - what was read, or seen to be committed, shows nothing.

A group has one coordinator at a time, which never knows less than it did: once it has spoken of an incarnation by its id, what it
is asked for by the name is not of an earlier one.

Invariants
 1. Nothing is held against an incarnation that may be true of another.
 2. What was answered before an incarnation was asked for is not of it, unless an attempt may come late: one without an answer,
    or that was followed by another.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.checker import history
from tests.checker.facts import NEVER
from tests.checker.history import UNKNOWN_OFFSET, AnyEvent, CommitBegun, Ids, Position, SendBegun, TopicBegun

ONCE: Final = 1  # attempts after which nothing comes late
UNNAMED: Final = "#"  # what stands for an id that nobody was told

Ended = history.SendEnded | history.CommitEnded | history.TopicEnded | history.DeletionEnded


class Incarnation(msgspec.Struct):
    topic: str
    begun: int  # when it was asked for


def told_apart(events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
    """The same history without a name that is used twice."""
    telling = Telling(events)
    return [each for at, event in enumerate(events) for each in telling.of(at, event)] if telling.topics else events


class Telling:
    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.ends: dict[int, tuple[int, Ended]] = {}  # by the id of what began: when, and how
        self.topics: dict[str, dict[str, Incarnation]] = {}  # that were made anew: incarnations by id, in their order
        self.made: dict[int, str] = {}  # by creation
        self.sends: dict[int, list[int]] = {}  # to topics that were made anew: the ids of what has become of each
        self.sure: dict[int, int] = {}  # and which of these is the one that was acknowledged, where it was
        self.deletions: dict[int, None] = {}  # of records, in nobody knows which
        self.seen: set[tuple[str, int, str | None, str | None]] = set()  # topic, partition, key and value of what was read there
        self.begun: dict[int, tuple[int, CommitBegun | history.CommittedAsked]] = {}  # commits and questions: when
        self.commits: dict[int, int] = {}  # those that were by a name: the id of that part
        self.known: dict[tuple[str, str], list[tuple[int, int]]] = {}  # by group and name: when one was told, and when it began
        self._find_topics(events)
        if self.topics:
            self._note_ids(events)
            self._note_groups(events)
            self._note_records(events)
        begun = (SendBegun, CommitBegun, history.DeletionBegun)
        self._ids = count(1 + max((event.id for event in events if isinstance(event, begun)), default=0))

    def _find_topics(self, events: Sequence[AnyEvent]) -> None:
        asked: dict[str, list[tuple[int, TopicBegun]]] = {}
        for at, event in enumerate(events):
            if isinstance(event, Ended):
                self.ends[event.id] = at, event
            elif isinstance(event, TopicBegun) and event.change == "create":
                asked.setdefault(event.topic, []).append((at, event))
        for name, creations in asked.items():
            real = [(at, event) for at, event in creations if not self._is_refused(event)]
            if len(real) > 1:
                self.topics[name] = {}
                for number, (at, event) in enumerate(real, 1):
                    _, end = self.ends.get(event.id, (NEVER, None))
                    topic_id = (end.topic_id if isinstance(end, history.TopicEnded) else "") or f"{UNNAMED}{number}"
                    made = self.topics[name][topic_id] = Incarnation(f"{name}@{topic_id}", at)
                    self.made[event.id] = made.topic

    def _is_refused(self, event: TopicBegun) -> bool:
        _, end = self.ends.get(event.id, (NEVER, None))
        return isinstance(end, history.TopicEnded) and end.outcome == "refused"

    def _note_ids(self, events: Sequence[AnyEvent]) -> None:
        """One that nobody was told to have made came of a creation that was not answered."""
        names = {event.id: event.topic for event in events if isinstance(event, SendBegun)}
        for event in events:
            for name, topic_id in ids_of(event, names):
                known = self.topics.get(name)
                if known and topic_id and topic_id not in known:
                    unnamed = [each.begun for key, each in known.items() if key.startswith(UNNAMED)]
                    known[topic_id] = Incarnation(f"{name}@{topic_id}", min(unnamed, default=0))

    def _note_groups(self, events: Sequence[AnyEvent]) -> None:
        """What coordinators have spoken of: of a commit that was acknowledged in part, the topics of that part."""
        for at, event in enumerate(events):
            if isinstance(event, CommitBegun | history.CommittedAsked):
                self.begun[event.id] = at, event
            elif isinstance(event, history.CommitEnded):
                commit = self.begun[event.id][1]
                assert isinstance(commit, CommitBegun)
                self._note_spoken(at, commit, {each.topic for each in event.acknowledged})
            elif isinstance(event, history.CommittedSeen):
                self._note_spoken(at, event, set(event.ids))

    def _note_spoken(self, at: int, spoken: CommitBegun | history.CommittedSeen, names: set[str]) -> None:
        for name, topic_id in spoken.ids.items():
            if name in self.topics and name in names:
                self.known.setdefault((spoken.group, name), []).append((at, self.topics[name][topic_id].begun))

    def _note_records(self, events: Sequence[AnyEvent]) -> None:
        for at, event in enumerate(events):
            if isinstance(event, history.Polled):
                found = [(self._read(each.topic, event.ids, at), each) for each in event.records if each.topic in self.topics]
            elif isinstance(event, history.FinalRead) and event.topic in self.topics:
                found = [(self._last(event.topic, event.topic_id, at), each) for each in event.records]
            else:
                continue
            self.seen |= {(topic, each.partition, each.key, each.value) for topic, each in found}

    # -- which it is

    def _by_name(self, name: str, until: int) -> list[str]:
        """Those that what was done by the name until then may have been done to."""
        return [each.topic for each in self.topics[name].values() if each.begun < until]

    def _of_group(self, group: str, name: str, asked: int, until: int) -> list[str]:
        """Those that a coordinator may have taken the name for."""
        first = max((begun for at, begun in self.known.get((group, name), ()) if at < asked), default=0)
        return [each.topic for each in self.topics[name].values() if first <= each.begun < until]

    def _read(self, name: str, ids: Ids, at: int) -> str:
        """The one that was read, or looked at; none where nobody can tell."""
        if name not in self.topics:
            return name
        if name in ids:
            return self.topics[name][ids[name]].topic
        found = self._by_name(name, at)
        return found[0] if len(found) == 1 else ""

    def _last(self, name: str, topic_id: str, at: int) -> str:
        """The last that was asked for, unless it is told which."""
        if name not in self.topics:
            return name
        if topic_id:
            return self.topics[name][topic_id].topic
        return (self._by_name(name, at) or self._by_name(name, NEVER))[-1]

    def _all(self, name: str) -> list[str]:
        return self._by_name(name, NEVER) if name in self.topics else [name]

    def _end_of(self, id_: int) -> int:
        """When nothing of it was on its way any more."""
        at, end = self.ends.get(id_, (NEVER, None))
        is_sure = isinstance(end, history.SendEnded | history.DeletionEnded) and end.outcome == "acknowledged"
        if isinstance(end, history.SendEnded):
            is_sure = is_sure and end.attempts == ONCE
        return at if is_sure else NEVER

    def _end_of_commit(self, id_: int, to: Position) -> int:
        """When nothing of what it was to commit there was on its way any more: an attempt without an answer may come late."""
        at, end = self.ends.get(id_, (NEVER, None))
        answered = [*end.acknowledged, *end.refused] if isinstance(end, history.CommitEnded) and end.attempts == ONCE else []
        return at if any((each.topic, each.partition) == (to.topic, to.partition) for each in answered) else NEVER

    # -- events

    def of(self, at: int, event: AnyEvent) -> Iterator[AnyEvent]:
        """What becomes of one."""
        match event:
            case SendBegun():
                yield from self._send(event)
            case history.SendEnded():
                yield from self._send_ended(event)
            case history.Assigned():
                yield from self._assigned(at, event)
            case history.Revoked():
                gone = [Position(topic, each.partition) for each in event.partitions for topic in self._all(each.topic)]
                yield replace(event, partitions=gone)
            case history.Polled():
                yield self._polled(at, event)
            case history.Moved():
                ids = {event.topic: event.topic_id} if event.topic_id else {}
                if topic := self._read(event.topic, ids, at):
                    yield replace(event, topic=topic)
            case CommitBegun():
                yield from self._commit(event)
            case history.CommitEnded():
                yield from self._commit_ended(event)
            case history.CommittedSeen():
                yield self._seen(at, event)
            case history.DeletionBegun():
                yield from self._deletion(event)
            case history.DeletionEnded() if event.id in self.deletions:
                pass  # nobody can tell which lost its records
            case history.RemovalAllowed():
                yield from (replace(event, topic=topic) for topic in self._all(event.topic))
            case _:
                yield self._of_topics(at, event)

    def _of_topics(self, at: int, event: AnyEvent) -> AnyEvent:
        match event:
            case TopicBegun():
                return replace(event, topic=self.made.get(event.id) or self._last(event.topic, event.topic_id, at))
            case history.TopicsSeen():
                return replace(event, topics=[self._last(name, event.ids.get(name, ""), at) for name in event.topics])
            case history.LossAllowed():
                return replace(event, topics=[topic for name in event.topics for topic in self._all(name)])
            case history.FinalRead():
                topic = self._last(event.topic, event.topic_id, at)
                return replace(event, topic=topic, records=[replace(each, topic=topic) for each in event.records])
            case _:
                return event

    # -- sends, and records that are deleted

    def _send(self, event: SendBegun) -> Iterator[AnyEvent]:
        """Of what may be in several only those are told of in which it was seen, and the last: nothing is expected in others."""
        if event.topic not in self.topics:
            yield event
            return
        _, end = self.ends.get(event.id, (NEVER, None))
        if isinstance(end, history.SendEnded) and end.ids:
            ids = [*dict.fromkeys(reversed(end.ids))][::-1]  # each where it was spoken of last
            topics = [self.topics[event.topic][topic_id].topic for topic_id in ids]
        else:
            topics = self._by_name(event.topic, self._end_of(event.id))
        is_sure = len(topics) == 1 or (isinstance(end, history.SendEnded) and bool(end.ids))
        where = event.partition, event.key, event.value
        topics = [topic for topic in topics[:-1] if (topic, *where) in self.seen] + topics[-1:]
        copies = self.sends[event.id] = [next(self._ids) for _ in topics]
        if is_sure:
            self.sure[event.id] = copies[-1]  # it is the last attempt that was acknowledged
        for topic, id_ in zip(topics, copies):
            yield replace(event, id=id_, topic=topic)

    def _send_ended(self, event: history.SendEnded) -> Iterator[AnyEvent]:
        for id_ in self.sends.get(event.id, ()):
            if event.outcome != "acknowledged" or id_ == self.sure.get(event.id):
                yield replace(event, id=id_)
            else:
                yield replace(event, id=id_, outcome="unknown", offset=UNKNOWN_OFFSET)
        if event.id not in self.sends:
            yield event

    def _deletion(self, event: history.DeletionBegun) -> Iterator[AnyEvent]:
        topics = self._by_name(event.topic, self._end_of(event.id)) if event.topic in self.topics else [event.topic]
        if len(topics) == 1:
            yield replace(event, topic=topics[0])
            return
        self.deletions[event.id] = None
        for topic in topics:
            yield replace(event, id=next(self._ids), topic=topic)

    # -- readers

    def _positions(self, at: int, positions: list[Position], ids: Ids) -> list[Position]:
        named = [(each, self._read(each.topic, ids, at)) for each in positions]
        return [replace(each, topic=topic) for each, topic in named if topic]

    def _assigned(self, at: int, event: history.Assigned) -> Iterator[AnyEvent]:
        """Where nobody can tell which was given, all were, by now, and from nobody knows where."""
        unclear = [each for each in (*event.fresh, *event.kept) if not self._read(each.topic, event.ids, at)]
        given = [Position(topic, each.partition) for each in unclear for topic in self._by_name(each.topic, at)]
        if given:
            yield history.Revoked(event.at_ms, event.client, given, event.group, event.member)
        fresh, kept = (self._positions(at, each, event.ids) for each in (event.fresh, event.kept))
        yield replace(event, fresh=fresh, kept=[*kept, *given])

    def _polled(self, at: int, event: history.Polled) -> AnyEvent:
        records = [(each, self._read(each.topic, event.ids, at)) for each in event.records]
        return replace(
            event,
            records=[each if topic == each.topic else replace(each, topic=topic) for each, topic in records if topic],
            positions=self._positions(at, event.positions, event.ids),
        )

    # -- committed offsets

    def _seen(self, at: int, event: history.CommittedSeen) -> AnyEvent:
        found = []
        for each in event.offsets:
            is_by_name = each.topic in self.topics and each.topic not in event.ids
            asked = self.begun[event.id][0]
            topics = self._of_group(event.group, each.topic, asked, at) if is_by_name else [self._read(each.topic, event.ids, at)]
            if len(topics) == 1:
                found.append(replace(each, topic=topics[0]))
        return replace(event, offsets=found)

    def _commit(self, event: CommitBegun) -> Iterator[AnyEvent]:
        """What was committed by a name was nobody's: who has a partition of one topic need not have that of the next. And where
        it may be of one or another, it is as if somebody had asked for it whom nobody ever answered."""
        named, unclear = [], []
        for each in event.offsets:
            topics = self._by_name_committed(event, each)
            named += [replace(each, topic=topics[0])] if len(topics) == 1 else []
            unclear += [replace(each, topic=topic) for topic in topics] if len(topics) > 1 else []
        yield replace(event, offsets=self._committed_by_id(event, event.offsets))
        if named:
            self.commits[event.id] = next(self._ids)
            yield replace(event, id=self.commits[event.id], offsets=named, member="")
        if unclear:
            yield replace(event, id=next(self._ids), offsets=unclear, member="", transaction=None)

    def _commit_ended(self, event: history.CommitEnded) -> Iterator[AnyEvent]:
        begun = self.begun[event.id][1]
        assert isinstance(begun, CommitBegun)
        done, refused = (self._committed_by_id(begun, each) for each in (event.acknowledged, event.refused))
        yield replace(event, acknowledged=done, refused=refused)
        if event.id in self.commits:
            done, refused = (self._committed_by_name(begun, each) for each in (event.acknowledged, event.refused))
            yield replace(event, id=self.commits[event.id], acknowledged=done, refused=refused)

    def _committed_by_id(self, event: CommitBegun, offsets: list[Position]) -> list[Position]:
        """Or to a topic that was made once."""
        clear = [each for each in offsets if each.topic in event.ids or each.topic not in self.topics]
        return [replace(each, topic=self._read(each.topic, event.ids, NEVER)) for each in clear]

    def _committed_by_name(self, event: CommitBegun, offsets: list[Position]) -> list[Position]:
        to = [(each, self._by_name_committed(event, each)) for each in offsets]
        return [replace(each, topic=topics[0]) for each, topics in to if len(topics) == 1]

    def _by_name_committed(self, event: CommitBegun, to: Position) -> list[str]:
        if to.topic in event.ids or to.topic not in self.topics:
            return []
        return self._of_group(event.group, to.topic, self.begun[event.id][0], self._end_of_commit(event.id, to))


def ids_of(event: AnyEvent, names: dict[int, str]) -> list[tuple[str, str]]:
    """Names and ids of the topics that an event speaks of by their ids. `names` are those of sends."""
    match event:
        case history.SendEnded():
            return [(names[event.id], topic_id) for topic_id in event.ids]
        case history.Assigned() | history.Polled() | CommitBegun() | history.CommittedSeen() | history.TopicsSeen():
            return list(event.ids.items())
        case history.Moved() | history.FinalRead() | TopicBegun():
            return [(event.topic, event.topic_id)]
        case _:
            return []
