"""ACLs, quotas, passwords and tokens, and groups that share records: of Apache Kafka, because a node does not serve them yet."""

import hashlib
from functools import partial

import pytest

from odradek.client.admin import (
    Acl,
    AclFilter,
    AclResource,
    Admin,
    Group,
    Match,
    Mechanism,
    NewPassword,
    Operation,
    Pattern,
    Permission,
    QuotaFilter,
    ScramCredential,
    entity,
)
from odradek.client.errors import Refused
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.client.admin.scenario import administer, made, seen
from tests.kafka.asking import ask
from tests.kafka.broker import Broker

MEMBER = "JEXY6aqzQY-32P5TStzaFg"


def test_acls_are_created_found_and_deleted(kafka: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        reads = Acl(AclResource.TOPIC, name, "User:reader", Operation.READ)
        writes = Acl(AclResource.TOPIC, name[:10], "User:writer", Operation.WRITE, Permission.DENY, Pattern.PREFIXED, "10.0.0.1")
        await admin.create_acls([reads, writes])
        matching = AclFilter(AclResource.TOPIC, name, Pattern.MATCH)
        await seen(lambda: admin.describe_acls(matching), "both", as_wanted=lambda found: found == sorted([reads, writes]))
        of_reader = AclFilter(principal="User:reader")
        assert await admin.describe_acls(of_reader) == [reads]
        assert await admin.delete_acls([of_reader]) == {of_reader: [reads]}
        await seen(lambda: admin.describe_acls(matching), "one", as_wanted=lambda found: found == [writes])
        with pytest.raises(Refused) as caught:
            await admin.create_acls([Acl(AclResource.TOPIC, "", "nobody", Operation.READ)])
        assert caught.value.code == ErrorCode.INVALID_REQUEST

    administer(kafka, scenario)


def test_quotas_are_set_found_and_taken_away(kafka: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        mine, rest = entity(user=name, client_id="me"), entity(user=None)
        await admin.alter_quotas({mine: {"producer_byte_rate": 1000.0}, rest: {"request_percentage": 20.5}})
        exact = [QuotaFilter("user", Match.EXACT, name)]
        found = await seen(lambda: admin.describe_quotas(exact), "mine")
        assert found == {mine: {"producer_byte_rate": 1000.0}}
        assert await admin.describe_quotas(exact, strict=True) == {}
        assert await admin.describe_quotas([QuotaFilter("user", Match.DEFAULT)]) == {rest: {"request_percentage": 20.5}}
        await admin.alter_quotas({mine: {"producer_byte_rate": None}}, validate_only=True)
        await admin.alter_quotas({mine: {"producer_byte_rate": None}, rest: {"request_percentage": None}})
        await seen(admin.describe_quotas, "none", as_wanted=lambda found: not found)
        with pytest.raises(Refused):
            await admin.alter_quotas({mine: {"no_such_quota": 1.0}})

    administer(kafka, scenario)


def test_passwords_are_set_and_taken_away_without_being_sent(kafka: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        given = NewPassword(name, "secret", Mechanism.SCRAM_SHA_256, 5000)
        sent = admin._upsertion(given)
        assert sent.salted_password == hashlib.pbkdf2_hmac("sha256", b"secret", sent.salt, 5000)
        assert "secret" not in repr(given)
        await admin.alter_credentials([given])
        wanted = {name: (ScramCredential(Mechanism.SCRAM_SHA_256, 5000),)}
        await seen(admin.describe_credentials, "it", as_wanted=lambda found: found == wanted)
        assert await admin.describe_credentials(["nobody"]) == {}
        await admin.alter_credentials(deletions=[(name, Mechanism.SCRAM_SHA_256)])
        await seen(admin.describe_credentials, "none", as_wanted=lambda found: not found)
        with pytest.raises(Refused) as caught:
            await admin.alter_credentials(deletions=[(name, Mechanism.SCRAM_SHA_256)])
        assert caught.value.code == ErrorCode.RESOURCE_NOT_FOUND

    administer(kafka, scenario)


def test_tokens_are_for_those_who_have_said_who_they_are(kafka: Broker) -> None:
    async def scenario(admin: Admin) -> None:
        renew, expire = partial(admin.renew_token, b"x"), partial(admin.expire_token, b"x")
        for call in (admin.create_token, admin.describe_tokens, renew, expire):
            with pytest.raises(Refused) as caught:
                await call()
            assert caught.value.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    administer(kafka, scenario)


def test_a_share_group_is_described_with_its_members(kafka: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        places = await made(admin, name, 2)
        epoch = 0

        async def described() -> Group:
            """As long as its member is heard of, which that learns its partitions by."""
            nonlocal epoch
            beat = ShareGroupHeartbeatRequest(group_id=name, member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=[name])
            epoch = ask(kafka.port, beat, 1, ShareGroupHeartbeatResponse).member_epoch
            return (await admin.describe_groups([name], include_operations=True))[name]

        group = await seen(described, "its partitions", as_wanted=lambda group: group.members and group.members[0].assignment)
        assert (group.type, group.state, group.protocol_type) == ("share", "Stable", "share")
        assert group.operations
        (member,) = group.members
        assert (member.id, member.topics, member.assignment) == (MEMBER, (name,), tuple(places))
        assert member.epoch == epoch

    administer(kafka, scenario)


def test_offsets_of_a_share_group_are_set_seen_and_forgotten(kafka: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        (place,) = await made(admin, name)
        assert await admin.list_share_group_offsets({name: None}) == {name: {}}

        async def alter() -> bool:
            await admin.alter_share_group_offsets(name, {place: 0})
            return True

        await seen(alter, "the coordinator knows the topic")
        found = await seen(lambda: admin.list_share_group_offsets({name: [place]}), "them", as_wanted=lambda found: found[name])
        assert found[name][place].start == 0
        group = (await admin.describe_groups([name]))[name]
        assert (group.type, group.state, group.members) == ("share", "Empty", ())
        await admin.delete_share_group_offsets(name, [name])
        assert await admin.list_share_group_offsets({name: None}) == {name: {}}
        with pytest.raises(Refused) as caught:
            await admin.delete_share_group_offsets(f"{name}-2", [name])
        assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND

    administer(kafka, scenario)
