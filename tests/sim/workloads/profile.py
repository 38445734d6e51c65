"""Profiles: what a run is made of, beside its faults: how many of which clients, and nodes that are set to be quick about things.

A profile that is small in every time-out lets much happen in little time. None of it is below what a node allows.
"""

from typing import Final

import msgspec

NODE_SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.max.bytes": "2000",  # a follower refuses more at once than a segment holds, and some hold no more
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "controller.quorum.fetch.timeout.ms": "1500",
    "controller.quorum.election.timeout.ms": "800",
    "controller.quorum.retry.backoff.ms": "100",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "700",
    "log.segment.delete.delay.ms": "1000",
    "leader.imbalance.check.interval.seconds": "10",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.index.interval.bytes": "300",  # so that segments of a few batches have an index
    "group.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.session.timeout.ms": "5000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.message.timestamp.after.max.ms": "9223372036854775807",  # a clock that is set back refuses nothing
    "auto.create.topics.enable": "false",
}

SNAPSHOT_SETTINGS: Final = {  # the metadata log is cut behind snapshots again and again
    "metadata.log.max.record.bytes.between.snapshots": "2500",
    "metadata.log.segment.ms": "2000",
    "metadata.max.retention.bytes": "6000",
}

ROLL_SETTINGS: Final = {"log.roll.ms": "1000"}  # many small segments, of which some wait for their sync
FLUSH_SETTINGS: Final = {"log.flush.interval.messages": "1"}  # everything is synced at once, also what is not committed
PATIENT_SETTINGS: Final = {  # what is asked for again and again is asked for less often
    "replica.fetch.wait.max.ms": "2000",
    "group.consumer.heartbeat.interval.ms": "2000",
}


class Profile(msgspec.Struct, frozen=True):
    name: str
    writers: int = 3
    transactors: int = 0
    readers: int = 1
    protocols: tuple[str, ...] = ("range", "cooperative-sticky", "consumer")  # of groups, of which `groups` are chosen
    groups: int = 2
    processing: int = 0  # groups that process what they read, in transactions
    members: int = 2  # of a group
    session_timeout_ms: int = 5000
    rebalance_timeout_ms: int = 6000
    static_share: float = 0.3  # of groups, whose members have instance ids
    has_twins: bool = False  # a member that stalls is taken for dead: another one comes in its place, with its instance id
    uses_library: bool = False  # programs use `odradek.Producer` and `odradek.Consumer`
    electors: int = 0  # programs that have leaders change
    probers: int = 0  # programs that ask in other leader epochs
    elects_coordinators: bool = False  # what electors change are the leaders of internal topics
    era: str | None = None  # of transactors: a kind of them
    is_eager: bool = False  # transactors commit offsets too, leave transactions open for good, and have ends come late
    has_administrator: bool = True
    changes_voters: bool = True
    allows_unclean: bool = False  # loss is allowed then, and told
    sends_per_second: tuple[float, ...] = (1.0, 2.0, 4.0)  # of a writer: one of them
    operation_seconds: float = 3.0  # between two of the administrator
    renewed_share: float = 0.7  # of runs that have one: they have a topic that is made anew, and of groups there as many read it
    renewals: int = 2  # of a round of its operations, of which eleven are others: topics that are made anew
    controllers: int = 3  # at most
    voter_seconds: float = 15.0  # between two changes of who votes
    has_hasty_voters: bool = False  # changes of voters are asked for in haste, regretted, and wrong
    election_seconds: float = 1.0  # between two of an elector
    accident_seconds: float = 20.0  # between two of a member: it crashes, leaves or stalls
    folders: int = 1  # of a node, each on a disk of its own
    slowness: float = 1.0  # a run is so many times longer than others, and its faults are so many times rarer
    node_settings: dict[str, str] = msgspec.field(default_factory=lambda: dict(NODE_SETTINGS))


PROFILES: Final = {
    each.name: each
    for each in (
        Profile("mixed", transactors=1, processing=1),
        Profile(
            "transactions",
            writers=1,
            readers=2,
            groups=1,
            transactors=2,
            processing=1,
            operation_seconds=6.0,
            accident_seconds=6.0,
        ),
        Profile(
            "zombies",  # many lives of few transactional ids
            writers=1,
            groups=0,
            transactors=4,
            is_eager=True,
            has_administrator=False,
            changes_voters=False,
            sends_per_second=(4.0,),
            accident_seconds=3.0,
        ),
        Profile(
            "older transactions",  # of one epoch each life
            writers=1,
            groups=0,
            transactors=5,
            era="oldest",
            is_eager=True,
            has_administrator=False,
            changes_voters=False,
            sends_per_second=(4.0,),
            accident_seconds=60.0,
        ),
        Profile(
            "coordinators",  # move all the time, also between the end of a transaction and its markers
            writers=1,
            groups=0,
            transactors=3,
            processing=1,
            electors=2,
            elects_coordinators=True,
            is_eager=True,
            has_administrator=False,
            changes_voters=False,
            sends_per_second=(4.0,),
            accident_seconds=6.0,
        ),
        Profile(
            "processing",  # groups that change all the time, and commit in transactions
            writers=3,
            groups=0,
            processing=3,
            members=3,
            has_administrator=False,
            changes_voters=False,
            sends_per_second=(4.0,),
            accident_seconds=4.0,
        ),
        Profile(
            "instances",  # classic groups of static members, of which some are there twice
            writers=3,
            protocols=("range", "cooperative-sticky"),
            groups=0,
            processing=2,
            members=3,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=1500,  # who stalls misses a rebalance, and is still a member
            static_share=1.0,
            has_twins=True,
            has_administrator=False,
            changes_voters=False,
            sends_per_second=(4.0,),
            accident_seconds=4.0,
        ),
        Profile("library", writers=4, transactors=1, readers=2, uses_library=True, operation_seconds=6.0),
        Profile("writers", writers=5, readers=2, groups=0, operation_seconds=6.0),
        Profile(
            "readers",  # of all eras, at partitions that grow all the time
            readers=8,
            groups=0,
            has_administrator=False,
            changes_voters=False,
            sends_per_second=(4.0,),
        ),
        Profile("groups", writers=2, readers=0, groups=3, members=3, has_administrator=False, accident_seconds=8.0),
        Profile("administration", writers=2, readers=1, groups=1, operation_seconds=0.8),
        Profile(
            "renewal",  # names of topics are used again all the time
            writers=4,
            transactors=1,
            groups=2,
            operation_seconds=0.3,
            renewed_share=1.0,
            renewals=20,
            node_settings=NODE_SETTINGS | FLUSH_SETTINGS,
        ),
        Profile("calm", has_administrator=False, changes_voters=False, accident_seconds=1e9),
        Profile("elections", groups=0, electors=2, probers=1, sends_per_second=(10.0,), operation_seconds=6.0),
        Profile(
            "flapping",  # replicas leave their ISR and come back all the time
            groups=0,
            electors=2,
            sends_per_second=(10.0,),
            operation_seconds=6.0,
            node_settings={**NODE_SETTINGS, "replica.lag.time.max.ms": "500", "replica.fetch.wait.max.ms": "100"},
        ),
        Profile("quiet", writers=2, groups=0, has_administrator=False, changes_voters=False, sends_per_second=(0.5, 1.0)),
        Profile(
            "snapshots", writers=2, readers=1, groups=0, operation_seconds=0.8, node_settings=NODE_SETTINGS | SNAPSHOT_SETTINGS
        ),
        Profile("flushing", writers=5, groups=0, node_settings=NODE_SETTINGS | FLUSH_SETTINGS),
        Profile(
            "flushing coordinators",  # what is written to internal topics is synced too before it counts
            writers=2,
            transactors=2,
            groups=1,
            processing=1,
            electors=1,
            elects_coordinators=True,
            operation_seconds=6.0,
            accident_seconds=6.0,
            node_settings=NODE_SETTINGS | FLUSH_SETTINGS,
        ),
        Profile("rolling", writers=5, groups=0, sends_per_second=(6.0,), node_settings=NODE_SETTINGS | ROLL_SETTINGS),
        Profile(
            "quorum",
            writers=1,
            readers=0,
            groups=0,
            operation_seconds=0.8,
            controllers=5,
            voter_seconds=2.0,
            has_hasty_voters=True,
            node_settings=NODE_SETTINGS | SNAPSHOT_SETTINGS,
        ),
        Profile("folders", writers=4, groups=1, folders=2),
        Profile("unclean", groups=1, allows_unclean=True),
        Profile(
            "unhurried",  # half an hour, and more time between any two things than anybody waits
            writers=2,
            transactors=1,
            groups=1,
            processing=1,
            sends_per_second=(0.05, 0.1),
            operation_seconds=60.0,
            voter_seconds=300.0,
            accident_seconds=400.0,
            slowness=15.0,
            node_settings=NODE_SETTINGS | PATIENT_SETTINGS,
        ),
    )
}
