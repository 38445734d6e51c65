"""Fetch (key 1), versions 4-18.

v4  isolation level; last stable offset and aborted transactions in the answer
v5  log start offset
v7  fetch sessions
v9  the leader epoch that the reader knows
v11 the reader's rack
v12 flexible encoding; the epoch of the last record that was read
v13 topics by id
v15 followers tell their state in a tagged field
v16 the current leader with errors that ask for it
v17 the follower's folder
v18 the follower's high watermark

An answer that has enough bytes, or an error, is given at once. Otherwise the request waits, among those whom its partitions tell
and in one timer, until enough has come or its time is over; then it reads anew. Of a session only those partitions are read of
which there may be something to say. Records are ranges of files: none is touched.
On the controller's listeners it is the metadata that is fetched: for the quorum, which answers it.
"""

from collections.abc import Sized

from odradek.api.context import Context, Handled, Postponed
from odradek.api.current_leader import endpoints, leader_and_epoch
from odradek.api.services import Readable, Reader, Timer
from odradek.core.config.advice import RACK_AWARE
from odradek.core.partition.fetch_sessions import FIRST_EPOCH, NO_SESSION, Interest, Session
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import FetchRequest, FetchResponse

KEY = 1
READ_COMMITTED = 1
RACK_SINCE = 11
TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
LEADER_SINCE = 16
ASK_FOR_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

TopicAnswer = FetchResponse.FetchableTopicResponse
PartitionAnswer = FetchResponse.PartitionData
NO_RECORDS = b""


def handle(request: FetchRequest, ctx: Context) -> Handled:
    node = ctx.node
    if ctx.connection.is_controller:
        node.quorum.receive(request, ctx)
        return None
    try:
        session, interests = node.fetch_sessions.open(request, ctx.version, node.now_ms())
    except Refused as refused:
        return FetchResponse(error_code=refused.code, session_id=NO_SESSION)
    fetch = Fetch(request, ctx, session, list(interests))
    try:
        answers = fetch.read()
    except Postponed as cold:
        return fetch.read_patiently(cold)
    return fetch.answer_or_wait(answers)


class Fetch:
    """One request, from the first look until it is answered."""

    __slots__ = (
        "bytes_max",
        "bytes_min",
        "committed",
        "ctx",
        "epoch",
        "has_error",
        "has_waited",
        "interests",
        "is_first",
        "partitions",
        "rack",
        "replica_epoch",
        "replica_id",
        "request",
        "session",
        "size",
        "sizes",
        "timer",
    )

    def __init__(self, request: FetchRequest, ctx: Context, session: Session | None, interests: list[Interest]) -> None:
        self.request = request
        self.ctx = ctx
        self.session = session
        self.epoch = session.epoch if session is not None else 0
        self.is_first = request.session_epoch == FIRST_EPOCH
        self.interests = interests
        self.committed = request.isolation_level == READ_COMMITTED
        self.bytes_max = min(request.max_bytes, ctx.node.config.integer("fetch.max.bytes"))
        self.bytes_min = min(request.min_bytes, self.bytes_max)
        self.partitions: dict[Interest, Readable] = {}  # as they were found
        self.size = 0
        self.sizes: dict[Interest, int] = {}
        self.has_error = False
        self.timer: Timer | None = None
        self.has_waited = False
        state = request.replica_state
        self.replica_id = state.replica_id if ctx.version >= REPLICA_STATE_SINCE else request.replica_id
        is_rack_aware = request.rack_id and ctx.node.config.text_or_none("replica.selector.class") == RACK_AWARE
        self.rack = request.rack_id if is_rack_aware and self.replica_id < 0 else ""
        self.replica_epoch = state.replica_epoch if ctx.version >= REPLICA_STATE_SINCE else -1

    # -- reading

    def read(self) -> list[PartitionAnswer]:
        """Reads every partition, in order, until the bytes are used up."""
        answers = []
        self.size = 0
        self.has_error = False
        for interest in self.interests:
            try:
                partition = self._partition(interest)
            except Refused as refused:
                answers.append(self._failed(interest, refused.code, []))
                continue
            try:
                answer = self._read(partition, interest)
            except Refused as refused:
                answer = self._failed(interest, refused.code, None)
            answers.append(answer)
        return answers

    def _failed(
        self, interest: Interest, code: ErrorCode, aborted: list[FetchResponse.AbortedTransaction] | None
    ) -> PartitionAnswer:
        self.has_error = True
        index = interest.wanted.partition
        answer = failed(index, code, aborted)
        if self.ctx.version >= LEADER_SINCE and code in ASK_FOR_LEADER:
            leader, epoch = leader_and_epoch(self.ctx.node.image.topics_by_id.get(interest.topic_id), index)
            answer.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return answer

    def _partition(self, interest: Interest) -> Readable:
        """The partition of an interest, if it is led here; or followed, for consumers that know that they may read it here."""
        partitions = self.ctx.node.partitions
        index = interest.wanted.partition
        if self.ctx.version < TOPIC_IDS_SINCE:
            led, name = partitions.by_name.get(interest.topic), interest.topic
        else:
            led = partitions.by_id.get(interest.topic_id)
            topic = None if led is not None else self.ctx.node.image.topics_by_id.get(interest.topic_id)
            if led is None and topic is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
            name = "" if topic is None else topic.name
        partition = led.get(index) if led is not None else None
        if partition is None and self.replica_id < 0 and self.ctx.version >= RACK_SINCE:
            found = self._followed(interest)
            if found is not None:
                self.partitions[interest] = found
                return found
        if partition is None:
            if led:
                name = next(iter(led.values())).topic
            raise Refused(partitions.why_not(name, index), "this node does not lead the partition")
        self.partitions[interest] = partition
        return partition

    def _followed(self, interest: Interest) -> Readable | None:
        topic_id = interest.topic_id
        if self.ctx.version < TOPIC_IDS_SINCE:
            topic = self.ctx.node.image.topics.get(interest.topic)
            topic_id = NIL_UUID if topic is None else topic.id
        return self.ctx.node.partitions.followed(topic_id, interest.wanted.partition)

    def _read(self, partition: Readable, interest: Interest) -> PartitionAnswer:
        wanted = interest.wanted
        replica = None
        if self.replica_id >= 0:
            replica = partition.follower(self.replica_id, wanted.current_leader_epoch)
        check_epoch(partition, wanted.current_leader_epoch)
        if self.rack:
            nearer = partition.read_replica(self.rack, self.ctx.connection.listener, wanted.fetch_offset)
            if nearer >= 0:
                self.has_error = True  # it is answered at once
                answer = empty(partition)
                answer.preferred_read_replica = nearer
                return answer
        if wanted.last_fetched_epoch >= 0 and (diverging := self._diverging(partition, wanted)) is not None:
            self.has_error = True  # the same
            return diverging
        stable, high_watermark = partition.last_stable_offset, partition.high_watermark
        upper = self._upper(partition)
        at_least_one = self.size == 0
        bytes_max = min(wanted.partition_max_bytes, max(self.bytes_max - self.size, 0))
        found: Sized = partition.read(wanted.fetch_offset, bytes_max, upper, at_least_one=at_least_one)
        if replica is not None and len(found) and partition.holds_back(replica):
            found = NO_RECORDS
        if replica is not None and not self.has_waited:  # what it asks for, it has everything below
            partition.fetched(replica, wanted.fetch_offset, wanted.log_start_offset, self.replica_epoch)
            high_watermark = partition.high_watermark
        size = len(found)
        self.size += size
        self.sizes[interest] = size
        aborted = None
        if self.committed:
            aborted = [
                FetchResponse.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in (partition.aborted(wanted.fetch_offset, found) if size else ())
            ]
        return PartitionAnswer(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=partition.log_start,
            aborted_transactions=aborted,
            records=found if size else NO_RECORDS,
        )

    def _upper(self, partition: Readable) -> int:
        """How far the reader may see: followers to the end of the log, consumers what is committed."""
        if self.replica_id >= 0:
            return partition.log_end
        return partition.last_stable_offset if self.committed else partition.high_watermark

    def _places(self, partition: Readable) -> tuple[dict[Reader, None], ...]:
        """Where those stand who are told: followers also of the high watermark, which their next answer says."""
        return (partition.readers,) if self.replica_id < 0 else (partition.followers, partition.readers)

    def _diverging(self, partition: Readable, wanted: FetchRequest.FetchPartition) -> PartitionAnswer | None:
        """Where the reader's log and ours part, when the last epoch that it read ends earlier here."""
        epoch, end_offset = partition.epoch_end(wanted.last_fetched_epoch)
        if (
            wanted.fetch_offset >= partition.log_start
            and epoch >= wanted.last_fetched_epoch
            and end_offset >= wanted.fetch_offset
        ):
            return None
        if partition.is_followed and wanted.fetch_offset == partition.log_end:
            return None  # it may not have heard of that epoch yet, and has nothing that could be another record
        partition.check_certain()
        if epoch < 0 or end_offset < 0:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"nothing is known of epoch {wanted.last_fetched_epoch}")
        if wanted.fetch_offset < partition.log_start:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {wanted.fetch_offset} is gone, {partition.log_start} is first")
        answer = empty(partition)
        answer.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return answer

    def answer_or_wait(self, answers: list[PartitionAnswer]) -> FetchResponse | None:
        request, session = self.request, self.session
        has_nothing = session.epoch != self.epoch if session is not None else not self.interests  # to wait for
        if self.has_error or self.size >= self.bytes_min or request.max_wait_ms <= 0 or has_nothing:
            return self.response(answers)
        self.ctx.later()
        self.wait()
        return None

    async def read_patiently(self, cold: Postponed) -> FetchResponse | None:
        """Reads what is not in memory, on a thread; others go on meanwhile."""
        while True:
            await self.ctx.node.work(cold.warm)
            try:
                answers = self.read()
            except Postponed as again:
                cold = again
            else:
                return self.answer_or_wait(answers)

    # -- waiting

    def wait(self) -> None:
        self.has_waited = True
        session = self.session
        for interest, partition in self.partitions.items():
            if session is None:
                interest.stand_in(self._places(partition), self)
            else:
                session.stand_in(interest, self._places(partition))
        if session is not None:
            session.waiting = self
        self.timer = self.ctx.node.timers.after(self.request.max_wait_ms, self.finish)
        self.ctx.abandoned = self.stop

    def changed(self, interest: Interest, partition: Readable) -> None:
        """Counts what there is to read now, and answers when it is enough."""
        if self.timer is None or self._is_held_back(partition):
            return
        wanted = interest.wanted
        if not partition.is_closed and self.bytes_min > 1:
            try:
                found = partition.read(wanted.fetch_offset, wanted.partition_max_bytes, self._upper(partition), at_least_one=True)
            except (Refused, Postponed):
                self.finish()
                return
            self.size += len(found) - self.sizes.get(interest, 0)
            self.sizes[interest] = len(found)
            if self.size < self.bytes_min:
                return
        elif (
            not partition.is_closed
            and self._upper(partition) <= wanted.fetch_offset
            and not self._is_start_news(interest, partition)
        ):
            return  # a reader of what is committed waits for the last stable offset, a follower for the end of the log
        self.finish()

    def _is_start_news(self, interest: Interest, partition: Readable) -> bool:
        """Whether a follower has to hear at once that the log begins elsewhere: somebody waits for all of them to know."""
        return self.replica_id >= 0 and partition.log_start != interest.log_start

    def _is_held_back(self, partition: Readable) -> bool:
        """Whether what a throttled follower waits for would not be given to it."""
        if self.replica_id < 0 or partition.is_closed:
            return False
        try:
            return partition.holds_back(partition.follower(self.replica_id, -1))
        except Refused:
            return False  # it is no replica any more, and hears of it

    def stop(self) -> None:
        """Waits no longer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.session is None:
            for interest in self.partitions:
                interest.leave()
        elif self.session.waiting is self:
            self.session.waiting = None

    def finish(self) -> None:
        self.stop()
        self.partitions = {}
        self.sizes = {}
        if self.session is not None and not self.is_first:
            self.interests = self.session.due(self.ctx.node.now_ms())
        try:
            answers = self.read()
        except Postponed as cold:
            self.ctx.node.spawn(self.finish_patiently(cold))
        else:
            self.ctx.answer(self.response(answers))

    async def finish_patiently(self, cold: Postponed) -> None:
        response = await self.read_patiently(cold)
        if response is not None:  # otherwise it waits again: the records went while they were read in
            self.ctx.answer(response)

    # -- answering

    def response(self, answers: list[PartitionAnswer]) -> FetchResponse:
        session = self.session
        for interest, size in self.sizes.items() if self.replica_id >= 0 else ():
            self.partitions[interest].sent(size)
        if session is None:
            return FetchResponse(
                session_id=NO_SESSION, responses=by_topic(self.interests, answers), node_endpoints=self._endpoints(answers)
            )
        if session.epoch != self.epoch:  # another request of the session came meanwhile
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id)
        news = []
        is_first = self.is_first
        for interest, answer in zip(self.interests, answers, strict=True):
            size = len(answer.records) if answer.records is not None else 0
            is_news = interest.is_news(answer.high_watermark, answer.log_start_offset, size)
            is_led = not answer.error_code and answer.diverging_epoch.epoch < 0 and answer.preferred_read_replica < 0
            if not is_led:
                interest.knows_nothing()
            if is_news or is_first or not is_led:
                news.append((interest, answer))
                if size and not is_first:
                    session.told(interest)
            if is_led and not size and self._knows_all(interest):
                session.seen(interest, self._places(self.partitions[interest]))
        interests, answers = [interest for interest, _ in news], [answer for _, answer in news]
        return FetchResponse(
            session_id=session.id, responses=by_topic(interests, answers), node_endpoints=self._endpoints(answers)
        )

    def _knows_all(self, interest: Interest) -> bool:
        """Whether a reader has everything of a partition; a follower that is not in sync asks to be, again and again."""
        partition = self.partitions[interest]
        is_at_end = self._upper(partition) <= interest.wanted.fetch_offset
        return is_at_end and (self.replica_id < 0 or partition.is_in_sync(self.replica_id))

    def _endpoints(self, answers: list[PartitionAnswer]) -> list[FetchResponse.NodeEndpoint]:
        """Where the leaders are that are told."""
        if not self.has_error:
            return []
        leaders = [answer.current_leader.leader_id for answer in answers if answer.error_code]
        return [FetchResponse.NodeEndpoint(**endpoint._asdict()) for endpoint in endpoints(leaders, self.ctx)]


def by_topic(interests: list[Interest], answers: list[PartitionAnswer]) -> list[TopicAnswer]:
    """The answers under their topics, in order."""
    topics: list[TopicAnswer] = []
    last: TopicAnswer | None = None
    for interest, answer in zip(interests, answers, strict=True):
        if last is None or last.topic != interest.topic or last.topic_id != interest.topic_id:
            last = TopicAnswer(topic=interest.topic, topic_id=interest.topic_id)
            topics.append(last)
        last.partitions.append(answer)
    return topics


def check_epoch(partition: Readable, epoch: int) -> None:
    """Refuses a reader that knows another leader epoch than ours."""
    if epoch < 0 or epoch == partition.leader_epoch:
        return
    if epoch < partition.leader_epoch:
        raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch} is over, {partition.leader_epoch} is current")
    raise Refused(
        ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} is not known here yet, {partition.leader_epoch} is current"
    )


def empty(partition: Readable) -> PartitionAnswer:
    return PartitionAnswer(
        partition_index=partition.index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start,
        aborted_transactions=None,
        records=NO_RECORDS,
    )


def failed(index: int, code: ErrorCode, aborted: list[FetchResponse.AbortedTransaction] | None) -> PartitionAnswer:
    return PartitionAnswer(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=aborted,
        records=NO_RECORDS,
    )
