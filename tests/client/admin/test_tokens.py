"""Delegation tokens, of an Apache Kafka that asks who one is: a node does not serve them yet."""

import asyncio
import socket
from collections.abc import Iterator
from typing import TypeVar

import pytest

from odradek.client.admin import Admin, Principal
from odradek.client.errors import Refused
from odradek.client.machine import Machine
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import SIZE, decode_response, encode_request
from odradek.wire.message import Message
from odradek.wire.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.client.admin.scenario import administer, seen
from tests.kafka.broker import Broker

OWNER, OTHER, STRANGER = Principal("owner"), Principal("other"), Principal("stranger")
HOUR_MS = 3_600_000
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = f'username="{OWNER.name}" password="secret" user_{OWNER.name}="secret" user_{OTHER.name}="secret"'
SETTINGS = {
    "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
    "sasl_mechanism_inter_broker_protocol": "PLAIN",
    "listener_name_plaintext_plain_sasl_jaas_config": f"{LOGIN} required {USERS};",
    "delegation_token_secret_key": "secret",
}

Answer = TypeVar("Answer", bound=Message)


class Known(Machine):
    """Its connections have said who they are before anybody else uses them."""

    def __init__(self, user: str) -> None:
        super().__init__()
        self.user = user

    async def connect(self, host: str, port: int) -> socket.socket:
        connected = await super().connect(host, port)
        shaken = await exchange(connected, SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
        assert shaken.error_code == 0
        told = SaslAuthenticateRequest(auth_bytes=f"\0{self.user}\0secret".encode())
        assert (await exchange(connected, told, 2, SaslAuthenticateResponse)).error_code == 0
        return connected


async def exchange(connected: socket.socket, request: Message, version: int, answer: type[Answer]) -> Answer:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connected, b"".join(encode_request(request, version, correlation_id=1)))  # type: ignore[arg-type]

    async def receive(size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += (piece := await loop.sock_recv(connected, size - len(found)))
            assert piece, "it was closed"
        return found

    (size,) = SIZE.unpack(await receive(SIZE.size))
    return decode_response(answer, await receive(size), version)[1]


@pytest.fixture(scope="module")
def careful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("careful"), **SETTINGS)
    with broker.running():
        yield broker


def test_a_token_is_made_seen_renewed_and_ended(careful: Broker) -> None:
    async def scenario(admin: Admin) -> None:
        token = await admin.create_token(renewers=[OTHER], lifetime_ms_max=HOUR_MS)
        assert (token.owner, token.requester, token.renewers) == (OWNER, OWNER, (OTHER,))
        assert token.issued_ms < token.expires_ms <= token.expires_ms_max == token.issued_ms + HOUR_MS
        assert repr(token.hmac) not in repr(token)
        await seen(admin.describe_tokens, "it", as_wanted=lambda found: found == [token])
        assert await admin.describe_tokens([OTHER]) == [token]  # who may renew it
        assert await admin.describe_tokens([STRANGER]) == []
        sooner_ms = await admin.renew_token(token.hmac, HOUR_MS // 2)
        assert token.issued_ms < sooner_ms < token.expires_ms
        found = await seen(admin.describe_tokens, "it is renewed", as_wanted=lambda found: found != [token])
        assert [each.expires_ms for each in found] == [sooner_ms]
        assert await admin.expire_token(token.hmac) < sooner_ms
        await seen(admin.describe_tokens, "none", as_wanted=lambda found: not found)
        with pytest.raises(Refused) as caught:
            await admin.renew_token(token.hmac)
        assert caught.value.code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    administer(careful, scenario, machine=Known(OWNER.name))


def test_a_token_can_be_another_ones_and_is_renewed_by_nobody_else(careful: Broker) -> None:
    async def make(admin: Admin) -> bytes:
        token = await admin.create_token(owner=OTHER)
        assert (token.owner, token.requester) == (OTHER, OWNER)
        await seen(lambda: admin.describe_tokens([OTHER]), "it", as_wanted=lambda found: found == [token])
        mine = await admin.create_token()
        found = await seen(lambda: admin.describe_tokens([OWNER]), "mine", as_wanted=lambda found: mine in found)
        assert {each.id for each in found} == {token.id, mine.id}  # the one that is owned, and the one that was asked for
        return mine.hmac

    hmac = administer(careful, make, machine=Known(OWNER.name))

    async def renew(admin: Admin) -> None:
        with pytest.raises(Refused) as caught:
            await admin.renew_token(hmac)
        assert caught.value.code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH

    administer(careful, renew, machine=Known(OTHER.name))
