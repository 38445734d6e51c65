"""Who may do what: access control lists."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, outcome
from odradek.client.admin.ways import Anywhere
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError, refused
from odradek.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from odradek.wire.operations import Operation

CLUSTER_NAME: Final = "kafka-cluster"  # of the one resource of kind CLUSTER
EVERY_HOST: Final = "*"


class AclResource(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How a name is meant. ANY and MATCH are for filters: MATCH finds all that holds for a name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(Struct, frozen=True, order=True):
    """`principal` is written User:name; the resource name * means all."""

    resource: AclResource
    name: str
    principal: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    pattern: Pattern = Pattern.LITERAL
    host: str = EVERY_HOST


class AclFilter(Struct, frozen=True):
    """What is None or ANY may be anything."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    pattern: Pattern = Pattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY


class Acls(Asking):
    async def describe_acls(self, wanted: AclFilter | None = None, *, timeout_ms: float | None = None) -> list[Acl]:
        """All that a filter finds."""
        given = wanted or AclFilter()
        request = DescribeAclsRequest(
            resource_type_filter=given.resource,
            resource_name_filter=given.name,
            pattern_type_filter=given.pattern,
            principal_filter=given.principal,
            host_filter=given.host,
            operation=given.operation,
            permission_type=given.permission,
        )
        answer = await self._one("to describe ACLs", request, DescribeAclsResponse, timeout_ms)
        return sorted(
            Acl(
                AclResource(each.resource_type),
                each.resource_name,
                acl.principal,
                Operation(acl.operation),
                Permission(acl.permission_type),
                Pattern(each.pattern_type),
                acl.host,
            )
            for each in answer.resources
            for acl in each.acls
        )

    async def create_acls(self, acls: Iterable[Acl], *, timeout_ms: float | None = None) -> None:
        kind = CreateAclsRequest

        async def ask(connection: Connection, asked: list[Acl]) -> Outcomes[Acl, None]:
            creations = [
                kind.AclCreation(
                    resource_type=acl.resource,
                    resource_name=acl.name,
                    resource_pattern_type=acl.pattern,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in asked
            ]
            answer = await connection.post(kind(creations=creations), CreateAclsResponse, self._patience_ms)
            return {acl: outcome(None, each.error_code, each.error_message) for acl, each in zip(asked, answer.results)}

        await self._each("to create ACLs", acls, Anywhere(), ask, timeout_ms)

    async def delete_acls(self, filters: Iterable[AclFilter], *, timeout_ms: float | None = None) -> dict[AclFilter, list[Acl]]:
        """What each filter finds; gives what is gone."""
        kind = DeleteAclsRequest

        async def ask(connection: Connection, asked: list[AclFilter]) -> Outcomes[AclFilter, list[Acl]]:
            named = [
                kind.DeleteAclsFilter(
                    resource_type_filter=each.resource,
                    resource_name_filter=each.name,
                    pattern_type_filter=each.pattern,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in asked
            ]
            answer = await connection.post(kind(filters=named), DeleteAclsResponse, self._patience_ms)
            return {wanted: deleted(each) for wanted, each in zip(asked, answer.filter_results)}

        return await self._each("to delete ACLs", filters, Anywhere(), ask, timeout_ms)


def deleted(found: DeleteAclsResponse.DeleteAclsFilterResult) -> list[Acl] | KafkaError:
    for each in found.matching_acls:
        if each.error_code:
            return refused(each.error_code, each.error_message)
    gone = [
        Acl(
            AclResource(each.resource_type),
            each.resource_name,
            each.principal,
            Operation(each.operation),
            Permission(each.permission_type),
            Pattern(each.pattern_type),
            each.host,
        )
        for each in found.matching_acls
    ]
    return outcome(sorted(gone), found.error_code, found.error_message)
