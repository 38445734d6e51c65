"""One partition that this node leads: its log, its topic's rules, and those that wait for it.

What is committed, and who is in sync, is decided by its `Leader`.

Invariants
 1. The log's high watermark is the leader's.
 2. What a reader waits for is looked at once in a turn of the loop, however often the partition grew in it.
 3. Whatever the disk does, a client sees an error code of the protocol.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

from odradek.api.services import Found, Reader
from odradek.core.config.topic import TopicConfig
from odradek.core.metadata.topic_names import INTERNAL_TOPICS
from odradek.core.metadata.topics import Partition as State
from odradek.core.partition.admission import Admission
from odradek.core.partition.leader import NO_EPOCH, Leader
from odradek.core.partition.replica import Replica
from odradek.log.config import INT64_MAX, LogConfig
from odradek.log.disk import DiskFailed, DiskFull
from odradek.log.log import Appended, Log, Manner, Origin
from odradek.log.lookup import Candidate, candidate_for_timestamp, candidate_of_max_timestamp
from odradek.node.readable import Readable
from odradek.wire.batch import BatchHeader, read_header
from odradek.wire.errors import ErrorCode, ProtocolError, Refused

if TYPE_CHECKING:
    from odradek.node.partitions import Partitions

ACKS_ALL = -1


def log_config(config: TopicConfig) -> LogConfig:
    return LogConfig(**{name: getattr(config, name) for name in LogConfig.__struct_fields__})


class Partition(Readable):
    __slots__ = ("admission", "deletions", "is_plain", "is_simple", "leader", "writing")

    def __init__(
        self, host: "Partitions", log: Log, topic: str, topic_id: bytes, index: int, state: State, config: TopicConfig
    ) -> None:
        super().__init__(host, log, topic, topic_id, index, NO_EPOCH)
        self.deletions: dict[Reader, None] = {}  # that wait for the starts of this log and of the followers'
        self.writing = host.writing_of(log)
        self.writing.partitions[self] = None
        self.leader = Leader(host.node_id, host.image.brokers, host.session, host.lag_time_max_ms, log.high_watermark)
        self.log.producers.verifies_transactions = host.verifies_transactions
        self.configure(config)
        self.lead(state)

    def lead(self, state: State) -> None:
        """Leads as the metadata says. An epoch begins also when nothing is ever written in it."""
        if state.leader_epoch > self.leader_epoch:
            self.leader_epoch = state.leader_epoch
            self.log.epochs.assign(state.leader_epoch, self.log.end_offset)
            self.leader.least_start = self.log.start_offset
        now_ms = self.host.monotonic_ms()
        if self.leader.lead(state, self.log.end_offset, self.leader.min_insync_replicas, now_ms):
            self.host.committed(self)

    def configure(self, config: TopicConfig) -> None:
        self.admission = Admission.of(config)
        self.is_simple = self.admission.is_plain and config.flush_messages == INT64_MAX
        self.decide_way()
        self.log.configure(log_config(config))
        if self.leader.configure(config.min_insync_replicas, self.host.monotonic_ms()):
            self.host.committed(self)

    def decide_way(self) -> None:
        """Whether what is produced can be appended at once: the topic asks for no more, and the folder is fast."""
        self.is_plain = self.is_simple and self.writing.is_at_once

    @property
    def is_behind(self) -> bool:
        return self.leader.high_watermark < self.leader.epoch_start

    @property
    def low_watermark(self) -> int:
        return self.leader.low_watermark(self.log.lasting_start, self.host.monotonic_ms())

    def append(self, records: bytearray | memoryview, header: BatchHeader, now_ms: int, **how: Unpack[Manner]) -> Appended:
        began_s = self.writing.seconds()
        try:
            appended = self.log.append(records, leader_epoch=self.leader_epoch, now_ms=now_ms, header=header, **how)
        except (DiskFull, DiskFailed) as error:
            raise self.host.refused(self, error) from error
        finally:
            self.writing.appended(began_s)
        self.host.grew(self)
        return appended

    async def append_later(
        self, records: bytearray | memoryview, header: BatchHeader, now_ms: int, **how: Unpack[Manner]
    ) -> Appended:
        """The same, where it may have to wait for others, or for a slow disk. The bytes belong to the log until then."""
        self.check_open()
        if self.writing.is_at_once or self.topic in INTERNAL_TOPICS:
            self.writing.check()
            return self.append(records, header, now_ms, **how)
        try:
            return await self.writing.append(self, records, header, now_ms, how)
        except (DiskFull, DiskFailed) as error:
            raise self.host.refused(self, error) from error

    def check_open(self) -> None:
        if self.is_closed:
            raise Refused(self.host.why_not(self.topic, self.index), f"{self} is no longer led here")

    def check_acks(self, acks: int) -> None:
        """Refuses a batch that could not be acknowledged."""
        code = self.leader.admission(acks_all=acks == ACKS_ALL, now_ms=self.host.monotonic_ms())
        if code:
            raise Refused(code, f"{self} has {len(self.leader.isr)} replicas in sync")

    def outcome(self, end_offset: int) -> ErrorCode | None:
        """What to answer who waits for all replicas to have what ends at an offset; None as long as it has to wait."""
        if self.is_closed:
            return self.host.why_not(self.topic, self.index)
        return self.leader.outcome(end_offset, self.host.monotonic_ms())

    def follower(self, broker_id: int, leader_epoch: int) -> Replica:
        return self.leader.follower(broker_id, leader_epoch)

    def is_in_sync(self, broker_id: int) -> bool:
        return broker_id in self.leader.isr

    def fetched(self, replica: Replica, offset: int, log_start: int, broker_epoch: int) -> None:
        """A follower has everything below an offset."""
        if self.leader.fetched(replica, offset, log_start, broker_epoch, self.host.monotonic_ms()):
            self.host.committed(self)
        if self.leader.unsent is not None:
            self.host.isr_reports.changed(self)
        self.look_at_deletions()

    def holds_back(self, replica: Replica) -> bool:
        """Whether a follower is throttled and gets nothing now."""
        if replica.broker_id in self.leader.isr:
            return False
        return self.host.quotas.leader.holds_back(self.topic, self.index, self.host.monotonic_ms())

    def sent(self, size: int) -> None:
        """A follower was sent so many bytes."""
        self.host.quotas.leader.copied(self.topic, self.index, size, self.host.monotonic_ms())

    def append_own(self, records: bytearray, now_ms: int, verification: object = None) -> Appended:
        """Appends what a coordinator of this node writes."""
        self.check_open()
        self.check_acks(ACKS_ALL)
        self.writing.check()
        try:
            appended = self.log.append(
                records,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=Origin.COORDINATOR,
                verification=verification,
            )
        except (DiskFull, DiskFailed) as error:
            raise self.host.refused(self, error) from error
        self.host.grew(self)
        return appended

    def knows_producer(self, producer_id: int) -> bool:
        return producer_id in self.log.producers.producers

    # -- transactions

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has an open transaction here, so that nobody has to be asked about its next batch."""
        producer = self.log.producers.producers.get(producer_id)
        return producer is not None and producer.has_transaction and producer.epoch == epoch

    def verify(self, producer_id: int, epoch: int, sequence: int, *, is_adding: bool) -> object:
        """What has to come with the first batch of a transaction, to be asked for before the transaction's coordinator is: no
        batch may overtake it. None when nobody has to be asked. Refused when the producer is fenced."""
        if not is_adding and not self.log.producers.verifies_transactions:
            return None
        return self.log.producers.verify(
            producer_id, sequence, epoch, supports_epoch_bump=is_adding, now_ms=self.host.steady_ms()
        )

    async def append_marker(self, marker: bytearray, now_ms: int, transaction_version: int) -> Appended:
        """The end of a transaction, of a coordinator that may be elsewhere. One that is there already is not written again;
        whatever the log ends with has to be committed before it counts."""
        how: Manner = {"origin": Origin.COORDINATOR, "transaction_version": transaction_version}
        return await self.append_later(marker, read_header(marker), now_ms, **how)

    async def sync(self) -> None:
        """Until what was appended is on disk, if flush.messages or flush.ms asks for it now."""
        if self.log.flush_due(self.host.now_ms()):
            await self.host.work.flush(self.log)

    def read_replica(self, rack: str, listener: str, offset: int) -> int:
        return self.leader.read_replica(rack, listener, offset, self.host.monotonic_ms())

    async def offset_for_timestamp(self, timestamp: int) -> Found | None:
        offset_min = self.log.start_offset
        while True:
            candidate = await self._find(lambda at=offset_min: candidate_for_timestamp(self.log, timestamp, at))  # type: ignore[misc]
            found = await self._first(candidate)
            if candidate is None or found is not None:
                return found
            offset_min = candidate.header.next_offset

    async def offset_of_max_timestamp(self) -> Found | None:
        return await self._first(await self._find(lambda: candidate_of_max_timestamp(self.log)))

    async def _find(self, look: Callable[[], Candidate | None]) -> Candidate | None:
        try:
            return await self.host.work.patiently(self.log, look)
        except DiskFailed as error:
            raise self.host.refused(self, error) from error
        except ProtocolError as error:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"{self}: {error}") from error

    async def _first(self, candidate: Candidate | None) -> Found | None:
        """Looks into a batch, where it holds nobody up: it may become large."""
        found = None if candidate is None else await self.host.work.look_into(candidate.first)
        return None if found is None else Found(found.timestamp, found.offset, found.leader_epoch)

    def epoch_of(self, offset: int) -> int:
        return self.log.epochs.epoch_for(offset)

    def move_start(self, offset: int) -> None:
        if self.log.damage is not None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self} is damaged: {self.log.damage.reason}")
        self.log.move_start(offset)
        self.leader.least_start = self.log.start_offset
        if self.log.lasting_start < self.log.start_offset:
            self.host.work.spawn(self._note_start())
        for reader in (*self.followers, *self.readers):  # followers' fetches are answered now, so that they hear of it
            reader.partition_changed(self)

    async def _note_start(self) -> None:
        await self.host.note_starts([self.log])
        self.look_at_deletions()

    def look_at_deletions(self) -> None:
        """Whether what they wait for has come."""
        for deletion in tuple(self.deletions):
            deletion.partition_changed(self)

    def close(self) -> None:
        """No longer led here: those who wait for it learn why when they look."""
        self.is_closed = True
        self.writing.partitions.pop(self, None)
        for reader in (*self.readers, *self.followers, *self.deletions):
            reader.partition_changed(self)
