"""Where a read begins and ends: asks the cluster what there is, and makes offsets of what the options say.

Invariants
 1. What is named, and is not there, is an error; what a pattern finds is what there is.
 2. For a reader of committed records a partition ends where its oldest open transaction begins.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.client.admin.admin import Admin
from odradek.client.admin.offsets import Isolation, Offset
from odradek.client.admin.topics import Topic
from odradek.client.errors import InvalidOption, KafkaError, SomeFailed
from odradek.client.records import NO_OFFSET, TopicPartition
from odradek.spark import clients
from odradek.spark.options import EARLIEST, LATEST, Offsets, Position, ReadOptions
from odradek.wire.errors import ErrorCode

NOWHERE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class DataLost(Exception):
    """Records that were to be read are not there any more."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: retention, or somebody who deletes, has been faster than this query. Set failOnDataLoss=false to go on "
            "without them; keep data for longer (retention.ms, retention.bytes) so that it does not happen again."
        )


def gone(error: KafkaError) -> KafkaError | None:
    """What says that a topic or partition is not there, of what went wrong."""
    errors = error.errors.values() if isinstance(error, SomeFailed) else (error,)
    return next((each for each in errors if each.code in NOWHERE), None)


class Positions:
    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        committed = options.isolation == "read_committed"
        self.isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED

    def partitions(self, *, may_lack: bool = False) -> list[TopicPartition]:
        """What the options name, as it is now; with `may_lack`, what there is of it."""
        options = self.options
        with clients.admin(options.properties) as admin:
            if options.pattern is not None:
                wanted = re.compile(options.pattern)
                topics = clients.run(admin.list_topics(include_internal=True))
                found = [topic for name, topic in topics.items() if wanted.fullmatch(name)]
            else:
                names = options.topics or tuple(dict.fromkeys(place.topic for place in options.partitions))
                found = [*self._described(admin, names, may_lack=may_lack)]
        places = sorted(TopicPartition(topic.name, each.index) for topic in found for each in topic.partitions)
        if not options.partitions:
            return places
        missing = [place for place in options.partitions if place not in places]
        if missing and not may_lack:
            raise InvalidOption(f"assign names {missing[0]}, and there is no such partition")
        return [place for place in options.partitions if place in places]

    def _described(self, admin: Admin, names: Iterable[str], *, may_lack: bool) -> Iterable[Topic]:
        try:
            return clients.run(admin.describe_topics(names)).values()
        except KafkaError as error:
            if (missing := gone(error)) is None:
                raise
            if may_lack and not isinstance(error, SomeFailed):
                return ()
            if may_lack and isinstance(error, SomeFailed) and all(each.code in NOWHERE for each in error.errors.values()):
                return error.done.values()
            said = f"there is no topic {missing.topic}; make it with: odradek topic create {missing.topic}"
            raise InvalidOption(said, topic=missing.topic) from error

    # -- offsets

    def at(self, places: Iterable[TopicPartition], where: int) -> Offsets:
        return self._ask(dict.fromkeys(places, where))

    def _ask(self, wanted: Mapping[TopicPartition, Offset | int]) -> Offsets:
        if not wanted:
            return {}
        with clients.admin(self.options.properties) as admin:
            try:
                found = clients.run(admin.list_offsets(wanted, isolation=self.isolation))
            except KafkaError as error:
                if (missing := gone(error)) is None:
                    raise
                raise DataLost(f"{missing.topic}-{missing.partition} is gone") from error
        return {place: each.offset for place, each in found.items()}

    def resolve(self, position: Position, places: list[TopicPartition], *, is_start: bool) -> Offsets:
        """The offsets that a position stands for, in these partitions."""
        if position.is_group:
            return self._of_group(places)
        if position.timestamp_ms is not None:
            return self._of_times(dict.fromkeys(places, position.timestamp_ms), is_start=is_start)
        if position.timestamps:
            self._check_named(position.timestamps, places, "OffsetsByTimestamp")
            return self._of_times(position.timestamps, is_start=is_start)
        if position.offsets:
            self._check_named(position.offsets, places, "Offsets")
            named = {place: offset for place, offset in position.offsets.items() if offset < 0}
            return {**position.offsets, **self._ask(named)}
        assert position.offset in (EARLIEST, LATEST)
        return self.at(places, position.offset)

    def _check_named(self, given: Offsets, places: list[TopicPartition], what: str) -> None:
        if different := set(given) ^ set(places):
            said = "are for" if min(different) in given else "lack"
            raise InvalidOption(f"starting{what} (ending{what}) {said} {min(different)}: they name all partitions that are read")

    def _of_group(self, places: list[TopicPartition]) -> Offsets:
        """Where the group is; where it is not, the beginning."""
        group = self.options.group
        assert group is not None
        with clients.admin(self.options.properties) as admin:
            found = clients.run(admin.list_group_offsets([group], require_stable=True))[group]
        known = {place: found[place].offset for place in places if place in found}
        return {**self.at([place for place in places if place not in known], EARLIEST), **known}

    def _of_times(self, times: Offsets, *, is_start: bool) -> Offsets:
        found = self._ask(times)
        late = [place for place, offset in found.items() if offset == NO_OFFSET]
        if late and is_start and self.options.is_start_strict:
            raise InvalidOption(
                f"{late[0]} has no record of {times[late[0]]} ms or later to start with; "
                "startingOffsetsByTimestampStrategy=latest starts at its end"
            )
        return {**found, **self.at(late, LATEST)}
