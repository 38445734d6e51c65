"""Groups and their offsets, of a node and of Apache Kafka; those who are members are clients of others."""

import pytest

from odradek.client.admin import Admin
from odradek.client.errors import Refused, SomeFailed
from odradek.client.records import Committed, TopicPartition
from odradek.wire.errors import ErrorCode
from tests.client.admin.scenario import administer, made, seen
from tests.clients.confluent import consuming, fill, rows
from tests.kafka.broker import Broker

RECORDS = 5


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_listed_and_described_with_its_members(server: Broker, name: str, protocol: str) -> None:
    async def scenario(admin: Admin) -> None:
        places = await made(admin, name, 2)
        fill(server.bootstrap, name, RECORDS)
        with consuming(server.bootstrap, name, group_protocol=protocol, client_id="reader") as consumer:
            consumer.subscribe([name])
            rows(consumer, RECORDS)
            listed = await seen(lambda: admin.list_groups(states=["Stable"]), "it", as_wanted=lambda found: name in found)
            assert (listed[name].type, listed[name].protocol_type, listed[name].coordinator) == (protocol, "consumer", 1)
            others = {"classic", "consumer"} - {protocol}
            assert name not in await admin.list_groups(types=others)
            group = (await admin.describe_groups([name], include_operations=True))[name]
            assert (group.name, group.type, group.state, group.protocol_type) == (name, protocol, "Stable", "consumer")
            (member,) = group.members
            assert (member.client_id, member.topics, member.assignment) == ("reader", (name,), tuple(places))
            assert member.is_classic == (protocol == "classic")
            assert member.target == (None if protocol == "classic" else tuple(places))
            assert group.operations
            with pytest.raises(Refused) as caught:
                await admin.delete_groups([name])
            assert caught.value.code == ErrorCode.NON_EMPTY_GROUP
            with pytest.raises(Refused) as busy:
                await admin.alter_group_offsets(name, dict.fromkeys(places, 0))
            assert (busy.value.code, busy.value.group) == (ErrorCode.UNKNOWN_MEMBER_ID, name)

    administer(server, scenario)


def test_offsets_of_groups_are_set_seen_and_forgotten(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        first, second = await made(admin, name, 2)
        fill(server.bootstrap, name, RECORDS)
        await admin.alter_group_offsets(name, {first: Committed(3, "half way"), second: 0})
        found = await admin.list_group_offsets([name, f"{name}-2"], require_stable=True)
        assert found == {name: {first: Committed(3, "half way"), second: Committed(0)}, f"{name}-2": {}}
        assert await admin.list_group_offsets({name: [second]}) == {name: {second: Committed(0)}}
        with consuming(server.bootstrap, name) as consumer:
            consumer.subscribe([name])
            assert [row.offset for row in rows(consumer, RECORDS - 3)] == [3, 4]
        await seen(lambda: admin.list_groups(states=["Empty"]), "nobody", as_wanted=lambda found: name in found)
        await admin.delete_group_offsets(name, [second])
        assert set((await admin.list_group_offsets([name]))[name]) == {first}
        await admin.delete_groups([name])
        await seen(admin.list_groups, "it is gone", as_wanted=lambda found: name not in found)

    administer(server, scenario)


def test_a_partition_that_is_not_there_fails_alone(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        (place,) = await made(admin, name)
        nowhere = TopicPartition(f"{name}-2", 7)
        with pytest.raises(SomeFailed) as caught:
            await admin.alter_group_offsets(name, {place: 0, nowhere: 0})
        assert caught.value.errors[nowhere].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert set(caught.value.done) == {place}

    administer(server, scenario)


def test_a_group_that_is_not_there_is_said_at_once(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.alter_group_offsets(name, dict.fromkeys(await made(admin, name), 0))
        with pytest.raises(SomeFailed) as caught:
            await admin.describe_groups([name, f"{name}-2"])
        assert caught.value.errors[f"{name}-2"].code == ErrorCode.GROUP_ID_NOT_FOUND
        assert caught.value.done[name].state == "Empty"
        with pytest.raises(Refused):
            await admin.delete_groups([f"{name}-2"])

    administer(server, scenario)


def test_static_members_are_sent_away(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await made(admin, name)
        fill(server.bootstrap, name, RECORDS)
        with consuming(server.bootstrap, name, group_instance_id="one") as consumer:
            consumer.subscribe([name])
            rows(consumer, RECORDS)
        assert [each.instance_id for each in (await admin.describe_groups([name]))[name].members] == ["one"]
        with pytest.raises(Refused) as caught:
            await admin.remove_members(name, ["another"])
        assert caught.value.code == ErrorCode.UNKNOWN_MEMBER_ID
        await admin.remove_members(name, ["one"], reason="it does not come back")
        assert (await admin.describe_groups([name]))[name].members == ()
        await admin.remove_members(name)

    administer(server, scenario)
