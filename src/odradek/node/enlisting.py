"""Takes partitions into transactions: asks their coordinators, on this node or another, before the first batch is appended.

What is for one broker goes in one request; whatever comes meanwhile goes with the next.

Invariants
 1. A request tells of a transactional id once: its next question waits for the answer to the first.
 2. Without an answer nothing is known: NETWORK_EXCEPTION, and the producer sends its batch again.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.core.coordinator.events import Request
from odradek.core.coordinator.partitioning import partition_of
from odradek.core.transactions.requests import BROKERS_SINCE
from odradek.core.transactions.transaction import TopicIndex
from odradek.node.peers import Channel, Unreachable
from odradek.node.transactions import TRANSACTION_STATE
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from odradek.node.node import Node

Asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Answered = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
Answer = asyncio.Future[Answered | ErrorCode]

logger = logging.getLogger("odradek.enlisting")


class Lane:
    """The questions for one broker."""

    def __init__(self, enlisting: "Enlisting", broker: int) -> None:
        self.node = enlisting.node
        self.broker = broker
        self.waiting: list[tuple[Asked, Answer]] = []
        self.channel: Channel | None = None
        self.is_busy = False

    async def ask(self, transaction: Asked) -> Answered | ErrorCode:
        answer: Answer = asyncio.get_running_loop().create_future()
        self.waiting.append((transaction, answer))
        if not self.is_busy:
            self.is_busy = True
            self.node.spawn(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self.waiting:
                await self._send(self._take())
        finally:
            self.is_busy = False

    def _take(self) -> dict[str, tuple[Asked, Answer]]:
        taken: dict[str, tuple[Asked, Answer]] = {}
        left = []
        for each in self.waiting:
            name = each[0].transactional_id
            if name in taken:
                left.append(each)
            else:
                taken[name] = each
        self.waiting = left
        return taken

    async def _send(self, taken: dict[str, tuple[Asked, Answer]]) -> None:
        found: dict[str, Answered | ErrorCode] = {}
        try:
            response = await self._ask(AddPartitionsToTxnRequest(transactions=[asked for asked, _ in taken.values()]))
            if response.error_code:
                found = dict.fromkeys(taken, ErrorCode(response.error_code))
            else:
                found = {result.transactional_id: result for result in response.results_by_transaction}
        except Unreachable as error:
            logger.debug("node %d cannot be asked about transactions: %s", self.broker, error)
        for name, (_, answer) in taken.items():
            if not answer.done():
                answer.set_result(found.get(name, ErrorCode.NETWORK_EXCEPTION))

    async def _ask(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        endpoint = self.node.partitions.replication.endpoint_of(self.broker)
        if endpoint is None:
            raise Unreachable(f"node {self.broker} is not registered")
        channel = self.channel
        if channel is None or (channel.host, channel.port) != (endpoint.host, endpoint.port):
            self.close()
            client_id = f"broker-{self.node.node_id}-transactions"
            channel = self.channel = Channel(self.node.machine, endpoint.host, endpoint.port, client_id)
        return await channel.ask(request, AddPartitionsToTxnResponse, self.node.config.integer("request.timeout.ms"))

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()


class Enlisting:
    def __init__(self, node: "Node") -> None:
        self.node = node
        self.lanes: dict[int, Lane] = {}

    async def enlist(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicIndex], *, is_adding: bool
    ) -> Mapping[TopicIndex, ErrorCode]:
        """What the coordinator says about each partition. One that is still busy with the last transaction of the producer is
        asked again for a while, when it is to add them."""
        asked = Asked(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=not is_adding,
            topics=by_topic(partitions),
        )
        config, loop = self.node.config, asyncio.get_running_loop()
        end_s = loop.time() + config.integer("add.partitions.to.txn.retry.backoff.max.ms") / 1000
        while True:
            errors = errors_of(await self._ask(asked), partitions)
            if not is_adding or ErrorCode.CONCURRENT_TRANSACTIONS not in errors.values() or loop.time() >= end_s:
                return errors
            await asyncio.sleep(config.integer("add.partitions.to.txn.retry.backoff.ms") / 1000)

    async def _ask(self, asked: Asked) -> Answered | ErrorCode:
        image = self.node.image
        topic = image.topics.get(TRANSACTION_STATE)
        if topic is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        leader = topic.partitions[partition_of(asked.transactional_id, len(topic.partitions))].leader
        if leader == self.node.node_id:
            return await self._ask_here(asked)
        broker = image.brokers.get(leader)
        if broker is None or broker.fenced:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        lane = self.lanes.get(leader)
        if lane is None:
            lane = self.lanes[leader] = Lane(self, leader)
        return await lane.ask(asked)

    async def _ask_here(self, asked: Asked) -> Answered | ErrorCode:
        shard = self.node.transactions.find(asked.transactional_id)
        if isinstance(shard, ErrorCode):
            return shard
        answer: asyncio.Future[AddPartitionsToTxnResponse] = asyncio.get_running_loop().create_future()
        request = AddPartitionsToTxnRequest(transactions=[asked])
        shard.step(Request(answer.set_result, request, BROKERS_SINCE, "", ""))
        return (await answer).results_by_transaction[0]

    def close(self) -> None:
        for lane in self.lanes.values():
            lane.close()


def by_topic(partitions: Sequence[TopicIndex]) -> list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]:
    topics: dict[str, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
    for name, index in partitions:
        if name not in topics:
            topics[name] = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name)
        topics[name].partitions.append(index)
    return list(topics.values())


def errors_of(found: Answered | ErrorCode, partitions: Sequence[TopicIndex]) -> dict[TopicIndex, ErrorCode]:
    if isinstance(found, ErrorCode):
        return dict.fromkeys(partitions, found)
    told = dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
    for topic in found.topic_results:
        for result in topic.results_by_partition:
            error = ErrorCode(result.partition_error_code)
            is_fenced = error is ErrorCode.PRODUCER_FENCED  # which producers know by another name
            told[topic.name, result.partition_index] = ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else error
    return told
