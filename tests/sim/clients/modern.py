"""A member of a group of the new protocol (KIP-848): ConsumerGroupHeartbeat tells it what shall be its, and it gets there.

Invariants
 1. What it shall not have any more is committed and given up before the coordinator hears that it is.
 2. After an answer that was lost everything is told again: subscription, time-out and what it has.
 3. What it has are partitions of topics by their ids: of one that was made anew it has none, until it is told so.
 4. Who is told that its epoch or its id is none any more has lost everything, and joins again with epoch 0.
"""

from typing import Final

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tests.sim.clients.commits import ELSEWHERE, by_topic
from tests.sim.clients.connection import Lost
from tests.sim.clients.fetcher import Taste
from tests.sim.clients.member import FENCED, Member, Terms
from tests.sim.clients.program import Place, Program

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2  # of a static member
HEARTBEAT_WITH_OWN_ID: Final = 1
FLOORS: Final = {"Metadata": 10, "OffsetCommit": 9, "OffsetFetch": 9}  # ids of topics, member epochs

Assignment = ConsumerGroupHeartbeatResponse.Assignment


class ModernMember(Member):
    def __init__(self, program: Program, taste: Taste, terms: Terms) -> None:
        program.era = program.era.with_floor(**FLOORS)
        super().__init__(program, taste, terms)
        self.fetcher.follows_names = False
        self.generation = JOIN_EPOCH
        self.target: list[tuple[bytes, int]] | None = None  # topic ids and partitions that shall be its; None: not told yet
        self._ids: dict[str, bytes] = {}  # of topics, as they were told: the view may lose them
        self._must_tell_all = True
        self._is_to_confirm = False
        self._heartbeat_seconds = terms.heartbeat_seconds

    @property
    def may_commit(self) -> bool:
        return self.generation > JOIN_EPOCH

    async def _belong(self) -> None:
        while not self.is_fenced:
            try:
                await self._heartbeat()
                if await self._reconcile():
                    continue  # the coordinator hears of it at once
            except Lost:
                self._must_tell_all = True
            await self.pause(self._heartbeat_seconds)

    def _refused(self, code: ErrorCode) -> None:
        if code in FENCED:
            self._fall_out(code)

    def _fall_out(self, code: ErrorCode) -> None:
        self.is_fenced |= code == ErrorCode.FENCED_INSTANCE_ID
        self.lose()
        self.generation, self.target, self._must_tell_all = JOIN_EPOCH, None, True

    # -- heartbeats

    async def _heartbeat(self) -> None:
        node = await self.view.coordinator(self.terms.group)
        try:
            connection = await self.view.connection(node, f"group {self.terms.group}")
            version = self.view.version(ConsumerGroupHeartbeatRequest, connection)
            if not self.member_id and version >= HEARTBEAT_WITH_OWN_ID:
                self.member_id = self.program.unique_id().hex()
            generation = self.generation
            answer = await connection.ask(self._request(), version, ConsumerGroupHeartbeatResponse, 4.0)
        except Lost:
            self.view.coordinators.pop(self.terms.group, None)
            raise
        await self.awake()
        if self.generation == generation:
            self._take_answer(answer)

    def _request(self, epoch: int | None = None) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.terms.group,
            member_id=self.member_id,
            member_epoch=self.generation if epoch is None else epoch,
            instance_id=self.terms.instance,
        )
        if epoch is not None:
            return request
        if self._must_tell_all:
            request.rebalance_timeout_ms = self.terms.rebalance_timeout_ms
            request.subscribed_topic_names = list(self.terms.topics)
        if self._must_tell_all or self._is_to_confirm:
            kind = ConsumerGroupHeartbeatRequest.TopicPartitions
            request.topic_partitions = [
                kind(topic_id=self._ids[topic], partitions=[place.index for place in places])
                for topic, places in by_topic(self.owned).items()
            ]
        return request

    def _take_answer(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        code = ErrorCode(answer.error_code)
        if code in FENCED:
            self._fall_out(code)
        elif code in ELSEWHERE:
            self.view.coordinators.pop(self.terms.group, None)
        else:
            is_passing = code.retriable or code == ErrorCode.UNRELEASED_INSTANCE_ID
            assert not code or is_passing, f"{self.terms.group}: {code.name}: {answer.error_message}"
        if code:
            raise Lost(code.name)
        self.member_id = answer.member_id or self.member_id
        self.generation = answer.member_epoch
        self._heartbeat_seconds = answer.heartbeat_interval_ms / 1000
        self._must_tell_all = self._is_to_confirm = False
        if answer.assignment is not None:
            self.target = [(each.topic_id, index) for each in answer.assignment.topic_partitions for index in each.partitions]

    # -- getting there

    async def _reconcile(self) -> bool:
        """Whether what it has is what it shall have since just now. A topic that is not known by name yet waits."""
        if self.target is None:
            return False
        if any(not self.view.topic_name(topic_id) for topic_id, _ in self.target):
            await self.view.refresh(self.terms.topics)
        if self.target is None:
            return False  # it fell out meanwhile
        wanted = [(self.view.topic_name(topic_id), topic_id, index) for topic_id, index in self.target]
        places = {Place(topic, index): topic_id for topic, topic_id, index in wanted if topic}
        gone = [place for place in self.owned if place not in places or self._is_another(place, places[place])]
        added = [place for place in places if place not in self.owned]
        if gone:
            await self.revoke(gone)  # what is added comes after the coordinator has heard of this
        else:
            self._ids |= {place.topic: topic_id for place, topic_id in places.items()}
        if added and not gone:
            await self.take(added)
        if not gone and len(places) == len(wanted):
            self.target = None
        self._is_to_confirm = bool(gone or added)
        return self._is_to_confirm

    def _is_another(self, place: Place, topic_id: bytes) -> bool:
        """Whether the topic was made anew since it was told to have this partition."""
        return self._ids.get(place.topic, topic_id) != topic_id

    async def _say_goodbye(self) -> None:
        if self.generation <= JOIN_EPOCH:
            return
        epoch = LEAVE_EPOCH if self.terms.instance is None else LEAVE_FOR_A_WHILE_EPOCH
        await self.view.ask_coordinator(self.terms.group, self._request(epoch), ConsumerGroupHeartbeatResponse)
