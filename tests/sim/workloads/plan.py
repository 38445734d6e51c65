"""What a seed makes of a profile: the topics of a run and who does what with them."""

import random
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from tests.sim.workloads.profile import Profile

REPLICAS_MAX: Final = 3
SEGMENT_BYTES: Final = ("2000", "20000")
FRAGILE_SHARE: Final = 0.2  # of runs
DAY_MS: Final = 86_400_000
KEYS: Final = 6  # of a compacted topic

INPUTS: Final = ("kept-1",)  # of groups that process what they read
OUTPUT: Final = "kept-2"

RENEWED: Final = "renewed"

Kind = Literal["kept", "compacted", "short", "passing", "renewed"]


class TopicPlan(msgspec.Struct):
    """`passing` topics are made by the administrator, and deleted; those that are `renewed` are deleted and made anew."""

    name: str
    kind: Kind
    partitions: int
    replicas: int
    configs: dict[str, str]


class GroupPlan(msgspec.Struct, frozen=True):
    name: str
    protocol: str
    topics: tuple[str, ...]
    is_static: bool
    output: str = ""  # a topic that it writes to, in transactions with its offsets


class Plan(msgspec.Struct):
    """A `is_fragile` run has topics with min.insync.replicas=1: two nodes that fail together may take what was acknowledged with
    them, if one has lost something."""

    topics: list[TopicPlan]
    groups: list[GroupPlan]
    sends_per_second: float
    is_fragile: bool


def topic_plan(chance: random.Random, name: str, kind: Kind, nodes: int, *, is_fragile: bool) -> TopicPlan:
    configs: dict[str, str] = {}
    if chance.random() < 0.7:
        configs["internal.segment.bytes"] = chance.choice(SEGMENT_BYTES)
    if chance.random() < 0.2:
        configs["flush.messages"] = str(chance.choice((1, 5)))
    replicas = min(nodes, REPLICAS_MAX) if chance.random() < 0.8 else min(nodes, 2)
    if kind == "compacted":
        configs |= {
            "cleanup.policy": "compact",
            "segment.ms": "3000",
            "min.cleanable.dirty.ratio": "0.1",
            "max.compaction.lag.ms": "4000",
            # who was away for longer brings back what a tombstone had deleted, as in Kafka: then none may go during a run
            "delete.retention.ms": str(chance.choice((1000, 10_000)) if replicas == 1 else DAY_MS),
        }
    if kind == "short":
        configs |= {"cleanup.policy": "delete", "retention.ms": str(chance.choice((5000, 15_000))), "segment.ms": "2000"}
    if replicas == 2 and is_fragile:
        configs["min.insync.replicas"] = "1"
    return TopicPlan(name, kind, chance.choice((1, 1, 2, 3)), replicas, configs)


def make_plan(seed: str, profile: Profile, nodes: int) -> Plan:
    chance = random.Random(f"{seed}/plan")
    kinds: Mapping[str, Kind] = {"kept-1": "kept", "kept-2": "kept", "compacted": "compacted", "short": "short"}
    is_fragile = chance.random() < FRAGILE_SHARE
    topics = [topic_plan(chance, name, kind, nodes, is_fragile=is_fragile) for name, kind in kinds.items()]
    groups = []
    for number in range(profile.groups):
        protocol = profile.protocols[(number + chance.randrange(len(profile.protocols))) % len(profile.protocols)]
        chosen = chance.sample([topic.name for topic in topics], chance.randint(1, len(topics)))
        groups.append(GroupPlan(f"group-{number + 1}", protocol, tuple(sorted(chosen)), chance.random() < profile.static_share))
    for number in range(profile.processing):
        protocol = chance.choice(profile.protocols)
        groups.append(GroupPlan(f"processing-{number + 1}", protocol, INPUTS, chance.random() < profile.static_share, OUTPUT))
    sends_per_second = chance.choice(profile.sends_per_second)
    if profile.has_administrator and chance.random() < profile.renewed_share:
        topics.append(topic_plan(chance, RENEWED, "renewed", nodes, is_fragile=is_fragile))
        for number in range(profile.groups):
            if chance.random() < profile.renewed_share:
                groups[number] = replace(groups[number], topics=(*groups[number].topics, RENEWED))
    return Plan(topics, groups, sends_per_second, is_fragile)
