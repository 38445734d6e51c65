"""Groups: list, describe, delete, and members that are sent away.

A group has one of several protocols. Which one a group has is found out by asking for each: the newest, then the oldest, whose
brokers know no other, then the groups that share records, and those of Kafka Streams.
"""

from collections.abc import Iterable

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, failure, outcome
from odradek.client.admin.describing import Group, describe_classic, describe_consumer, describe_share
from odradek.client.admin.streams import describe_streams
from odradek.client.admin.ways import Coordinators
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError, refused
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

MANY_LEAVE_SINCE = 3
NOT_THERE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class ListedGroup(Struct, frozen=True):
    """`state` and `type` are empty where a broker is too old to tell."""

    name: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


class Groups(Asking):
    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: float | None = None
    ) -> dict[str, ListedGroup]:
        """All groups of the cluster, or those in some states ("Stable", "Empty") or of some types ("consumer", "classic")."""
        request = ListGroupsRequest(states_filter=[*states], types_filter=[*types])

        async def ask(connection: Connection, asked: list[int]) -> Outcomes[int, list[ListedGroup]]:
            answer = await connection.post(request, ListGroupsResponse, self._patience_ms)
            found = [
                ListedGroup(each.group_id, each.protocol_type, each.group_state, each.group_type.lower(), asked[0])
                for each in answer.groups
            ]
            return dict.fromkeys(asked, failure(answer) or found)

        found = await self._each_broker("to list the groups", ask, timeout_ms)
        return {
            each.name: each for each in sorted([each for held in found.values() for each in held], key=lambda each: each.name)
        }

    async def describe_groups(
        self, names: Iterable[str], *, include_operations: bool = False, timeout_ms: float | None = None
    ) -> dict[str, Group]:
        """Of any type; one of Kafka Streams is a StreamsGroup."""

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, Group]:
            found: dict[str, Group | KafkaError] = {}
            for describe in (describe_consumer, describe_classic, describe_share, describe_streams):
                left = [name for name in asked if is_missing(found.get(name))]
                if left:
                    told = await describe(connection, left, include_operations, self._patience_ms)
                    found |= {name: each for name, each in told.items() if name not in found or not is_missing(each)}
            return found

        return await self._each("to describe groups", names, Coordinators(), ask, timeout_ms)

    async def delete_groups(self, names: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """With all their offsets; none of them may have members."""

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            request = DeleteGroupsRequest(groups_names=asked)
            answer = await connection.post(request, DeleteGroupsResponse, self._patience_ms)
            return {
                each.group_id: outcome(None, each.error_code, each.error_message, group=each.group_id) for each in answer.results
            }

        await self._each("to delete groups", names, Coordinators(), ask, timeout_ms)

    async def remove_members(
        self,
        group: str,
        instance_ids: Iterable[str] | None = None,
        *,
        reason: str | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Sends static members away by their instance ids, or all members (None). Those that live come back by themselves."""
        kind = LeaveGroupRequest.MemberIdentity
        if instance_ids is not None:
            leaving = [kind(member_id="", group_instance_id=each, reason=reason) for each in instance_ids]
        else:
            found = (await self.describe_groups([group], timeout_ms=timeout_ms))[group]
            leaving = [kind(member_id=each.id, group_instance_id=each.instance_id, reason=reason) for each in found.members]

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            if connection.version(LeaveGroupRequest.schema.key) < MANY_LEAVE_SINCE:
                return dict.fromkeys(asked, refused(ErrorCode.UNSUPPORTED_VERSION, f"{connection} lets members leave alone only"))
            request = LeaveGroupRequest(group_id=group, members=leaving)
            answer = await connection.post(request, LeaveGroupResponse, self._patience_ms)
            codes = [answer.error_code, *(each.error_code for each in answer.members)]
            refusals = [refused(code, group=group) for code in codes if code]
            return dict.fromkeys(asked, refusals[0] if refusals else None)

        if leaving:
            await self._each(f"to send members of {group} away", [group], Coordinators(), ask, timeout_ms)


def is_missing(found: Group | KafkaError | None) -> bool:
    return found is None or (isinstance(found, KafkaError) and found.code in NOT_THERE)
