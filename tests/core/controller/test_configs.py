"""Which records change configurations. What is refused, and with which code, is held beside Apache Kafka in tests/api."""

import pytest

from odradek.core.controller.configs import alter_configs, incremental_alter_configs
from odradek.core.controller.decision import RECORDS_MAX, Decision
from odradek.core.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    AlterConfigsRequest,
    ClearElrRecord,
    ConfigRecord,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.core.config.node import node
from tests.core.controller.cluster import cluster, replayed

SET, DELETE = 0, 1
Change = tuple[str, int, str | None]


def image_with(*topics: str, level: int = 30) -> MetadataImage:
    image = cluster(level=level)
    for number, name in enumerate(topics, 1):
        image.replay(TopicRecord(name=name, topic_id=number.to_bytes(16, "big")))
    return image


def altered(
    image: MetadataImage, type_: int, name: str, *changes: Change, validate_only: bool = False
) -> Decision[IncrementalAlterConfigsResponse]:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=type_, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return incremental_alter_configs(image, request, node())


def code(decision: Decision[IncrementalAlterConfigsResponse]) -> ErrorCode:
    (response,) = decision.response.responses
    return ErrorCode(response.error_code)


def test_what_changes_is_written_and_what_stays_is_not() -> None:
    image = image_with("t")
    decision = altered(image, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5"), ("segment.ms", DELETE, None))
    assert decision.records == [(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"), 0)]
    replayed(image, decision.records)
    assert image.configs[2, "t"] == {"retention.ms": "5"}
    assert altered(image, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5")).records == []
    deleted = altered(image, TOPIC_RESOURCE, "t", ("retention.ms", DELETE, None))
    assert deleted.records == [(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None), 0)]


def test_a_broker_hears_of_values_that_did_not_change() -> None:
    """Files of that name may have changed."""
    image = image_with()
    first = altered(image, BROKER_RESOURCE, "1", ("log.cleaner.backoff.ms", SET, "5"))
    replayed(image, first.records)
    assert altered(image, BROKER_RESOURCE, "1", ("log.cleaner.backoff.ms", SET, "5")).records == first.records != []


def test_validation_alone_writes_nothing() -> None:
    decision = altered(image_with("t"), TOPIC_RESOURCE, "t", ("retention.ms", SET, "5"), validate_only=True)
    assert (code(decision), decision.records) == (ErrorCode.NONE, [])


def test_a_replacement_deletes_what_it_does_not_name() -> None:
    image = image_with("t")
    replayed(image, altered(image, TOPIC_RESOURCE, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "6")).records)
    configs = [AlterConfigsRequest.AlterableConfig(name="segment.ms", value="7")]
    resource = AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)
    decision = alter_configs(image, AlterConfigsRequest(resources=[resource]), node())
    replayed(image, decision.records)
    assert image.configs[2, "t"] == {"segment.ms": "7"}


@pytest.mark.parametrize(("type_", "name", "topic"), [(TOPIC_RESOURCE, "t", "t"), (BROKER_RESOURCE, "", "")])
def test_eligible_leaders_are_forgotten_when_the_least_number_of_replicas_changes(type_: int, name: str, topic: str) -> None:
    decision = altered(image_with("t"), type_, name, ("min.insync.replicas", SET, "2"))
    assert decision.records[-1] == (ClearElrRecord(topic_name=topic), 0)
    without = altered(image_with("t", level=22), type_, name, ("min.insync.replicas", SET, "2"))
    assert [type(record) for record, _ in without.records] == [ConfigRecord]


@pytest.mark.parametrize("name", ["t", ""])
@pytest.mark.parametrize(
    ("elr", "last", "kept"), [((3,), (3,), (3,)), ((), (3,), ()), ((1, 3), (3,), (3,)), ((1, 3), (2,), (1,))]
)
def test_but_not_the_last_that_may_lead(name: str, elr: tuple[int, ...], last: tuple[int, ...], kept: tuple[int, ...]) -> None:
    """Nobody else ever would: neither is anybody in the ISR."""
    image = image_with("t", "u")
    for topic in image.topics.values():
        image.replay(PartitionRecord(topic_id=topic.id, partition_id=7, replicas=[1, 2, 3], isr=[1], leader=1))
        gone = PartitionChangeRecord(topic_id=topic.id, partition_id=7, isr=[], leader=-1)
        gone.eligible_leader_replicas, gone.last_known_elr = list(elr), list(last)
        image.replay(gone)
    decision = altered(image, TOPIC_RESOURCE if name else BROKER_RESOURCE, name, ("min.insync.replicas", SET, "2"))
    replayed(image, decision.records)
    found = image.topics["t"].partitions[7]
    assert (found.isr, found.elr, found.last_known_elr) == ((), kept, last)
    assert image.topics["u"].partitions[7].elr == (elr if name else kept)


def test_without_eligible_leaders_a_broker_may_have_its_own_least_number_of_replicas() -> None:
    image = image_with(level=22)
    for name in ("", "1"):
        assert code(altered(image, BROKER_RESOURCE, name, ("min.insync.replicas", SET, "2"))) == ErrorCode.NONE
        assert code(altered(image, BROKER_RESOURCE, name, ("min.insync.replicas", DELETE, None))) == ErrorCode.NONE
    assert code(altered(image_with(), BROKER_RESOURCE, "1", ("min.insync.replicas", SET, "2"))) == ErrorCode.INVALID_CONFIG
    assert code(altered(image_with(), BROKER_RESOURCE, "", ("min.insync.replicas", DELETE, None))) == ErrorCode.INVALID_CONFIG


def test_folders_are_cordoned_only_where_the_cluster_knows_of_it() -> None:
    change = ("cordoned.log.dirs", SET, "*")
    assert code(altered(image_with(level=29), BROKER_RESOURCE, "1", change)) == ErrorCode.INVALID_CONFIG
    assert code(altered(image_with(level=30), BROKER_RESOURCE, "1", change)) == ErrorCode.NONE


def test_a_node_that_is_not_registered_is_not_configured() -> None:
    assert (
        code(altered(image_with(), BROKER_RESOURCE, "7", ("log.cleaner.backoff.ms", SET, "5")))
        == ErrorCode.BROKER_ID_NOT_REGISTERED
    )


def test_a_request_of_too_many_changes_is_refused_as_a_whole() -> None:
    changes = [(f"plugin.{number}", SET, "1") for number in range(RECORDS_MAX + 1)]
    decision = altered(image_with(), BROKER_RESOURCE, "1", *changes)
    assert (code(decision), decision.records) == (ErrorCode.POLICY_VIOLATION, [])
