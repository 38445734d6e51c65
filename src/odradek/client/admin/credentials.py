"""Passwords of users for SCRAM, of which a cluster keeps no more than what checks them.

Invariants
 1. A password does not leave this process: it is salted and stretched here (RFC 5802), and only what comes of that is sent.
"""

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, outcome
from odradek.client.admin.ways import Anywhere
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError, SomeFailed
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

ITERATIONS: Final = 4096
SALT_BYTES: Final = 24


class Mechanism(IntEnum):
    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


HASHES: Final = {Mechanism.SCRAM_SHA_256: "sha256", Mechanism.SCRAM_SHA_512: "sha512"}


class ScramCredential(Struct, frozen=True):
    mechanism: Mechanism
    iterations: int


class NewPassword(Struct, frozen=True):
    """In place of the one that the user has for this mechanism, if any."""

    user: str
    password: str
    mechanism: Mechanism = Mechanism.SCRAM_SHA_512
    iterations: int = ITERATIONS

    def __repr__(self) -> str:
        return f"NewPassword({self.user!r}, {self.mechanism.name})"


class Credentials(Asking):
    async def describe_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, tuple[ScramCredential, ...]]:
        """Which users have a password (None: all), and how it is kept. One who has none is left out."""
        kind = DescribeUserScramCredentialsRequest
        named = None if users is None else [kind.UserName(name=name) for name in users]
        answer = await self._one("to describe credentials", kind(users=named), DescribeUserScramCredentialsResponse, timeout_ms)
        found: dict[str, tuple[ScramCredential, ...] | KafkaError] = {
            each.user: outcome(
                tuple(ScramCredential(Mechanism(info.mechanism), info.iterations) for info in each.credential_infos),
                each.error_code,
                each.error_message,
            )
            for each in answer.results
            if each.error_code != ErrorCode.RESOURCE_NOT_FOUND
        }
        errors = {user: each for user, each in found.items() if isinstance(each, KafkaError)}
        done = {user: each for user, each in found.items() if not isinstance(each, KafkaError)}
        if errors:
            raise SomeFailed(errors, done)
        return done

    async def alter_credentials(
        self,
        passwords: Iterable[NewPassword] = (),
        *,
        deletions: Iterable[tuple[str, Mechanism]] = (),
        timeout_ms: float | None = None,
    ) -> None:
        """Gives users new passwords, or takes them away. One user is named once."""
        kind = AlterUserScramCredentialsRequest
        upserted = {each.user: each for each in passwords}
        deleted = dict(deletions)

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            request = kind(
                deletions=[kind.ScramCredentialDeletion(name=user, mechanism=deleted[user]) for user in asked if user in deleted],
                upsertions=[self._upsertion(upserted[user]) for user in asked if user in upserted],
            )
            answer = await connection.post(request, AlterUserScramCredentialsResponse, self._patience_ms)
            return {each.user: outcome(None, each.error_code, each.error_message) for each in answer.results}

        await self._each("to alter credentials", [*upserted, *deleted], Anywhere(), ask, timeout_ms)

    def _upsertion(self, wanted: NewPassword) -> AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
        salt = self.cluster.machine.secret(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(HASHES[wanted.mechanism], wanted.password.encode(), salt, wanted.iterations)
        return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=wanted.user, mechanism=wanted.mechanism, iterations=wanted.iterations, salt=salt, salted_password=salted
        )
