"""How much clients may use: quotas of users, client ids and addresses."""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, outcome
from odradek.client.admin.ways import Anywhere
from odradek.client.connection import Connection
from odradek.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

Entity = frozenset[tuple[str, str | None]]  # kinds (user, client-id, ip) and names; None: whoever has no quota of its own


class Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaFilter(Struct, frozen=True):
    """Entities that have a kind: with one name, the one that stands for all others (DEFAULT), or any of them."""

    kind: str
    match: Match = Match.ANY
    name: str | None = None


def entity(**names: str | None) -> Entity:
    """`entity(user="me", client_id=None)`."""
    return frozenset((kind.replace("_", "-"), name) for kind, name in names.items())


class Quotas(Asking):
    async def describe_quotas(
        self, filters: Iterable[QuotaFilter] = (), *, strict: bool = False, timeout_ms: float | None = None
    ) -> dict[Entity, dict[str, float]]:
        """What entities may use that all filters find; `strict`: that have no kinds beside those."""
        kind = DescribeClientQuotasRequest
        components = [kind.ComponentData(entity_type=each.kind, match_type=each.match, match=each.name) for each in filters]
        request = kind(components=components, strict=strict)
        answer = await self._one("to describe quotas", request, DescribeClientQuotasResponse, timeout_ms)
        return {
            frozenset((part.entity_type, part.entity_name) for part in each.entity): {
                value.key: value.value for value in each.values
            }
            for each in answer.entries or ()
        }

    async def alter_quotas(
        self,
        changes: Mapping[Entity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Sets quotas by their names; None takes one away."""
        kind = AlterClientQuotasRequest

        def entry(key: Entity) -> AlterClientQuotasRequest.EntryData:
            return kind.EntryData(
                entity=[kind.EntityData(entity_type=each, entity_name=name) for each, name in sorted(key, key=str)],
                ops=[kind.OpData(key=name, value=value or 0.0, remove=value is None) for name, value in changes[key].items()],
            )

        async def ask(connection: Connection, asked: list[Entity]) -> Outcomes[Entity, None]:
            request = kind(entries=[*map(entry, asked)], validate_only=validate_only)
            answer = await connection.post(request, AlterClientQuotasResponse, self._patience_ms)
            return {
                frozenset((part.entity_type, part.entity_name) for part in each.entity): outcome(
                    None, each.error_code, each.error_message
                )
                for each in answer.entries
            }

        await self._each("to alter quotas", changes, Anywhere(), ask, timeout_ms)
