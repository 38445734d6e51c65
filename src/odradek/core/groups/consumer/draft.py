"""A group in the making: the records of one request, and the group as it will be when they are replayed.

Nothing is copied before the first record: most heartbeats change nothing.

Invariants
 1. `group` is what the group becomes when `records` are appended. Until then nobody else sees it.
"""

from odradek.core.groups.consumer.group import CONSUMER_KEYS, ConsumerGroup
from odradek.core.groups.consumer.member import ConsumerMember
from odradek.core.groups.consumer.records import assignment_record, member_record
from odradek.wire.log_records import CoordinatorRecord


class Draft:
    __slots__ = ("_is_own", "group", "records")

    def __init__(self, group: ConsumerGroup, is_new: bool = False) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = []
        self._is_own = is_new

    def add(self, *records: CoordinatorRecord) -> None:
        if records and not self._is_own:
            self.group = self.group.copy()
            self._is_own = True
        for record in records:
            self.records.append(record)
            if isinstance(record.key, CONSUMER_KEYS):  # that of a classic group, which goes, is none of its own
                self.group.replay(record.key, record.value)

    def put(self, member: ConsumerMember) -> None:
        """What the member says of itself."""
        self.add(member_record(self.group.group_id, member))

    def assign(self, member: ConsumerMember) -> None:
        """What the member has."""
        self.add(assignment_record(self.group.group_id, member))
