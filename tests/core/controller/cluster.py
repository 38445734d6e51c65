"""A metadata image with some brokers, and the rules under which topics are made on it."""

import itertools
from collections.abc import Iterable
from random import Random

from odradek.core.controller.decision import Versioned
from odradek.core.controller.topics import TopicRules
from odradek.core.metadata.image import MetadataImage
from odradek.wire.messages import BrokerRegistrationChangeRecord, FeatureLevelRecord, RegisterBrokerRecord

INCARNATION = b"i" * 16
TOPIC_NUMBERS = itertools.count(1)


def folder_of(broker: int) -> bytes:
    return b"the folder of %02d" % broker


def registration(broker: int, rack: str | None = None, *, fenced: bool = True, epoch: int = 0) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker,
        broker_epoch=epoch,
        incarnation_id=INCARNATION,
        rack=rack,
        fenced=fenced,
        log_dirs=[folder_of(broker)],
    )


def cluster(
    active: Iterable[int] = (1,), *, fenced: Iterable[int] = (), leaving: Iterable[int] = (), level: int = 30
) -> MetadataImage:
    image = MetadataImage()
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=level))
    if level >= 23:
        image.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    for broker in active:
        image.replay(registration(broker, fenced=False))
    for broker in fenced:
        image.replay(registration(broker))
    for broker in leaving:
        image.replay(registration(broker, fenced=False))
        image.replay(BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=0, in_controlled_shutdown=1))
    return image


def rules(num_partitions: int = 1, default_replication_factor: int = 1, seed: int = 0) -> TopicRules:
    return TopicRules(
        num_partitions=num_partitions,
        default_replication_factor=default_replication_factor,
        check_configs=lambda name, configs: None,
        describe_configs=lambda configs: [],
        chance=Random(seed).randrange,
        unique_id=lambda: next(TOPIC_NUMBERS).to_bytes(16, "big"),
    )


def replayed(image: MetadataImage, records: Iterable[Versioned]) -> None:
    """Has an image replay what was decided, after the bytes that the log would hold."""
    for record, version in records:
        image.replay(type(record).decode(record.to_bytes(version), version))
