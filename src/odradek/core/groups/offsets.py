"""The offsets of all groups of one partition: the newest, those of open transactions, and those that are committed.

Replay changes the newest. What a change replaced is kept until the high watermark has passed the change, so that a fetch shows
only what cannot be lost: `before` has an entry for each place with changes on their way, and is empty most of the time.

Invariants
 1. `committed` gives, for every place, the value of the last change below the high watermark.
 2. A commit inside a transaction is seen by nobody before the transaction's marker, and only if no later commit has overtaken it.
 3. A place is in `open_places` exactly while some open transaction has an offset for it.
 4. No group and no topic without an offset has a dict here.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from odradek.wire.batch import NO_PRODUCER_ID
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import OffsetCommitKey, OffsetCommitValue


class Place(NamedTuple):
    """Whose offset, and of what."""

    group_id: str
    topic: str
    partition: int


class CommittedOffset(Struct, frozen=True, gc=False):
    """What a group has committed for a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int  # -1: the node's retention counts
    topic_id: bytes  # NIL_UUID: it was committed by name
    record_offset: int  # of the record that says so


class Change(NamedTuple):
    """A place got this value by the record at that offset; None: it was deleted."""

    offset: int
    place: Place
    value: CommittedOffset | None


class Before(Struct):
    """The committed value of a place with so many changes on their way."""

    value: CommittedOffset | None
    changes: int


class OffsetStore:
    """Offsets by group, topic and partition."""

    __slots__ = ("before", "by_group", "changes", "high_watermark", "open_places", "transactions")

    def __init__(self, high_watermark: int) -> None:
        self.by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}  # the newest
        self.transactions: dict[int, dict[Place, CommittedOffset]] = {}  # by producer id
        self.open_places: dict[str, dict[Place, dict[int, None]]] = {}  # by group: the places that open transactions change
        self.changes: deque[Change] = deque()  # those not yet committed, in order
        self.before: dict[Place, Before] = {}
        self.high_watermark = high_watermark

    # What a record says

    def replay(self, offset: int, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        place = Place(key.group, key.topic, key.partition)
        if value is None:
            self._put(offset, place, None)
            self._forget_in_transactions(place)
            return
        found = CommittedOffset(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            expire_timestamp_ms=value.expire_timestamp,
            topic_id=value.topic_id,
            record_offset=offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._put(offset, place, found)
        else:
            self.transactions.setdefault(producer_id, {})[place] = found
            self.open_places.setdefault(place.group_id, {}).setdefault(place, {})[producer_id] = None

    def replay_end_of_transaction(self, offset: int, producer_id: int, is_commit: bool) -> None:
        for place, value in self.transactions.pop(producer_id, {}).items():
            self._close(place, producer_id)
            newest = self.newest(place)
            # compaction may have moved a later commit of the same place before the marker
            if is_commit and (newest is None or value.record_offset > newest.record_offset):
                self._put(offset, place, value)

    def commit(self, high_watermark: int) -> None:
        """All changes before this offset are committed."""
        self.high_watermark = max(self.high_watermark, high_watermark)
        while self.changes and self.changes[0].offset < self.high_watermark:
            change = self.changes.popleft()
            before = self.before[change.place]
            before.value = change.value
            before.changes -= 1
            if not before.changes:
                del self.before[change.place]

    def _put(self, offset: int, place: Place, value: CommittedOffset | None) -> None:
        if offset >= self.high_watermark:
            before = self.before.get(place)
            if before is None:
                self.before[place] = Before(self.newest(place), 1)
            else:
                before.changes += 1
            self.changes.append(Change(offset, place, value))
        group_id, topic, partition = place
        if value is not None:
            self.by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = value
            return
        topics = self.by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is not None and not partitions:
            del topics[topic]
            if not topics:
                del self.by_group[group_id]

    def _forget_in_transactions(self, place: Place) -> None:
        for producer_id in list(self.open_places.get(place.group_id, {}).get(place, ())):
            offsets = self.transactions[producer_id]
            del offsets[place]
            if not offsets:
                del self.transactions[producer_id]
            self._close(place, producer_id)

    def _close(self, place: Place, producer_id: int) -> None:
        places = self.open_places[place.group_id]
        del places[place][producer_id]
        if not places[place]:
            del places[place]
        if not places:
            del self.open_places[place.group_id]

    # What is asked

    def newest(self, place: Place) -> CommittedOffset | None:
        return self.by_group.get(place.group_id, {}).get(place.topic, {}).get(place.partition)

    def committed(self, place: Place) -> CommittedOffset | None:
        before = self.before.get(place) if self.before else None
        return self.newest(place) if before is None else before.value

    def newest_of(self, group_id: str) -> Iterator[tuple[Place, CommittedOffset]]:
        for topic, partitions in self.by_group.get(group_id, {}).items():
            for partition, value in partitions.items():
                yield Place(group_id, topic, partition), value

    def committed_of(self, group_id: str) -> Iterator[tuple[Place, CommittedOffset]]:
        for place, value in self.newest_of(group_id):
            if place not in self.before:
                yield place, value
        for place, before in self.before.items():
            if place.group_id == group_id and before.value is not None:
                yield place, before.value

    def is_open(self, place: Place) -> bool:
        """An open transaction has an offset for it."""
        return place in self.open_places.get(place.group_id, ())

    def places_to_delete(self, group_id: str) -> list[Place]:
        """All places of a group that need a tombstone, each once."""
        places = [place for place, _ in self.newest_of(group_id)]
        return [*places, *(place for place in self.open_places.get(group_id, ()) if self.newest(place) is None)]

    def places_of_topics(self, topics: dict[str, bytes]) -> list[Place]:
        """The places of deleted topics. A topic that was made again under the name has another id, and keeps its offsets: a
        tombstone would end all that there is of a place."""
        found: set[Place] = set()
        kept: set[Place] = set()
        for place, value in self._values_of(topics):
            is_deleted = value.topic_id in (NIL_UUID, topics[place.topic])
            (found if is_deleted else kept).add(place)
        return sorted(found - kept)

    def _values_of(self, topics: dict[str, bytes]) -> Iterator[tuple[Place, CommittedOffset]]:
        """The newest of each place of some topics, and those of open transactions."""
        for group_id, group_topics in self.by_group.items():
            for topic in topics.keys() & group_topics.keys():
                for partition, value in group_topics[topic].items():
                    yield Place(group_id, topic, partition), value
        for offsets in self.transactions.values():
            for place, value in offsets.items():
                if place.topic in topics:
                    yield place, value
