"""Topics, their offsets and their records, of a node and of Apache Kafka."""

import pytest

from odradek.client.admin import HIGH_WATERMARK, Admin, Isolation, NewTopic, Offset, Operation
from odradek.client.admin import topics as topics_module
from odradek.client.errors import InvalidOption, Refused, SomeFailed
from odradek.client.records import NO_OFFSET, TopicPartition
from odradek.wire.errors import ErrorCode
from tests.client.admin.scenario import administer, made, seen
from tests.clients.confluent import fill
from tests.kafka.broker import Broker


def test_a_topic_is_created_as_wanted_and_seen_so(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        wanted = NewTopic(name, 3, 1, {"retention.ms": "4711"})
        created = (await admin.create_topics([wanted]))[name]
        assert (created.partitions, created.replication_factor) == (3, 1)
        assert created.configs["retention.ms"] == "4711"
        found = (await seen(lambda: admin.describe_topics([name]), "the topic"))[name]
        assert (found.name, found.id, found.is_internal) == (name, created.id, False)
        assert [each.index for each in found.partitions] == [0, 1, 2]
        assert all((each.leader, each.replicas, each.in_sync) == (1, (1,), (1,)) for each in found.partitions)
        assert all(each.is_healthy and each.eligible == () for each in found.partitions)
        assert (await admin.list_topics())[name].id == found.id

    administer(server, scenario)


def test_brokers_have_the_partitions_that_they_were_given(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        assert (await admin.create_topics([NewTopic(name, assignments={0: [1], 1: [1]})]))[name].partitions == 2
        with pytest.raises(Refused) as caught:
            await admin.create_topics([NewTopic(f"{name}-2", assignments={0: [9]})])
        assert caught.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    administer(server, scenario)


def test_what_is_only_validated_is_not_created(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await admin.create_topics([NewTopic(name)], validate_only=True)
        with pytest.raises(Refused) as caught:
            await admin.create_topics([NewTopic(name, configs={"retention.ms": "long"})], validate_only=True)
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        assert name not in await admin.list_topics()

    administer(server, scenario)


def test_of_several_those_that_fail_are_told_by_name_with_what_was_done(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await made(admin, name)
        with pytest.raises(SomeFailed) as caught:
            await admin.create_topics([NewTopic(name), NewTopic(f"{name}-2")])
        assert {key: error.code for key, error in caught.value.errors.items()} == {name: ErrorCode.TOPIC_ALREADY_EXISTS}
        assert caught.value.errors[name].topic == name
        assert set(caught.value.done) == {f"{name}-2"}
        assert not caught.value.is_retriable
        with pytest.raises(Refused) as alone:
            await admin.create_topics([NewTopic(name)])
        assert alone.value.topic == name

    administer(server, scenario)


def test_a_topic_that_is_not_there_is_said_at_once(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        for ask in (
            lambda: admin.describe_topics([name]),
            lambda: admin.delete_topics([name]),
            lambda: admin.add_partitions({name: 2}),
            lambda: admin.list_offsets({TopicPartition(name, 0): Offset.LATEST}),
            lambda: admin.delete_records({TopicPartition(name, 0): 0}),
        ):
            with pytest.raises(Refused) as caught:
                await ask()
            assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    administer(server, scenario)


def test_pages_of_a_description_are_put_together(server: Broker, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "PARTITIONS_AT_ONCE", 2)

    async def scenario(admin: Admin) -> None:
        names = [f"{name}-{number}" for number in range(3)]
        for each in names:
            await made(admin, each, 5)
        found = await admin.describe_topics(names)
        assert {each: [part.index for part in found[each].partitions] for each in names} == {each: [*range(5)] for each in names}

    administer(server, scenario)


def test_operations_are_told_when_asked_for(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await made(admin, name)
        found = (await admin.describe_topics([name], include_operations=True))[name]
        assert {Operation.READ, Operation.WRITE, Operation.DELETE} <= (found.operations or set())
        assert (await admin.list_topics())[name].operations is None

    administer(server, scenario)


def test_topics_are_deleted_by_name_and_by_id(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await made(admin, name)
        await made(admin, f"{name}-2")
        await admin.delete_topics([name])
        await admin.delete_topics(ids=[(await admin.list_topics())[f"{name}-2"].id])
        await seen(admin.list_topics, "none", as_wanted=lambda found: not {name, f"{name}-2"} & set(found))
        with pytest.raises(InvalidOption):
            await admin.delete_topics(ids=["not an id"])

    administer(server, scenario)


def test_partitions_are_added_and_never_taken_away(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await made(admin, name)
        await admin.add_partitions({name: 3}, validate_only=True)
        await admin.add_partitions({name: 2}, assignments={name: [[1]]})
        await seen(admin.list_topics, "two", as_wanted=lambda found: len(found[name].partitions) == 2)
        with pytest.raises(Refused) as caught:
            await admin.add_partitions({name: 1})
        assert caught.value.code == ErrorCode.INVALID_PARTITIONS

    administer(server, scenario)


def test_offsets_are_found_by_name_and_by_time(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        first, second = await made(admin, name, 2)
        fill(server.bootstrap, name, 10, partition=0)
        assert (await admin.delete_records({first: 4})) == {first: 4}
        ends = await admin.list_offsets({first: Offset.LATEST, second: Offset.LATEST})
        assert (ends[first].offset, ends[second].offset) == (10, 0)
        assert (await admin.list_offsets({first: Offset.EARLIEST}))[first].offset == 4
        assert (await admin.list_offsets({first: Offset.EARLIEST_LOCAL}))[first].offset == 4
        assert (await admin.list_offsets({first: Offset.LATEST_TIERED}))[first].offset == NO_OFFSET
        assert (await admin.list_offsets({first: Offset.EARLIEST_PENDING_UPLOAD}))[first].offset == NO_OFFSET
        newest = (await admin.list_offsets({first: Offset.MAX_TIMESTAMP}))[first]
        assert 0 <= newest.offset < 10  # of a record in the batch that has it, be it deleted or not
        by_time = await admin.list_offsets({first: 0, second: newest.timestamp_ms + 1}, isolation=Isolation.READ_COMMITTED)
        assert (by_time[first].offset, by_time[second].offset) == (4, NO_OFFSET)

    administer(server, scenario)


def test_records_are_deleted_up_to_the_end_and_not_beyond_it(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        (place,) = await made(admin, name)
        fill(server.bootstrap, name, 3)
        with pytest.raises(Refused) as caught:
            await admin.delete_records({place: 4})
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await admin.delete_records({place: HIGH_WATERMARK}) == {place: 3}

    administer(server, scenario)
