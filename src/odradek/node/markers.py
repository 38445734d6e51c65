"""Sends the ends of transactions to whoever leads their partitions, until all have them.

What is for another broker goes in one request, and the next one leaves when that is answered. What was not written is tried
again, at whoever leads the partition then. A partition that is no more needs no marker. But transactions know it by the name
of its topic, and this node may hear of a deletion before it hears that the topic was made anew: so it is looked for for a while.

Invariants
 1. A marker is given up only when its coordinator is closed, or its producer was overtaken: INVALID_PRODUCER_EPOCH. One that was
    overtaken by another coordinator is closed when this node hears of that; or it leads again by then, in a later epoch.
 2. The coordinator hears once of each partition that is done with.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.api.write_txn_markers import write_markers
from odradek.core.transactions.events import Markers, MarkersWritten
from odradek.core.transactions.transaction import TopicIndex
from odradek.node.coordinators import Shard
from odradek.node.peers import Channel, Unreachable
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from odradek.node.node import Node

RETRY_MS: Final = 50
GONE_MS: Final = 5_000  # that a topic has to be gone, until nobody is told any more
NOBODY: Final = -1

logger = logging.getLogger("odradek.markers")


class Job(NamedTuple):
    """A marker for one partition."""

    shard: Shard[Any]
    markers: Markers
    place: TopicIndex
    given_up_ms: float | None = None  # when its topic will have been gone for long enough

    @property
    def key(self) -> tuple[int, TopicIndex]:
        """By which an answer tells of it: a request has no two with the same."""
        return (self.markers.producer_id, self.place)


class MarkerSender:
    def __init__(self, node: "Node") -> None:
        self.node = node
        self.queues: dict[int, list[Job]] = {}  # by broker, what is to be sent
        self.busy: set[int] = set()  # brokers that have a request under way
        self.channels: dict[int, Channel] = {}
        self.is_closed = False

    def send(self, shard: Shard[Any], markers: Markers) -> None:
        self._queue(Job(shard, markers, place) for place in sorted(markers.partitions))

    def _queue(self, jobs: Iterable[Job]) -> None:
        gone: list[Job] = []
        missing: list[Job] = []
        now_ms = self.node.timers.now_ms()
        for job in jobs:
            leader = self._leader(job.place)
            if leader is not None:
                self.queues.setdefault(leader, []).append(job)
            elif job.given_up_ms is None:
                missing.append(job._replace(given_up_ms=now_ms + GONE_MS))
            else:
                (missing if now_ms < job.given_up_ms else gone).append(job)
        self._done(gone)
        if missing and not self.is_closed:
            self.node.timers.after(RETRY_MS, lambda: self._queue(missing))
        for broker in [*self.queues]:
            if broker == self.node.node_id:  # where nobody waits for a connection
                self.node.spawn(self._send(broker))
            elif broker not in self.busy:
                self.busy.add(broker)
                self.node.spawn(self._run(broker))

    def _leader(self, place: TopicIndex) -> int | None:
        """Who leads a partition, NOBODY when nobody does now, None when there is no such partition."""
        topic = self.node.image.topics.get(place[0])
        partition = None if topic is None else topic.partitions.get(place[1])
        if partition is None:
            return None
        broker = self.node.image.brokers.get(partition.leader)
        return NOBODY if broker is None or broker.fenced else partition.leader

    async def _run(self, broker: int) -> None:
        """Sends what there is for a broker, and what has come meanwhile."""
        try:
            while not self.is_closed and broker in self.queues:
                await self._send(broker)
        finally:
            self.busy.discard(broker)

    async def _send(self, broker: int) -> None:
        jobs = self._take(broker)
        again = jobs if broker == NOBODY or not jobs else await self._write(broker, jobs)
        if again and not self.is_closed:
            self.node.timers.after(RETRY_MS, lambda: self._queue(again))

    def _take(self, broker: int) -> list[Job]:
        """What goes into one request; the next of the same producer and partition has to wait."""
        taken: dict[tuple[int, TopicIndex], Job] = {}
        left = []
        for job in self.queues.pop(broker, ()):
            if not job.shard.is_closed:
                if job.key in taken:
                    left.append(job)
                else:
                    taken[job.key] = job
        if left:
            self.queues[broker] = left
        return list(taken.values())

    async def _write(self, broker: int, jobs: list[Job]) -> list[Job]:
        """Has a broker write markers; gives those that are to be tried again."""
        try:
            response = await self._ask(broker, request_for(jobs))
        except Unreachable as error:
            logger.debug("node %d writes no markers: %s", broker, error)
            return jobs
        codes = results_of(response)
        written, again = [], []
        for job in jobs:
            code = codes.get(job.key, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code is ErrorCode.NONE:
                written.append(job)
            elif code is ErrorCode.INVALID_PRODUCER_EPOCH:
                logger.info("%s: the end of a transaction was overtaken: %s", job.shard.partition, code.name)
            else:
                again.append(job)
        self._done(written)
        return again

    async def _ask(self, broker: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if broker == self.node.node_id:
            given: asyncio.Future[WriteTxnMarkersResponse] = asyncio.get_running_loop().create_future()
            await write_markers(request, self.node, given.set_result)
            return await given
        endpoint = self.node.partitions.replication.endpoint_of(broker)
        if endpoint is None:
            raise Unreachable(f"node {broker} is not registered")
        channel = self.channels.get(broker)
        if channel is None or (channel.host, channel.port) != (endpoint.host, endpoint.port):
            if channel is not None:
                channel.close()
            client_id = f"broker-{self.node.node_id}-markers"
            channel = self.channels[broker] = Channel(self.node.machine, endpoint.host, endpoint.port, client_id)
        return await channel.ask(request, WriteTxnMarkersResponse, self.node.config.integer("request.timeout.ms"))

    def _done(self, jobs: list[Job]) -> None:
        by_markers: dict[int, tuple[Job, set[TopicIndex]]] = {}
        for job in jobs:
            by_markers.setdefault(id(job.markers), (job, set()))[1].add(job.place)
        for job, places in by_markers.values():
            if not job.shard.is_closed:
                job.shard.step(MarkersWritten(job.markers, frozenset(places)))

    def close(self) -> None:
        self.is_closed = True
        for channel in self.channels.values():
            channel.close()


def request_for(jobs: list[Job]) -> WriteTxnMarkersRequest:
    kind = WriteTxnMarkersRequest
    found: dict[int, WriteTxnMarkersRequest.WritableTxnMarker] = {}
    for job in jobs:
        markers, (topic, index) = job.markers, job.place
        marker = found.get(id(markers))
        if marker is None:
            marker = found[id(markers)] = kind.WritableTxnMarker(
                producer_id=markers.producer_id,
                producer_epoch=markers.epoch,
                transaction_result=markers.is_commit,
                coordinator_epoch=job.shard.partition.leader_epoch,
                transaction_version=markers.version,
            )
        if not marker.topics or marker.topics[-1].name != topic:
            marker.topics.append(kind.WritableTxnMarkerTopic(name=topic))
        marker.topics[-1].partition_indexes.append(index)
    return kind(markers=list(found.values()))


def results_of(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicIndex], ErrorCode]:
    return {
        (marker.producer_id, (topic.name, result.partition_index)): ErrorCode(result.error_code)
        for marker in response.markers
        for topic in marker.topics
        for result in topic.partitions
    }
