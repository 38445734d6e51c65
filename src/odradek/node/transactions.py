"""The coordinators of transactions on this node: one for each partition of __transaction_state that it leads (core/transactions).

Invariants
 1. Markers are written until they are, for as long as the partition of their transaction is led here.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.core.config.broker import BrokerConfig
from odradek.core.metadata.features import TRANSACTION_VERSION
from odradek.core.metadata.image import MetadataImage
from odradek.core.transactions.config import TransactionConfig
from odradek.core.transactions.coordinator import TransactionCoordinator
from odradek.core.transactions.events import ConfigChanged, Markers, NeedProducerId, ProducerIdGiven
from odradek.node.coordinators import Coordinators, Shard
from odradek.node.markers import MarkerSender
from odradek.node.partition import Partition
from odradek.node.timers import Timers
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, Refused

if TYPE_CHECKING:
    from odradek.node.node import Node

TRANSACTION_STATE = "__transaction_state"


class TransactionShard(Shard[TransactionCoordinator]):
    def __init__(
        self,
        partition: Partition,
        coordinator: TransactionCoordinator,
        timers: Timers,
        now_ms: Callable[[], int],
        node: "Node",
        sender: MarkerSender,
    ) -> None:
        super().__init__(partition, coordinator, Codec.NONE, timers, now_ms)
        self.node = node
        self.sender = sender

    def _do_own(self, effect: Any) -> None:
        match effect:
            case NeedProducerId():
                self.node.spawn(self._give_id(effect))
            case Markers():  # after the answer, for which a producer waits
                self.node.loop.call_soon(self.sender.send, self, effect)
            case _:
                super()._do_own(effect)

    async def _give_id(self, needed: NeedProducerId) -> None:
        try:
            given = ProducerIdGiven(needed.cause, await self.node.new_producer_id())
        except Refused as refused:
            given = ProducerIdGiven(needed.cause, refused.code)
        self.step(given)


class Transactions(Coordinators[TransactionShard]):
    topic = TRANSACTION_STATE

    def __init__(self, node: "Node", timers: Timers, now_ms: Callable[[], int]) -> None:
        super().__init__(node.image, timers, now_ms)
        self.node = node
        self.config = transaction_config(node.config, node.image)
        self.sender = MarkerSender(node)

    def find(self, name: str) -> TransactionShard | ErrorCode:
        """Who may be the coordinator no longer does not say that a transaction is open: another one may have ended it."""
        shard = super().find(name)
        return shard if isinstance(shard, ErrorCode) or shard.partition.is_certain else ErrorCode.NOT_COORDINATOR

    def _new_shard(self, partition: Partition) -> TransactionShard:
        coordinator = TransactionCoordinator(self.config, partition.high_watermark)
        return TransactionShard(partition, coordinator, self.timers, self.now_ms, self.node, self.sender)

    def configure(self, config: BrokerConfig) -> None:
        """The node's settings have changed, or the finalized transaction.version."""
        changed = transaction_config(config, self.image)
        if changed != self.config:
            self.config = changed
            for shard in self.shards.values():
                shard.step(ConfigChanged(changed))

    def close(self) -> None:
        super().close()
        self.sender.close()


def transaction_config(config: BrokerConfig, image: MetadataImage) -> TransactionConfig:
    names = [name for name in TransactionConfig.__struct_fields__ if name != "version"]
    values = {name: config.integer(name.replace("_", ".")) for name in names}
    return TransactionConfig(**values, version=image.features.get(TRANSACTION_VERSION, 0))
