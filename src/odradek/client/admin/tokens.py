"""Delegation tokens: what a program hands to others that they act for it, for some time."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from odradek.client.admin.asking import Asking
from odradek.wire.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

BY_DEFAULT_MS: Final = -1  # of the cluster
NOW_MS: Final = -1


class Principal(Struct, frozen=True, order=True):
    name: str
    kind: str = "User"


class Token(Struct, frozen=True):
    """`hmac` is the secret. `requester` has asked for it, `owner` is who it stands for."""

    id: str
    hmac: bytes
    owner: Principal
    requester: Principal
    issued_ms: int
    expires_ms: int
    expires_ms_max: int
    renewers: tuple[Principal, ...] = ()

    def __repr__(self) -> str:
        return f"Token({self.id!r}, {self.owner})"


class Tokens(Asking):
    async def create_token(
        self,
        *,
        owner: Principal | None = None,
        renewers: Iterable[Principal] = (),
        lifetime_ms_max: int = BY_DEFAULT_MS,
        timeout_ms: float | None = None,
    ) -> Token:
        """For who asks, or for another owner if that is allowed."""
        kind = CreateDelegationTokenRequest
        may_renew = tuple(renewers)
        request = kind(
            owner_principal_type=owner.kind if owner else None,
            owner_principal_name=owner.name if owner else None,
            renewers=[kind.CreatableRenewers(principal_type=each.kind, principal_name=each.name) for each in may_renew],
            max_lifetime_ms=lifetime_ms_max,
        )
        made = await self._one("to create a token", request, CreateDelegationTokenResponse, timeout_ms)
        return Token(
            made.token_id,
            made.hmac,
            Principal(made.principal_name, made.principal_type),
            Principal(made.token_requester_principal_name, made.token_requester_principal_type),
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
            may_renew,
        )

    async def renew_token(self, hmac: bytes, period_ms: int = BY_DEFAULT_MS, *, timeout_ms: float | None = None) -> int:
        """Gives when it expires now, in milliseconds since 1970."""
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return (await self._one("to renew a token", request, RenewDelegationTokenResponse, timeout_ms)).expiry_timestamp_ms

    async def expire_token(self, hmac: bytes, period_ms: int = NOW_MS, *, timeout_ms: float | None = None) -> int:
        """Has it expire after a time, or now; gives when that is."""
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        return (await self._one("to expire a token", request, ExpireDelegationTokenResponse, timeout_ms)).expiry_timestamp_ms

    async def describe_tokens(self, owners: Iterable[Principal] | None = None, *, timeout_ms: float | None = None) -> list[Token]:
        """Those that some own, have asked for or may renew, or all that who asks may see."""
        kind = DescribeDelegationTokenRequest
        named = None
        if owners is not None:
            named = [kind.DescribeDelegationTokenOwner(principal_type=each.kind, principal_name=each.name) for each in owners]
        answer = await self._one("to describe tokens", kind(owners=named), DescribeDelegationTokenResponse, timeout_ms)
        return [
            Token(
                each.token_id,
                each.hmac,
                Principal(each.principal_name, each.principal_type),
                Principal(each.token_requester_principal_name, each.token_requester_principal_type),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
                tuple(Principal(renewer.principal_name, renewer.principal_type) for renewer in each.renewers),
            )
            for each in answer.tokens
        ]
