"""A leader of one partition with brokers around it, as the tests of replication need it."""

from collections.abc import Sequence

from odradek.core.metadata.brokers import Broker, Endpoint
from odradek.core.metadata.topics import RECOVERED, Partition
from odradek.core.partition.broker_session import BrokerSession
from odradek.core.partition.leader import Leader

LAG_MS = 30_000
BROKER_EPOCH = 100  # broker 1 has 101, and so on


def broker(
    broker_id: int, *, epoch: int | None = None, fenced: bool = False, leaving: bool = False, rack: str | None = None
) -> Broker:
    return Broker(
        id=broker_id,
        epoch=BROKER_EPOCH + broker_id if epoch is None else epoch,
        incarnation_id=bytes(16),
        listeners={"PLAINTEXT": Endpoint("localhost", 9092)},
        features={},
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=leaving,
    )


def state(
    isr: Sequence[int] = (1, 2, 3),
    *,
    replicas: Sequence[int] = (1, 2, 3),
    leader: int = 1,
    epoch: int = 5,
    partition_epoch: int = 10,
    adding: Sequence[int] = (),
    recovery_state: int = RECOVERED,
) -> Partition:
    return Partition(
        replicas=tuple(replicas),
        isr=tuple(isr),
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
        adding=tuple(adding),
        recovery_state=recovery_state,
        directories=(bytes(16),) * len(replicas),
    )


def leading(
    partition: Partition | None = None,
    *,
    log_end: int = 0,
    high_watermark: int = 0,
    min_insync: int = 1,
    now_ms: int = 0,
    session: BrokerSession | None = None,
) -> Leader:
    """Broker 1 leads, with brokers 1 to 4 registered."""
    brokers = {number: broker(number) for number in (1, 2, 3, 4)}
    session = session or BrokerSession.alone(BROKER_EPOCH + 1)
    leader = Leader(1, brokers, session, LAG_MS, high_watermark)
    leader.lead(partition or state(), log_end, min_insync, now_ms)
    return leader


def fetch(
    leader: Leader, broker_id: int, offset: int, now_ms: int = 0, *, epoch: int | None = None, broker_epoch: int | None = None
) -> bool:
    """A fetch as the leader's host hands it on."""
    replica = leader.follower(broker_id, leader.epoch if epoch is None else epoch)
    return leader.fetched(replica, offset, 0, BROKER_EPOCH + broker_id if broker_epoch is None else broker_epoch, now_ms)
