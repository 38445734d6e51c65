"""A group of Kafka Streams: of Apache Kafka, because a node does not serve them yet."""

import json
import signal
from pathlib import Path

import pytest

from odradek.client.admin import Admin, StreamsGroup, StreamsMember, Task
from odradek.client.errors import Refused
from odradek.client.records import Committed, TopicPartition
from odradek.wire.errors import ErrorCode
from tests.cli.program import odradek
from tests.client.admin.scenario import administer, made, seen
from tests.clients.confluent import fill
from tests.clients.word_count import Application
from tests.kafka.broker import Broker

RECORDS = 5
TASKS = tuple(Task(part, partition) for part in ("0", "1") for partition in (0, 1))


def test_a_group_of_streams_is_described_and_its_offsets_are_set_when_it_is_gone(
    kafka: Broker, name: str, tmp_path: Path
) -> None:
    async def scenario(admin: Admin) -> None:
        first, second = await made(admin, name, 2)
        counts, group = f"{name}-counts", f"{name}-group"
        await made(admin, counts)
        fill(kafka.bootstrap, name, RECORDS)

        async def described() -> StreamsGroup:
            found = (await admin.describe_groups([group], include_operations=True))[group]
            assert isinstance(found, StreamsGroup)
            return found

        async def committed() -> dict[TopicPartition, Committed]:
            return (await admin.list_group_offsets([group]))[group]

        application = Application(kafka.bootstrap, tmp_path, name, counts, group=group, protocol="streams")
        application.start()
        try:
            found = await seen(
                described, "its tasks", as_wanted=lambda group: [each for each in group.members if each.assignment]
            )
            check_described(found, name)
            at = "--bootstrap", kafka.bootstrap
            shown = json.loads(odradek("group", "describe", group, "--json", *at).stdout)
            assert (shown["type"], len(shown["members"])) == ("streams", 1)
            await seen(committed, "all is read", as_wanted=lambda told: first in told and told[first].offset == RECORDS)
            assert (await admin.list_groups(types=["streams"]))[group].protocol_type == "streams"
            with pytest.raises(Refused) as caught:
                await admin.delete_groups([group])
            assert caught.value.code == ErrorCode.NON_EMPTY_GROUP
        finally:
            application.end(signal.SIGTERM)
        await seen(described, "nobody", as_wanted=lambda group: group.state == "Empty")
        await admin.alter_group_offsets(group, {first: 2, second: 0})
        assert (await committed())[first] == Committed(2)
        await admin.delete_group_offsets(group, [second])
        assert second not in await committed()
        await admin.delete_groups([group])
        await seen(admin.list_groups, "it is gone", as_wanted=lambda found: group not in found)

    administer(kafka, scenario)


def check_described(group: StreamsGroup, source: str) -> None:
    assert (group.type, group.state, group.topology_epoch) == ("streams", "Stable", 0)
    assert group.operations
    reading, counting = group.subtopologies["0"], group.subtopologies["1"]
    words, count = f"{group.name}-words-repartition", f"{group.name}-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog"
    assert (reading.source_topics, reading.repartition_sinks) == ((source,), (words,))
    assert [topic.name for topic in counting.repartition_topics] == [words]
    assert [topic.name for topic in counting.changelogs] == [count]
    assert counting.changelogs[0].configs["cleanup.policy"] == "compact"
    (member,) = group.members
    assert isinstance(member, StreamsMember)
    assert member.tasks == member.target_tasks
    assert (member.tasks.active, member.tasks.standby, member.tasks.warmup) == (TASKS, (), ())
    assert (
        member.assignment == member.target == tuple(TopicPartition(topic, index) for topic in (source, words) for index in (0, 1))
    )
    assert (member.topics, member.is_classic, member.endpoint) == ((source,), False, None)
    assert member.process_id
