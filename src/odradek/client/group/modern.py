"""A member of a group of the new protocol (KIP-848): heartbeats tell it what shall be its, and it gets there.

Invariants
 1. What it shall not have any more is committed and given up before the coordinator hears that it is.
 2. After an answer that was lost everything is told again: subscription, time-out and what it has.
 3. Who is told that its epoch or its id is none any more has lost everything, and joins again with epoch 0.
 4. Heartbeats go on while partitions come and go, however long the program takes for that.
 5. What is its is so by the id of its topic: of one that is made anew under the name nothing is, until it is told so.
 6. A static member says that it will come back, and keeps its share until its session ends.
"""

import asyncio
from contextlib import suppress
from typing import Final

from odradek.client.cluster import GROUP, Cluster
from odradek.client.errors import KafkaError
from odradek.client.group.member import Member, Terms, Wanted
from odradek.client.holding import Holding
from odradek.client.offsets import by_topic
from odradek.client.records import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

LANE: Final = "coordinator"
KEY: Final = ConsumerGroupHeartbeatRequest.schema.key
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2  # of a static member
OWN_IDS_SINCE: Final = 1  # version: members name themselves, and may want a pattern
MEMBER_ID_BITS: Final = 128
FIRST_INTERVAL_MS: Final = 1_000
UNNAMED_SECONDS: Final = 0.1  # after which the name of a topic is looked for again
RELEASE_PARTS: Final = 1.5  # of the session time-out, in which an instance that is gone has surely been given up
OUT: Final = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)

Target = list[tuple[bytes, int]]  # topic ids and partitions


class ModernMember(Member):
    def __init__(self, cluster: Cluster, holding: Holding, terms: Terms, wanted: Wanted) -> None:
        super().__init__(cluster, holding, terms, wanted)
        self.member_id = f"{cluster.machine.random.getrandbits(MEMBER_ID_BITS):032x}"
        self.generation = JOIN_EPOCH
        self.has_joined = False
        self.target: Target | None = None  # what shall be its; None: nothing new
        self._interval_s = FIRST_INTERVAL_MS / 1000
        self._must_tell_all = True
        self._is_to_confirm = False
        self._is_unnamed = False
        self._reconciling: asyncio.Task[None] | None = None
        self._unreleased_s: float | None = None  # since when somebody else has the instance id

    # -- its life

    async def belong(self) -> None:
        try:
            while True:
                await self._live_on()
        finally:
            await self._stop_reconciling()

    async def _live_on(self) -> None:
        if self.is_out.is_set():
            await self._stop_reconciling()
            await self.come_in_again()
        self.changed.clear()
        try:
            await self._heartbeat()
        except KafkaError as error:
            self._must_tell_all = True
            if error.code in OUT:
                self.is_out.set()
                return
            if not error.is_retriable and not self._is_passing(error):
                raise
            await self.wait_before_retry()
            return
        self.backoff.reset()
        self._reconcile_on()
        await self.wait_changed(UNNAMED_SECONDS if self._is_unnamed else self._interval_s)

    def _is_passing(self, error: KafkaError) -> bool:
        """Whether another member with our instance id may just be one that has not been missed yet."""
        if error.code is not ErrorCode.UNRELEASED_INSTANCE_ID:
            return error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        now_s = self.cluster.loop.time()
        self._unreleased_s = self._unreleased_s or now_s
        return now_s - self._unreleased_s < RELEASE_PARTS * self.terms.session_timeout_ms / 1000

    def fall_out(self) -> None:
        self.generation, self.target, self._must_tell_all = JOIN_EPOCH, None, True
        self._is_to_confirm = self._is_unnamed = False

    def wanted_changed(self) -> None:
        self._must_tell_all = True

    def look(self) -> None:
        """The coordinator shares out, and knows of all partitions."""

    def is_member(self) -> bool:
        return self.generation > JOIN_EPOCH and not self.is_out.is_set()

    @property
    def may_commit(self) -> bool:
        return self.is_member()

    async def ready(self) -> None:
        """It may commit at any time."""

    # -- heartbeats

    async def _heartbeat(self) -> None:
        node = await self.cluster.coordinator(GROUP, self.terms.group)
        try:
            connection = self.cluster.connected(node, LANE) or await self.cluster.connection(node, LANE)
            if connection.version(KEY) < OWN_IDS_SINCE and not self.has_joined:
                self.member_id = ""
            epoch = self.generation
            is_whole, is_confirming = self._must_tell_all, self._is_to_confirm
            self._must_tell_all = self._is_to_confirm = False
            request = self._request(is_whole=is_whole, is_confirming=is_confirming)
            if is_whole and self.wanted.pattern is None and self.has_joined and connection.version(KEY) >= OWN_IDS_SINCE:
                request.subscribed_topic_regex = ""  # it may have wanted one before
            answer = await connection.post(request, ConsumerGroupHeartbeatResponse, self.cluster.timing.request_timeout_ms)
        except KafkaError:
            self.cluster.forget_coordinator(GROUP, self.terms.group)
            raise
        if epoch == self.generation and not self.is_out.is_set():
            self._take(answer)

    def _request(self, *, is_whole: bool, is_confirming: bool) -> ConsumerGroupHeartbeatRequest:
        kind, terms = ConsumerGroupHeartbeatRequest, self.terms
        request = kind(
            group_id=terms.group, member_id=self.member_id, member_epoch=self.generation, instance_id=terms.instance_id
        )
        if is_whole:
            request.rebalance_timeout_ms = terms.max_poll_interval_ms
            request.rack_id = terms.rack or None
            request.server_assignor = terms.assignors[0] if terms.assignors else None
            request.subscribed_topic_names = sorted(self.wanted.topics)
            request.subscribed_topic_regex = self.wanted.pattern
        if self.generation == JOIN_EPOCH:
            request.topic_partitions = []
        elif is_whole or is_confirming:
            ids = self.holding.ids
            request.topic_partitions = [
                kind.TopicPartitions(topic_id=ids[places[0]], partitions=[place.partition for place in places])
                for places in by_topic(ids).values()
            ]
        return request

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        self.judge(answer.error_code, answer.error_message)
        self.has_joined = True
        self._unreleased_s = None
        self.member_id = answer.member_id or self.member_id
        self.generation = answer.member_epoch
        self._interval_s = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self.target = [(each.topic_id, index) for each in answer.assignment.topic_partitions for index in each.partitions]

    # -- getting there

    def _reconcile_on(self) -> None:
        if self.target is not None and self._reconciling is None:
            self._reconciling = asyncio.create_task(self._reconcile(self.target))
            self._reconciling.add_done_callback(self._reconciled)

    def _reconciled(self, task: "asyncio.Task[None]") -> None:
        self._reconciling = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.changed.set()
        elif not isinstance(error, KafkaError) or (not error.is_retriable and error.code not in OUT):
            self.holding.fail(error)  # and it is tried again after the next heartbeat

    async def _reconcile(self, target: Target) -> None:
        names = self.cluster.metadata.names
        if any(topic_id not in names for topic_id, _ in target):
            with suppress(KafkaError):
                await self.cluster.refresh()
        shares = {TopicPartition(names[topic_id], index): topic_id for topic_id, index in target if topic_id in names}
        self._is_unnamed = len(shares) < len(target)
        held = self.holding.ids
        gone = [place for place, topic_id in held.items() if shares.get(place) != topic_id]
        added = [place for place, topic_id in shares.items() if held.get(place) != topic_id]
        if gone:
            await self.holding.give_up(gone)
        if added:
            await self.holding.take(added, {place.topic: shares[place] for place in added})
        if self.target is target and not self._is_unnamed:
            self.target = None
        self._is_to_confirm = True

    async def _stop_reconciling(self) -> None:
        if self._reconciling is not None:
            self._reconciling.cancel()
            await asyncio.wait([self._reconciling])

    async def say_goodbye(self) -> None:
        if self.generation <= JOIN_EPOCH:
            return
        epoch = LEAVE_EPOCH if self.terms.instance_id is None else LEAVE_FOR_A_WHILE_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.terms.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.terms.instance_id
        )
        await self.cluster.ask_coordinator(GROUP, self.terms.group, request, ConsumerGroupHeartbeatResponse, lane=LANE)
