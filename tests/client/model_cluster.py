"""A cluster in memory for the fetcher: logs, leaders, sessions and epochs as a broker has them, without time or IO.

Invariants
 1. Every record is one of a kind: its value says partition, offset and leader epoch.
 2. What a broker answers follows Kafka's rules for the version asked in, and for the session that it is asked in.
"""

import msgspec

from odradek.client.fetch_session import DIVERGENCE_SINCE, IDS_SINCE, SESSIONLESS, SESSIONS_SINCE, Spot
from odradek.client.metadata import Metadata
from odradek.client.reading import LATEST
from odradek.client.records import TopicPartition
from odradek.wire.batch import read_header
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchRequest, FetchResponse, MetadataResponse
from odradek.wire.records import Record, build

NODES = 3
TOPIC = "t"


class Log(msgspec.Struct):
    index: int
    leader: int = 0
    epoch: int = 0
    start: int = 0
    batches: list[tuple[int, int, int, bytes]] = msgspec.field(default_factory=list)  # first, end, epoch, bytes

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def append(self, count: int) -> None:
        first = self.end
        records = [Record(offset, 1000 + offset, None, self.value(offset, self.epoch)) for offset in range(first, first + count)]
        data = bytes(build(records, base_offset=first, leader_epoch=self.epoch))
        self.batches.append((first, first + count, self.epoch, data))

    def value(self, offset: int, epoch: int) -> bytes:
        return b"%d %d %d" % (self.index, offset, epoch)

    def values(self) -> dict[int, bytes]:
        return {
            offset: self.value(offset, epoch)
            for first, end, epoch, _ in self.batches
            for offset in range(first, end)
            if offset >= self.start
        }

    def cut(self, batches: int) -> None:
        """A leader that has less takes over."""
        self.epoch += 1
        for _ in range(min(batches, len(self.batches))):
            if self.batches[-1][0] >= self.start:
                self.batches.pop()
        if not self.batches:
            self.append(1)

    def move_start(self) -> None:
        if len(self.batches) > 1:
            self.start = self.batches[0][1]
            self.batches.pop(0)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The highest epoch up to this one, and where it ends."""
        known = [each for each in self.batches if each[2] <= epoch]
        if not known:
            return epoch, self.start
        later = [each[0] for each in self.batches if each[2] > epoch]
        return known[-1][2], min(later, default=self.end)


class ModelCluster:
    def __init__(self, partitions: int, version: int, *, has_ids: bool = True) -> None:
        self.version = version
        self.topic_id = bytes(15) + b"\x07" if has_ids else bytes(16)
        self.logs = [Log(index, leader=index % NODES) for index in range(partitions)]
        self.sessions: dict[int, dict[int, tuple[int, dict[Spot, FetchRequest.FetchPartition]]]] = {
            node: {} for node in range(NODES)
        }
        self.last_session = 0
        self.follower: int | None = None  # where leaders send readers to

    def metadata(self) -> Metadata:
        kind = MetadataResponse
        known = Metadata()
        partitions = [
            kind.MetadataResponsePartition(partition_index=log.index, leader_id=log.leader, leader_epoch=log.epoch)
            for log in self.logs
        ]
        known.take(
            kind(
                brokers=[kind.MetadataResponseBroker(node_id=node, host="h", port=1) for node in range(NODES)],
                topics=[kind.MetadataResponseTopic(name=TOPIC, topic_id=self.topic_id, partitions=partitions)],
            )
        )
        return known

    def offset_of(self, place: TopicPartition, timestamp: int) -> int:
        log = self.logs[place.partition]
        return log.end if timestamp == LATEST else log.start

    # -- fetches

    def answer(self, node: int, request: FetchRequest) -> FetchResponse:
        asked = {Spot(topic.topic, topic.topic_id, each.partition): each for topic in request.topics for each in topic.partitions}
        sessions = self.sessions[node]
        if self.version < SESSIONS_SINCE or request.session_epoch == SESSIONLESS:
            assert not request.forgotten_topics_data
            return self._respond(node, request, asked, 0, is_full=True)
        if request.session_epoch == 0:
            sessions.pop(request.session_id, None)
            self.last_session += 1
            sessions[self.last_session] = (1, asked)
            return self._respond(node, request, asked, self.last_session, is_full=True)
        if request.session_id not in sessions:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        epoch, known = sessions[request.session_id]
        if request.session_epoch != epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                del known[Spot(topic.topic, topic.topic_id, index)]
        known |= asked
        sessions[request.session_id] = (epoch + 1, known)
        return self._respond(node, request, known, request.session_id, is_full=False)

    def _respond(
        self, node: int, request: FetchRequest, wanted: dict[Spot, FetchRequest.FetchPartition], session: int, *, is_full: bool
    ) -> FetchResponse:
        response = FetchResponse(session_id=session)
        room = request.max_bytes
        for spot, wish in wanted.items():
            assert (spot.topic == "") == (self.version >= IDS_SINCE and any(self.topic_id))
            told = self._told(node, wish, room, is_first=room == request.max_bytes)
            room -= len(told.records or b"")
            if is_full or told.error_code or told.records or told.preferred_read_replica >= 0 or told.diverging_epoch.epoch >= 0:
                kind = FetchResponse.FetchableTopicResponse
                response.responses.append(kind(topic=spot.topic, topic_id=spot.topic_id, partitions=[told]))
        return response

    def _told(self, node: int, wish: FetchRequest.FetchPartition, room: int, *, is_first: bool) -> FetchResponse.PartitionData:
        log = self.logs[wish.partition]
        told = FetchResponse.PartitionData(partition_index=log.index, high_watermark=log.end, last_stable_offset=log.end)
        offset = wish.fetch_offset
        if node not in (log.leader, self.follower):
            told.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif wish.current_leader_epoch != log.epoch:
            is_old = wish.current_leader_epoch < log.epoch
            told.error_code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        elif self.version >= DIVERGENCE_SINCE and wish.last_fetched_epoch >= 0 and self._is_diverged(log, wish):
            epoch, end = log.end_of_epoch(wish.last_fetched_epoch)
            told.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
        elif not log.start <= offset <= log.end:
            told.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif node == log.leader and self.follower is not None and self.follower != node:
            told.preferred_read_replica = self.follower
        else:
            told.records = memoryview(self._read(log, offset, min(room, wish.partition_max_bytes), is_first=is_first))
        return told

    def _is_diverged(self, log: Log, wish: FetchRequest.FetchPartition) -> bool:
        epoch, end = log.end_of_epoch(wish.last_fetched_epoch)
        return epoch < wish.last_fetched_epoch or end < wish.fetch_offset

    def _read(self, log: Log, offset: int, bytes_max: int, *, is_first: bool) -> bytes:
        """What there is room for, cut anywhere but in the first batch; that of the first partition there is always room for."""
        data = b"".join(each[3] for each in log.batches if each[1] > offset)
        least = read_header(data).size if data else 0
        return b"" if bytes_max < least and not is_first else data[: max(bytes_max, least)]
