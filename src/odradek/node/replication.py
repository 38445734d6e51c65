"""Follows the partitions that other nodes lead: fetches what they have, and takes it over unchanged.

What to ask for and what an answer means is decided by the machines (core/partition: Fetcher, Follower); here are the connections,
the logs, and the time.

Invariants
 1. A partition is fetched by one fetcher at a time, from whoever leads it by the metadata.
 2. A step of an answer is taken before the next request is built.
 3. What concerns one partition, or one leader, never holds up another leader's.
 4. A partition that is new to a fetcher is asked for after HURRY_MS at the latest, also while the leader holds a request back
    because it has nothing: what is produced to that partition with acks=all would wait as long.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from odradek.core.metadata.brokers import Endpoint
from odradek.core.metadata.topics import Partition as State
from odradek.core.metadata.topics import Topic
from odradek.core.partition.fetcher import Fetcher, FetcherSettings, Work, fetcher_id
from odradek.core.partition.follower import Action, Follower, Step
from odradek.core.partition.replica import TopicIdPartition
from odradek.log.disk import DiskFailed, DiskFull
from odradek.log.log import Log
from odradek.node.peers import Channel, Unreachable
from odradek.node.readable import FollowedPartition
from odradek.wire.batch import HEADER_SIZE, read_header
from odradek.wire.errors import ProtocolError, Refused
from odradek.wire.message import Message
from odradek.wire.messages import FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from odradek.wire.varint import Buffer

if TYPE_CHECKING:
    from odradek.node.partitions import Partitions

EARLIEST, LATEST = -2, -1
HURRY_MS = 20  # a request that the leader does not hold back is answered by then

Answer = TypeVar("Answer", bound=Message)

logger = logging.getLogger("odradek.replication")


class FollowedLog:
    """A log as a follower looks at it."""

    __slots__ = ("log",)

    def __init__(self, log: Log) -> None:
        self.log = log

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def lasting_start(self) -> int:
        return self.log.lasting_start

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def latest_epoch(self) -> int:
        return self.log.epochs.latest_epoch

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)


class Source:
    """One fetcher and its connection to the leader."""

    def __init__(self, replication: "Replication", leader_id: int, number: int) -> None:
        self.replication = replication
        self.leader_id = leader_id
        self.fetcher = Fetcher(replication.node_id, replication.settings, replication.quota)
        self.client_id = f"broker-{replication.node_id}-fetcher-{number}"
        self.channel: Channel | None = None
        self.wanted = asyncio.Event()  # something to fetch was added since the last request was built
        self.is_under_way = False
        self.is_given_up = False  # what is under way
        self.hurrying: asyncio.TimerHandle | None = None
        self.loop = asyncio.get_running_loop()
        self.task = self.loop.create_task(self._run())

    def add(self, follower: Follower) -> None:
        self.fetcher.add(follower)
        self.wanted.set()
        if self.is_under_way and self.hurrying is None:
            self.hurrying = self.loop.call_later(HURRY_MS / 1000, self._hurry)

    def _hurry(self) -> None:
        """Gives up a request that is held back: only a new one can name what was added."""
        self.hurrying = None
        if not self.is_under_way or not self.wanted.is_set():
            return
        if self.channel is None or not self.channel.is_connected:  # yet
            self.hurrying = self.loop.call_later(HURRY_MS / 1000, self._hurry)
            return
        self.is_given_up = True
        self.channel.close()

    async def _run(self) -> None:
        replication = self.replication
        while True:
            self.wanted.clear()
            request = self.fetcher.request(replication.broker_epoch(), replication.now_ms())
            if request is None:
                await self._pause()
                continue
            self.is_under_way, self.is_given_up = True, False
            try:
                response = await self._ask(request, FetchResponse)
            except Unreachable as error:
                if self.is_given_up:
                    self.fetcher.given_up()
                else:
                    logger.debug("node %d cannot be fetched from: %s", self.leader_id, error)
                    self.fetcher.failed(replication.now_ms())
                continue
            finally:
                self.is_under_way = False
            try:
                await self._take_all(response)
            except Exception as error:  # noqa: BLE001 - a fault of ours: it is told, and stops nobody from following
                what = f"what node {self.leader_id} has sent cannot be taken"
                self.loop.call_exception_handler({"message": what, "exception": error})
                self.fetcher.failed(replication.now_ms())

    async def _take_all(self, response: FetchResponse) -> None:
        """Whatever it held is let go of afterwards: files of logs that are deleted take room as long as somebody holds them."""
        replication, works = self.replication, self.fetcher.answered(response, self.replication.now_ms())
        for work in works:
            if work.follower in replication.logs:  # not stopped while another's step was taken
                await self._take(work)
                self.fetcher.changed(work.follower)
        followed = (replication.logs.get(work.follower) for work in works)
        moved = [log for log in followed if log is not None and log.lasting_start < log.start_offset]
        if moved:
            await replication.partitions.note_starts(moved)

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.fetcher.pause_ms(self.replication.now_ms()) / 1000):
                await self.wanted.wait()

    async def _ask(self, request: Message, response: type[Answer]) -> Answer:
        endpoint = self.replication.endpoint_of(self.leader_id)
        if endpoint is None:
            raise Unreachable(f"node {self.leader_id} is not registered")
        if self.channel is None or (self.channel.host, self.channel.port) != (endpoint.host, endpoint.port):
            self._close_channel()
            self.channel = Channel(self.replication.partitions.machine, endpoint.host, endpoint.port, self.client_id)
        return await self.channel.ask(request, response, self.replication.timeout_ms)

    async def _take(self, work: Work) -> None:
        follower, step = work.follower, work.step
        replication = self.replication
        log = replication.logs[follower]
        if log.is_being_written:  # still for the leader that this node was
            end_offset = log.end_offset
            await replication.partitions.writing_of(log).idle(log)
            is_as_asked = follower in replication.logs and log.end_offset == end_offset
            if step.action is not Action.TAKE_WATERMARKS or not is_as_asked:
                follower.is_asking = False  # whatever was to be done comes up again, but watermarks are told once
                return
        try:
            match step.action:
                case Action.APPEND:
                    await replication.append(follower, log, work.answer.records)
                    if follower in replication.logs:
                        replication.take_watermarks(follower, log, work.answer)
                        await self._look_at_copy(follower, log)
                case Action.TAKE_WATERMARKS:
                    replication.take_watermarks(follower, log, work.answer)
                    await self._look_at_copy(follower, log)
                case Action.ASK_OFFSETS:
                    told = await self._told(follower)
                    if follower in replication.logs:  # not stopped meanwhile: this node may lead the partition by now
                        self._move(log, told)
                case _:
                    self._move(log, step)
        except (DiskFull, ProtocolError, Refused) as error:
            logger.warning("%s cannot follow node %d: %s", log.folder, self.leader_id, error)
            follower.delay(replication.now_ms(), self.fetcher.settings.backoff_ms)
            if isinstance(error, DiskFull):
                replication.partitions.filled(replication.partitions.folder_of(log))
            elif isinstance(error, ProtocolError) and step.action is not Action.APPEND:  # it is our log that cannot be read
                partition = FollowedPartition(replication.partitions, log, follower)
                replication.partitions.damaged(partition, log.start_offset, str(error))
        except DiskFailed as error:
            follower.fail()
            replication.partitions.failed(error)

    def _move(self, log: Log, step: Step) -> None:
        now_ms = self.replication.partitions.now_ms()
        if step.action is Action.TRUNCATE:
            logger.info("%s is cut from %d to %d, where it parts from its leader's", log.folder, log.end_offset, step.offset)
            if step.offset < log.high_watermark:  # only an unclean election explains it
                logger.warning("%s loses what was committed, from %d to %d", log.folder, step.offset, log.high_watermark)
            log.truncate_to(step.offset, now_ms)
        elif step.action is Action.RESET:
            logger.info("%s begins anew at %d, where its leader's begins", log.folder, step.offset)
            log.reset_to(step.offset, now_ms)

    async def _told(self, follower: Follower) -> Step:
        """Where the leader's log starts and ends."""
        offsets = []
        epoch, code = follower.leader_epoch, 0
        for timestamp in (EARLIEST, LATEST):
            found = await self._offset(follower, timestamp)
            if found is None:
                follower.delay(self.replication.now_ms(), self.fetcher.settings.backoff_ms)
                return Step(Action.NONE)
            offsets.append(found.offset)
            code = code or found.error_code
        return follower.offsets_told(
            epoch, code, offsets[0], offsets[1], self.replication.now_ms(), self.fetcher.settings.backoff_ms
        )

    async def _offset(self, follower: Follower, timestamp: int) -> ListOffsetsResponse.ListOffsetsPartitionResponse | None:
        """What the leader says about one of its ends; None when it cannot be asked."""
        wanted = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=follower.index, current_leader_epoch=follower.leader_epoch, timestamp=timestamp
        )
        topic = ListOffsetsRequest.ListOffsetsTopic(name=follower.topic, partitions=[wanted])
        request = ListOffsetsRequest(replica_id=self.replication.node_id, topics=[topic])
        try:
            answer = await self._ask(request, ListOffsetsResponse)
        except Unreachable:
            return None
        return answer.topics[0].partitions[0]

    async def _look_at_copy(self, follower: Follower, log: Log) -> None:
        """A log that is copied anew counts again when it has what its leader had at the begin. What that one knows to be
        committed is less, when it was just elected: who is eligible has to have all of it."""
        replication, key = self.replication, (follower.topic_id, follower.index)
        if key not in replication.partitions.copied_anew:
            return
        if follower.leader_end < 0:
            found = await self._offset(follower, LATEST)
            follower.leader_end = found.offset if found is not None and not found.error_code else -1
        if follower in replication.logs and 0 <= follower.leader_end <= log.end_offset:
            replication.partitions.caught_up(key)

    def _close_channel(self) -> None:
        if self.channel is not None:
            self.channel.close()

    async def close(self) -> None:
        if self.hurrying is not None:
            self.hurrying.cancel()
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        self._close_channel()


class Replication:
    def __init__(
        self,
        partitions: "Partitions",
        listener: str,
        broker_epoch: Callable[[], int],
        settings: FetcherSettings,
        fetchers: int,
        timeout_ms: int,
    ) -> None:
        """`fetchers` for each leader, by its listener of that name."""
        self.partitions = partitions
        self.node_id = partitions.node_id
        self.listener = listener
        self.broker_epoch = broker_epoch
        self.settings = settings
        self.fetchers = fetchers
        self.timeout_ms = settings.wait_max_ms + timeout_ms
        self.quota = partitions.quotas.follower
        self.now_ms = partitions.monotonic_ms
        self.sources: dict[tuple[int, int], Source] = {}
        self.followers: dict[TopicIdPartition, tuple[Follower, Source]] = {}
        self.logs: dict[Follower, Log] = {}
        self.read: dict[TopicIdPartition, FollowedPartition] = {}  # those that consumers read here

    def endpoint_of(self, broker_id: int) -> Endpoint | None:
        broker = self.partitions.image.brokers.get(broker_id)
        return None if broker is None else broker.listeners.get(self.listener)

    def follow(self, topic: Topic, index: int, state: State, log: Log) -> None:
        """Follows as the metadata says; nobody, where nobody leads."""
        key = (topic.id, index)
        known = self.followers.get(key)
        if known is not None and known[0].leader_epoch >= state.leader_epoch:
            return
        self.stop(key)
        if state.leader < 0:
            return
        follower = Follower(topic.name, topic.id, index, FollowedLog(log), state.leader, state.leader_epoch)
        number = fetcher_id(topic.name, index, self.fetchers)
        source = self.sources.get((state.leader, number))
        if source is None:
            source = self.sources[state.leader, number] = Source(self, state.leader, number)
        self.followers[key] = follower, source
        self.logs[follower] = log
        source.add(follower)

    def stop(self, key: TopicIdPartition) -> None:
        known = self.followers.pop(key, None)
        if known is not None:
            known[1].fetcher.remove(key)
            del self.logs[known[0]]
        if (partition := self.read.pop(key, None)) is not None:
            partition.close()

    def starts_moved(self) -> None:
        """After retention: leaders hear where logs start now, and send no reader here for what is gone."""
        for follower, source in self.followers.values():
            source.fetcher.changed(follower)

    def readable(self, key: TopicIdPartition) -> FollowedPartition | None:
        """A partition that is followed, as consumers see it."""
        known = self.followers.get(key)
        if known is None:
            return None
        partition = self.read.get(key)
        if partition is None:
            partition = self.read[key] = FollowedPartition(self.partitions, self.logs[known[0]], known[0])
        return partition

    async def append(self, follower: Follower, log: Log, records: memoryview | bytes | None) -> None:
        """Takes what was fetched: at once, or on a thread where the disk is slow. What flush.messages wants synced is so
        before the next fetch tells the leader that it is here."""
        if not records:
            return
        writing, now_ms = self.partitions.writing_of(log), self.partitions.now_ms()
        begin_within_batch(log, records, now_ms)
        if writing.is_slow:
            await writing.append_as_follower(log, records, now_ms, lambda: follower in self.logs)
        else:
            began_s = writing.seconds()
            try:
                log.append_as_follower(records, now_ms=now_ms)
            finally:
                writing.appended(began_s)
        self.quota.copied(follower.topic, follower.index, len(records), self.now_ms())
        if log.has_many_unflushed:
            await self.partitions.work.flush(log)
        else:
            self.partitions.work.flush_rolled(log)

    def take_watermarks(self, follower: Follower, log: Log, answer: FetchResponse.PartitionData) -> None:
        marks = follower.watermarks(answer)
        if marks.high_watermark != log.high_watermark:
            log.move_high_watermark(marks.high_watermark)
            if (partition := self.read.get((follower.topic_id, follower.index))) is not None:
                partition.advanced()
        if marks.log_start > log.start_offset:
            log.move_start(marks.log_start)

    async def close(self) -> None:
        await asyncio.gather(*(source.close() for source in self.sources.values()))


def begin_within_batch(log: Log, records: Buffer, now_ms: int) -> None:
    """DeleteRecords may let the leader's log start in the middle of a batch: a log that is to begin there has the whole of it."""
    if log.start_offset == log.end_offset and len(records) >= HEADER_SIZE:
        first = read_header(records)
        if first.base_offset < log.end_offset <= first.last_offset:
            log.reset_to(first.base_offset, now_ms)
