"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, eager by range or cooperative in two steps (KIP-429).

Invariants
 1. Eager: everything is given up before it joins. Cooperative: it keeps what it has, gives up what it shall not have any more
    after SyncGroup, and then joins again.
 2. Who is told that its generation or its id is none any more has lost everything; so has who was not heard of in a generation.
 3. Who leads joins again when topics have got more partitions, are gone, or are there again.
 4. It commits only while it is in a generation; not between JoinGroup and SyncGroup.
"""

from typing import Final

from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import decode_consumer_protocol, encode_versioned
from odradek.wire.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.sim.clients.assignors import Candidate, Shares, by_range, cooperatively
from tests.sim.clients.commits import ELSEWHERE, by_topic
from tests.sim.clients.connection import Lost
from tests.sim.clients.fetcher import Taste
from tests.sim.clients.member import FENCED, Member, Terms
from tests.sim.clients.program import Place, Program

PROTOCOL_TYPE: Final = "consumer"
COOPERATIVE: Final = "cooperative-sticky"
SUBSCRIPTION_WITH_OWNED: Final = 1
SUBSCRIPTION_NEWEST: Final = 3
JOIN_WITH_REBALANCE_TIMEOUT: Final = 1
LEAVE_OF_MANY: Final = 3
STATIC_FLOORS: Final = {"JoinGroup": 5, "SyncGroup": 3, "Heartbeat": 3, "OffsetCommit": 7}
SPARE_SECONDS: Final = 5.0  # beyond the rebalance time-out, before the answer to a join is given up


class ClassicMember(Member):
    def __init__(self, program: Program, taste: Taste, terms: Terms) -> None:
        if terms.instance is not None:
            program.era = program.era.with_floor(**STATIC_FLOORS)
        super().__init__(program, taste, terms)
        self.is_cooperative = terms.protocol == COOPERATIVE
        self.must_join = True
        self._is_joining = False
        self._shared_out: dict[str, int] | None = None  # partitions by topic, as this member has shared them out, if it leads
        oldest = SUBSCRIPTION_WITH_OWNED if self.is_cooperative else 0
        self.subscription_version = program.chance.randint(oldest, SUBSCRIPTION_NEWEST)

    @property
    def may_commit(self) -> bool:
        return not self._is_joining and self.generation >= 0

    async def _belong(self) -> None:
        while not self.is_fenced:
            try:
                if self.must_join:
                    await self._join()
                else:
                    await self.pause(self.terms.heartbeat_seconds)
                    await self._heartbeat()
                    self._look_for_partitions()
            except Lost:
                await self.pause()

    def rejoin(self) -> None:
        super().rejoin()
        self.must_join = True

    def _refused(self, code: ErrorCode) -> None:
        if code in FENCED:
            self._fall_out(code)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.must_join = True

    def _fall_out(self, code: ErrorCode) -> None:
        """It is no member any more, or not of this generation."""
        self.is_fenced |= code == ErrorCode.FENCED_INSTANCE_ID
        self._shared_out = None
        self.lose()
        self.generation = -1
        self.must_join = True
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _judge(self, code: ErrorCode) -> None:
        """Lost, unless all is well."""
        if code == ErrorCode.NONE:
            return
        if code in ELSEWHERE:
            self.view.coordinators.pop(self.terms.group, None)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.must_join = True
        elif code in FENCED:
            self._fall_out(code)
        else:
            assert code.retriable, f"{self.terms.group}: {code.name}"
        raise Lost(code.name)

    async def _heartbeat(self) -> None:
        if self.must_join:
            return
        generation = self.generation
        request = HeartbeatRequest(
            group_id=self.terms.group,
            generation_id=generation,
            member_id=self.member_id,
            group_instance_id=self.terms.instance,
        )
        answer = await self.view.ask_coordinator(self.terms.group, request, HeartbeatResponse)
        await self.awake()
        if self.generation == generation:
            self._judge(ErrorCode(answer.error_code))

    # -- joining

    async def _join(self) -> None:
        if not self.is_cooperative:
            await self.revoke(self.owned)
        async with self._committing:  # a commit under way is answered first
            self._is_joining = True  # until it is in a generation, however often it takes: of one that it heard of it may be none
        places = await self._join_and_sync()
        self._is_joining = False
        gone, generation = [place for place in self.owned if place not in places], self.generation
        if gone:
            await self.revoke(gone)
        self.must_join = bool(gone)
        if self.generation != generation:
            return  # the commit of what is gone was refused, and with that its share is none any more
        try:
            await self.take(places)
        except Lost:
            self.must_join = True  # without its offsets a share is nothing
            raise

    async def _join_and_sync(self) -> list[Place]:
        await self.view.refresh(self.terms.topics)
        joined = await self._send_join()
        await self.awake()
        code = ErrorCode(joined.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            raise Lost("a member id came")
        self._judge(code)
        self.member_id = joined.member_id
        if self.owned and joined.generation_id > self.generation + 1:
            self._judge(ErrorCode.ILLEGAL_GENERATION)
        self.generation = joined.generation_id
        is_leader = joined.leader == joined.member_id
        self._shared_out = self._partitions() if is_leader else None
        shares = await self._share_out(joined) if is_leader and joined.members and not joined.skip_assignment else {}
        kind = SyncGroupRequest
        assignments = [
            kind.SyncGroupRequestAssignment(member_id=member, assignment=self._encode(share)) for member, share in shares.items()
        ]
        request = kind(
            group_id=self.terms.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.terms.instance,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.terms.protocol,
            assignments=assignments,
        )
        seconds_max = self.terms.rebalance_timeout_ms / 1000 + SPARE_SECONDS
        synced = await self.view.ask_coordinator(self.terms.group, request, SyncGroupResponse, seconds_max)
        await self.awake()
        self._judge(ErrorCode(synced.error_code))
        if not synced.assignment:
            return []
        assigned = decode_consumer_protocol(ConsumerProtocolAssignment, synced.assignment)
        return [Place(each.topic, index) for each in assigned.assigned_partitions for index in each.partitions]

    async def _send_join(self) -> JoinGroupResponse:
        node = await self.view.coordinator(self.terms.group)
        try:
            connection = await self.view.connection(node, f"group {self.terms.group}")
            version = self.view.version(JoinGroupRequest, connection)
            protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=self.terms.protocol, metadata=self._subscription())
            request = JoinGroupRequest(
                group_id=self.terms.group,
                session_timeout_ms=self.terms.session_timeout_ms,
                rebalance_timeout_ms=self.terms.rebalance_timeout_ms,
                member_id=self.member_id,
                group_instance_id=self.terms.instance,
                protocol_type=PROTOCOL_TYPE,
                protocols=[protocol],
            )
            waits_ms = self.terms.rebalance_timeout_ms
            if version < JOIN_WITH_REBALANCE_TIMEOUT:
                waits_ms = self.terms.session_timeout_ms
            return await connection.ask(request, version, JoinGroupResponse, waits_ms / 1000 + SPARE_SECONDS)
        except Lost:
            self.view.coordinators.pop(self.terms.group, None)
            raise

    def _subscription(self) -> bytes:
        kind = ConsumerProtocolSubscription
        owned = [
            kind.TopicPartition(topic=topic, partitions=[place.index for place in places])
            for topic, places in by_topic(self.owned).items()
        ]
        wanted = kind(topics=list(self.terms.topics), owned_partitions=owned, generation_id=self.generation)
        return encode_versioned(wanted, self.subscription_version)

    # -- leading

    async def _share_out(self, joined: JoinGroupResponse) -> Shares:
        """Of topics that somebody wants and that are there. All members of a group want the same."""
        candidates = []
        for each in joined.members:
            wanted = decode_consumer_protocol(ConsumerProtocolSubscription, each.metadata)
            owned = tuple(Place(part.topic, index) for part in wanted.owned_partitions for index in part.partitions)
            candidates.append(Candidate(each.member_id, owned, wanted.generation_id))
        await self.view.refresh(self.terms.topics)
        self._shared_out = partitions = self._partitions()
        return cooperatively(candidates, partitions) if self.is_cooperative else by_range(candidates, partitions)

    def _partitions(self) -> dict[str, int]:
        known = self.view.topics
        return {topic: len(known[topic].partitions) for topic in self.terms.topics if topic in known}

    def _look_for_partitions(self) -> None:
        """Who leads shares out anew when there are others."""
        if self._shared_out is not None and self._shared_out != self._partitions():
            self.must_join = True

    def _encode(self, share: list[Place]) -> bytes:
        kind = ConsumerProtocolAssignment
        parts = [
            kind.TopicPartition(topic=topic, partitions=[place.index for place in places])
            for topic, places in by_topic(share).items()
        ]
        return encode_versioned(kind(assigned_partitions=parts), min(self.subscription_version, 1))

    # -- leaving

    async def _say_goodbye(self) -> None:
        if self.terms.instance is not None or not self.member_id:
            return  # a static member comes back, or its session ends
        node = await self.view.coordinator(self.terms.group)
        connection = await self.view.connection(node, f"group {self.terms.group}")
        version = self.view.version(LeaveGroupRequest, connection)
        kind = LeaveGroupRequest
        request = kind(group_id=self.terms.group, member_id=self.member_id)
        if version >= LEAVE_OF_MANY:
            request = kind(group_id=self.terms.group, members=[kind.MemberIdentity(member_id=self.member_id)])
        await connection.ask(request, version, LeaveGroupResponse, SPARE_SECONDS)
