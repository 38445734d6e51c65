"""A host for a coordinator of transactions: gives producer ids, and keeps the markers that are to be written."""

from typing import Any

from odradek.core.transactions.config import TransactionConfig
from odradek.core.transactions.coordinator import TransactionCoordinator
from odradek.core.transactions.events import Markers, MarkersWritten, NeedProducerId, ProducerIdGiven
from odradek.core.transactions.transaction import State, TopicIndex, Transaction
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.core.coordinator import host

NAME = "orders"
TIMEOUT_MS = 60_000
CLIENT, BROKER = 3, 5  # versions of AddPartitionsToTxn
V1, V2 = 4, 5  # versions of EndTxn

Partition = tuple[str, int]


class Host(host.Host[TransactionCoordinator]):
    topic = "__transaction_state"

    def __init__(self, config: TransactionConfig | None = None, is_replicated: bool = False) -> None:
        self.config = config or TransactionConfig()
        self.next_id = 1000
        self.no_ids: ErrorCode | None = None  # why there is no producer id
        self.needed: list[NeedProducerId] = []
        self.markers: list[Markers] = []
        super().__init__(is_replicated)

    def new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(self.config, self.high_watermark)

    def do_own(self, effect: Any) -> None:
        match effect:
            case Markers():
                self.markers.append(effect)
            case NeedProducerId():
                self.needed.append(effect)
            case _:
                super().do_own(effect)

    def give_ids(self) -> None:
        needed, self.needed = self.needed, []
        for each in needed:
            self.next_id += 1
            self.step(ProducerIdGiven(each.cause, self.no_ids or self.next_id))

    def write_markers(self, *partitions: TopicIndex) -> None:
        """Those of all partitions, or of some."""
        markers, self.markers = self.markers, []
        for each in markers:
            self.step(MarkersWritten(each, frozenset(partitions) & each.partitions if partitions else each.partitions))

    @property
    def transaction(self) -> Transaction:
        return self.coordinator.entries[NAME].transaction

    @property
    def state(self) -> State:
        return self.transaction.state

    def is_in(self, state: State) -> bool:
        return self.state is state

    # -- what producers ask

    def send_init(self, producer_id: int = -1, epoch: int = -1, version: int = 5, timeout_ms: int = TIMEOUT_MS) -> int:
        request = InitProducerIdRequest(
            transactional_id=NAME, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
        )
        ticket = self.send(request, version)
        self.give_ids()
        return ticket

    def init(self, producer_id: int = -1, epoch: int = -1, version: int = 5) -> tuple[ErrorCode, int, int]:
        answer = self.answer(self.send_init(producer_id, epoch, version))
        assert isinstance(answer, InitProducerIdResponse)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    def begun(self) -> tuple[int, int]:
        """A new producer."""
        error, producer_id, epoch = self.init()
        assert error is ErrorCode.NONE
        return producer_id, epoch

    def send_add(self, producer: tuple[int, int], *partitions: Partition, version: int = BROKER, verify: bool = False) -> int:
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions]
        transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=NAME, producer_id=producer[0], producer_epoch=producer[1], verify_only=verify, topics=topics
        )
        return self.send_as_it_is(AddPartitionsToTxnRequest(transactions=[transaction]), version)

    def added(self, ticket: int) -> list[ErrorCode]:
        answer = self.answer(ticket)
        assert isinstance(answer, AddPartitionsToTxnResponse)
        return [
            ErrorCode(result.partition_error_code)
            for topic in answer.results_by_transaction[0].topic_results
            for result in topic.results_by_partition
        ]

    def add(
        self, producer: tuple[int, int], *partitions: Partition, version: int = BROKER, verify: bool = False
    ) -> list[ErrorCode]:
        return self.added(self.send_add(producer, *partitions, version=version, verify=verify))

    def send_end(self, producer: tuple[int, int], *, commit: bool = True, version: int = V2) -> int:
        request = EndTxnRequest(transactional_id=NAME, producer_id=producer[0], producer_epoch=producer[1], committed=commit)
        ticket = self.send(request, version)
        self.give_ids()
        return ticket

    def end(self, producer: tuple[int, int], *, commit: bool = True, version: int = V2) -> tuple[ErrorCode, tuple[int, int]]:
        answer = self.answer(self.send_end(producer, commit=commit, version=version))
        assert isinstance(answer, EndTxnResponse)
        return ErrorCode(answer.error_code), (answer.producer_id, answer.producer_epoch)
