"""What to fetch from whom: positions, sessions, buffers and errors of everything that a consumer reads. Does no IO.

Whoever does (fetching.py) asks `idle_nodes`, `lookups` and `checks` what is to be done, does it, and tells how that ended.

Invariants
 1. Records of a partition are buffered in the order of their offsets, none twice, none left out, until it is moved.
 2. What is buffered or may be on its way is `prefetch_bytes` at most, and one batch of each broker beyond that: brokers
    answer with a whole one, however large.
 3. One fetch is under way to a broker. It waits there only when every partition that is read from that broker is in it.
 4. A position is checked with each new leader before records of that are given: by the fetch itself (version 12 and later)
    or by OffsetForLeaderEpoch.
 5. Whatever a follower refuses, the leader is asked before anything is made of it.
 6. What is paused keeps its buffer as long as nothing else needs the room.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from odradek.client.buffer import Answer, Buffer, Piece, skim
from odradek.client.errors import KafkaError, NoOffset, known_code, refused
from odradek.client.fetch_session import DIVERGENCE_SINCE, IDS_SINCE, Session, Spot, Wish
from odradek.client.metadata import NO_ID, NO_NODE, Metadata
from odradek.client.reading import EARLIEST, LATEST, Reading
from odradek.client.records import NO_EPOCH, NO_OFFSET, TopicPartition
from odradek.client.unpacking import Unpacking
from odradek.wire.batch import OFFSET_MAX
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchRequest, FetchResponse

PIECES_MAX: Final = 2  # of a partition: one is read, one is there when that ends
ROOM_PARTS: Final = 4  # a fetch leaves when there is room for such a part of a broker's share
REST_PARTS: Final = 10  # of the longest wait, between fetches that do not wait at the broker
REPLICA_SECONDS: Final = 300.0  # that we go where the leader has sent us, before it is asked again
DOUBLINGS_MAX: Final = 10
SESSION_GONE: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
ELSEWHERE: Final = frozenset(  # or not yet, or no more: the metadata say, sooner or later
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Taste(msgspec.Struct, frozen=True, kw_only=True):
    """How somebody wants to read."""

    is_committed: bool = True
    resets_to: int | None = EARLIEST  # None: that is an error
    wait_ms_max: int = 500
    bytes_min: int = 1
    bytes_max: int = 50 * 1024 * 1024
    partition_bytes_max: int = 1024 * 1024
    prefetch_bytes: int = 32 * 1024 * 1024
    rack: str = ""
    checks_crcs: bool = True
    backoff_s: float = 0.05
    backoff_s_max: float = 1.0


class Node:
    """A broker that is fetched from."""

    __slots__ = ("is_busy", "not_before_s", "reserved_bytes", "rests_until_s", "session", "tries")

    def __init__(self) -> None:
        self.session = Session()
        self.is_busy = False
        self.reserved_bytes = 0
        self.tries = 0
        self.not_before_s = 0.0
        self.rests_until_s = 0.0  # there was nothing; what is wanted newly does not wait for this


class Asked(NamedTuple):
    """About one partition; worth nothing when that has moved since."""

    reading: Reading
    moves: int
    offset: int
    leader_epoch: int
    node: int

    @property
    def is_stale(self) -> bool:
        return self.moves != self.reading.moves

    @property
    def is_next(self) -> bool:
        """Of a fetch: whether its answer is what follows. A leader of the past and the next one may both have been asked."""
        return not self.is_stale and self.offset == self.reading.offset


class Fetch(NamedTuple):
    node: int
    request: FetchRequest
    asked: dict[Spot, Asked]
    has_all: bool  # that is read from there


class Fetcher:
    def __init__(self, taste: Taste) -> None:
        self.taste = taste
        self.readings: dict[TopicPartition, Reading] = {}
        self.buffer = Buffer()
        self.failures: list[KafkaError] = []  # that the program has to hear of
        self.must_refresh = False  # the metadata
        self.before_move: Callable[[Reading], None] = lambda _: None  # what is given meanwhile is given from where it was
        self._nodes: dict[int, Node] = {}

    # -- what is read

    def begin(self, place: TopicPartition, offset: int = NO_OFFSET, epoch: int = NO_EPOCH, until: int = OFFSET_MAX) -> Reading:
        """Reads a partition from an offset on, or from where it is reset to."""
        reading = self.readings[place] = Reading(place, until)
        if offset >= 0:
            reading.move(offset, epoch)
        else:
            self.reset(reading)
        return reading

    def hold(self, place: TopicPartition, topic_id: bytes = NO_ID) -> Reading:
        """It is ours from now on; where to read it from is not known yet."""
        reading = self.readings[place] = Reading(place, topic_id=topic_id)
        reading.is_withheld = True
        return reading

    def forget(self, place: TopicPartition) -> None:
        reading = self.readings.pop(place, None)
        if reading is not None:
            self.before_move(reading)
            reading.end()
            self.buffer.drop_stale()

    def seek(self, reading: Reading, offset: int, epoch: int = NO_EPOCH) -> None:
        self.before_move(reading)
        reading.move(offset, epoch)
        self.buffer.drop_stale()

    def aim(self, reading: Reading, timestamp: int) -> None:
        self.before_move(reading)
        reading.aim(timestamp)
        self.buffer.drop_stale()

    def fetch_again(self, reading: Reading) -> None:
        self.before_move(reading)
        reading.fetch_again()
        self.buffer.drop_stale()

    def reset(self, reading: Reading, why: ErrorCode = ErrorCode.NONE) -> None:
        """Where there is no offset to go on from. Without a policy the program is told, and nothing is read until it says."""
        offset = reading.given
        if self.taste.resets_to is not None:
            self.aim(reading, self.taste.resets_to)
            return
        self.seek(reading, NO_OFFSET)
        topic, index = reading.place
        said = f"there is no offset {offset}" if offset >= 0 else "there is no committed offset"
        self.failures.append(
            NoOffset(why or ErrorCode.OFFSET_OUT_OF_RANGE, f"{said}, and auto_offset_reset is none", topic=topic, partition=index)
        )

    def learn(self, metadata: Metadata) -> None:
        """Who leads what. What nobody leads waits until somebody does."""
        for (topic, index), reading in self.readings.items():
            known = metadata.topics.get(topic)
            info = known.partitions.get(index) if known is not None and not reading.is_replaced_by(known) else None
            if known is None or info is None:
                reading.lead(NO_NODE, reading.leader_epoch, reading.topic_id)
            elif reading.lead(info.leader, info.leader_epoch, known.id) and reading.is_placed:
                self._replaced(reading)
            if reading.replica != NO_NODE and reading.replica not in metadata.brokers:
                reading.replica = NO_NODE
            if reading.leader == NO_NODE:
                self.must_refresh = True
        self.buffer.drop_stale()

    def read_to_end(self, piece: Piece) -> None:
        """All of it was given."""
        self.buffer.drop(piece)
        node = self._nodes.get(piece.reading.leader if piece.reading.replica == NO_NODE else piece.reading.replica)
        if node is not None:
            node.rests_until_s = 0.0

    # -- where to go

    def lookups(self, now_s: float) -> list[tuple[Asked, int]]:
        """Times whose offsets are to be asked for, of the leaders."""
        found = []
        for reading in self.readings.values():
            if reading.target is not None and self._may_ask(reading, now_s):
                reading.is_asked = True
                found.append((self._asked(reading, reading.leader), reading.target))
        return found

    def found(self, asked: Asked, offset: int, epoch: int, now_s: float) -> None:
        """The offset of a time; none where that time has not come yet: the end, which is asked for again."""
        if asked.is_stale:
            return
        reading = asked.reading
        if offset >= 0:
            self.seek(reading, offset, epoch)
        elif reading.target == LATEST:  # it does not know it yet
            self.refused(asked, ErrorCode.OFFSET_NOT_AVAILABLE, now_s)
        else:
            self.aim(reading, LATEST)

    def checks(self, now_s: float) -> list[tuple[Asked, int]]:
        """Positions that a leader shall look at, with the epochs of what was read last."""
        found = []
        for reading in self.readings.values():
            if reading.must_check and self._may_ask(reading, now_s):
                reading.is_asked = True
                found.append((self._asked(reading, reading.leader), reading.last_epoch))
        return found

    def checked(self, asked: Asked, epoch: int, end_offset: int) -> None:
        """Where the leader's log of that epoch ends."""
        if asked.is_stale:
            return
        reading = asked.reading
        reading.is_asked = reading.must_check = False
        if epoch < 0 or end_offset < 0:
            self.reset(reading)
        elif end_offset < reading.offset:
            self._diverged(reading, end_offset, epoch)
        else:
            reading.checked_epoch = asked.leader_epoch

    def refused(self, asked: Asked, code: int, now_s: float) -> None:
        """What was asked about a partition cannot be answered, or not now, or not there."""
        if asked.is_stale:
            return
        reading = asked.reading
        known = known_code(code)
        reading.is_asked = False
        if self._goes_back_to_leader(asked, now_s):
            return
        if known is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.reset(reading, known)
            return
        self._pause(reading, now_s)
        if known in ELSEWHERE:
            self.must_refresh = True
        else:
            topic, index = reading.place
            self.failures.append(refused(known, topic=topic, partition=index))

    def _goes_back_to_leader(self, asked: Asked, now_s: float) -> bool:
        """When a follower has refused, which may be behind; so may a leader of the past."""
        reading = asked.reading
        if asked.node == reading.leader:
            return False
        if reading.replica == asked.node:
            reading.replica = NO_NODE
            self._pause(reading, now_s)  # the leader may send us there again
        return True

    def _pause(self, reading: Reading, now_s: float) -> None:
        reading.tries += 1
        reading.not_before_s = now_s + self._backoff_s(reading.tries)

    def _diverged(self, reading: Reading, end_offset: int, epoch: int) -> None:
        """The log was cut below where we are: what was read from there on is no more, and other records are in its place."""
        self.before_move(reading)  # tells how much was given
        if self.taste.resets_to is None:
            self.reset(reading)
        else:
            self.seek(reading, min(end_offset, reading.given), epoch)

    def _replaced(self, reading: Reading) -> None:
        """The topic is another one, under the same name: all of it has come since."""
        if self.taste.resets_to is None:
            self.reset(reading)
        else:
            self.aim(reading, EARLIEST)

    def _may_ask(self, reading: Reading, now_s: float) -> bool:
        return not reading.is_asked and reading.leader != NO_NODE and reading.not_before_s <= now_s

    def _asked(self, reading: Reading, node: int) -> Asked:
        return Asked(reading, reading.moves, reading.offset, reading.leader_epoch, node)

    def _backoff_s(self, tries: int) -> float:
        return float(min(self.taste.backoff_s * 2 ** min(tries - 1, DOUBLINGS_MAX), self.taste.backoff_s_max))

    # -- fetching

    def idle_nodes(self, now_s: float) -> list[int]:
        """Who is to be fetched from now."""
        wanted = {
            reading.source(now_s): None
            for reading in self.readings.values()
            if self._is_wanted(reading, now_s) and not reading.must_check
        }
        idle = [each for each in wanted if self._is_idle(self._node(each), now_s)]
        if not idle:
            return []
        share_min = self.taste.prefetch_bytes // (ROOM_PARTS * len(self._nodes))
        if self._room_bytes() // len(idle) < share_min and not self.buffer.drop_paused():
            return []
        return idle

    def begin_fetch(self, node: int, version: int, now_s: float, idle: int = 1) -> Fetch | None:
        """The next request to a broker, in the version that it will have; None when there is nothing to be asked for now.

        It takes its part of the room that is left, of so many brokers who have nothing to do."""
        asked: dict[Spot, Asked] = {}
        has_all = True
        readings = [each for each in self.readings.values() if each.source(now_s) == node and self._is_expected(each)]
        speaks_ids = version >= IDS_SINCE and all(each.topic_id != NO_ID for each in readings)
        wanted: dict[Spot, Wish] = {}
        for reading in readings:
            if not self._is_wanted(reading, now_s) or self._must_check(reading, version):
                has_all = False
                continue
            topic, index = reading.place
            spot = Spot("", reading.topic_id, index) if speaks_ids else Spot(topic, NO_ID, index)
            asked[spot] = self._asked(reading, node)
            last_epoch = reading.last_epoch if version >= DIVERGENCE_SINCE else NO_EPOCH
            wanted[spot] = Wish(reading.offset, reading.leader_epoch, last_epoch, self.taste.partition_bytes_max)
        if not asked:
            return None
        bytes_max = min(self.taste.bytes_max, max(self._room_bytes() // idle, 1))
        request = FetchRequest(
            max_wait_ms=self.taste.wait_ms_max if has_all else 0,
            min_bytes=self.taste.bytes_min,
            max_bytes=bytes_max,
            isolation_level=int(self.taste.is_committed),
            rack_id=self.taste.rack,
        )
        known = self._node(node)
        known.session.fill(request, wanted, version, speaks_ids=speaks_ids)
        known.is_busy = True
        known.reserved_bytes = bytes_max
        return Fetch(node, request, asked, has_all)

    def lost(self, fetch: Fetch, now_s: float) -> None:
        """There is no answer."""
        self.unreachable(fetch.node, now_s)
        self._node(fetch.node).session.lost()

    def unreachable(self, node: int, now_s: float) -> None:
        known = self._free(node)
        known.tries += 1
        known.not_before_s = now_s + self._backoff_s(known.tries)
        self.must_refresh = True
        for reading in self.readings.values():
            if reading.replica == node:
                reading.replica = NO_NODE

    def fetched(self, fetch: Fetch, response: FetchResponse, now_s: float) -> None:
        node = self._free(fetch.node)
        node.not_before_s = now_s + response.throttle_time_ms / 1000
        if response.error_code:
            self._session_refused(node, response.error_code, now_s)
            return
        node.tries = 0
        node.session.answered(response.session_id)
        size = sum(len(told.records or b"") for topic in response.responses for told in topic.partitions)
        answer = Answer(size)
        if not size and not fetch.has_all:
            node.rests_until_s = now_s + self.taste.wait_ms_max / 1000 / REST_PARTS
        for topic in response.responses:
            for told in topic.partitions:
                asked = fetch.asked.get(Spot(topic.topic, topic.topic_id, told.partition_index))
                if asked is not None and asked.is_next:
                    self._told(asked, told, answer, now_s)
        self.buffer.drop_stale()

    def _told(self, asked: Asked, told: FetchResponse.PartitionData, answer: Answer, now_s: float) -> None:
        reading = asked.reading
        if told.error_code:
            self.refused(asked, told.error_code, now_s)
        elif told.diverging_epoch.end_offset >= 0:
            if not self._goes_back_to_leader(asked, now_s):
                self._diverged(reading, told.diverging_epoch.end_offset, told.diverging_epoch.epoch)
        elif told.preferred_read_replica >= 0 and not told.records:
            reading.replica, reading.replica_until_s = told.preferred_read_replica, now_s + REPLICA_SECONDS
        else:
            reading.tries = 0
            reading.checked_epoch = asked.leader_epoch
            reading.high_watermark = max(told.high_watermark, reading.high_watermark)
            reading.last_stable_offset = told.last_stable_offset
            reading.log_start = told.log_start_offset
            if told.records:
                self._keep(reading, told, answer)

    def _keep(self, reading: Reading, told: FetchResponse.PartitionData, answer: Answer) -> None:
        assert told.records is not None
        data = memoryview(told.records)
        size, next_offset, epoch = skim(data)
        if not size:
            if answer.bytes_held > len(data):  # others took the room, and the next is its own
                return
            topic, index = reading.place
            code = ErrorCode.MESSAGE_TOO_LARGE
            self.failures.append(refused(code, f"no whole batch in {len(data)} bytes", topic=topic, partition=index))
            return
        aborted = [(each.producer_id, each.first_offset) for each in told.aborted_transactions or ()]
        unpacking = Unpacking(
            reading.place,
            data[:size],
            reading.offset,
            aborted if self.taste.is_committed else (),
            checks_crcs=self.taste.checks_crcs,
            until=reading.until,
        )
        self.buffer.add(Piece(reading, unpacking, answer))
        reading.offset, reading.last_epoch = max(next_offset, reading.offset), epoch

    def _session_refused(self, node: Node, code: int, now_s: float) -> None:
        known = known_code(code)
        node.session.lost()
        node.tries += 1
        if known not in SESSION_GONE or node.tries > 1:
            node.not_before_s = max(node.not_before_s, now_s + self._backoff_s(node.tries))
        if known in ELSEWHERE or known is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self.must_refresh = True
        elif known not in SESSION_GONE:
            self.failures.append(refused(known))

    def _is_wanted(self, reading: Reading, now_s: float) -> bool:
        return (
            reading.offset >= 0
            and not reading.is_read_to_end
            and reading.pieces < PIECES_MAX
            and not reading.is_paused
            and not reading.is_withheld
            and reading.leader != NO_NODE
            and reading.not_before_s <= now_s
        )

    def _is_expected(self, reading: Reading) -> bool:
        """Whether it is read, now or soon: nobody shall wait at a broker for others meanwhile."""
        return not reading.is_paused and not reading.is_read_to_end and (reading.is_placed or reading.target is not None)

    def _must_check(self, reading: Reading, version: int) -> bool:
        """Whether the leader has to be asked before, because a fetch of this version does not say."""
        reading.must_check = (
            version < DIVERGENCE_SINCE and reading.last_epoch >= 0 and reading.checked_epoch != reading.leader_epoch
        )
        return reading.must_check

    def _is_idle(self, node: Node, now_s: float) -> bool:
        return not node.is_busy and node.not_before_s <= now_s and node.rests_until_s <= now_s

    def _node(self, node: int) -> Node:
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = Node()
        return found

    def _free(self, node: int) -> Node:
        found = self._node(node)
        found.is_busy = False
        found.reserved_bytes = 0
        return found

    def _room_bytes(self) -> int:
        reserved = sum(each.reserved_bytes for each in self._nodes.values())
        return max(self.taste.prefetch_bytes - self.buffer.bytes_held - reserved, 0)

    # -- later

    def wake_s(self, now_s: float) -> float | None:
        """When something becomes possible that is not now."""
        times = [each.not_before_s for each in self.readings.values()]
        times += [time_s for each in self._nodes.values() for time_s in (each.not_before_s, each.rests_until_s)]
        return min((time_s for time_s in times if time_s > now_s), default=None)

    def reserve(self, node: int) -> None:
        """A broker is busy from now on, with a connection that is being made to it."""
        self._node(node).is_busy = True

    def release(self, node: int) -> None:
        self._free(node)

    def sessions(self) -> dict[int, FetchRequest]:
        """Requests that end the sessions, by broker."""
        found = {node: known.session.end() for node, known in self._nodes.items()}
        return {node: request for node, request in found.items() if request is not None}
