"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat; eager, or cooperative in two steps (KIP-429).

Invariants
 1. Eager: everything is given up before it joins. Cooperative: it keeps what it has, gives up after SyncGroup what it shall
    not have any more, and then joins again.
 2. Who is told that its generation or its id is none any more has lost everything.
 3. Who leads joins again when the topics of the group have other partitions; who wants a pattern, when it matches others.
 4. There are no heartbeats and no commits between JoinGroup and the answer to SyncGroup.
 5. Who was not heard of in a generation has lost everything too: others may have been given what it has. A coordinator keeps the
    place of a static member that joins too late, and does not tell it; the number of the next generation does.
 6. A static member does not leave: it is expected back.
"""

import asyncio
from typing import Final

from odradek.client.cluster import GROUP, Cluster
from odradek.client.errors import InvalidOption, KafkaError, Refused
from odradek.client.group.assignors import ASSIGNORS, COOPERATIVE_STICKY, STICKY, Shares
from odradek.client.group.member import FellOut, Member, Terms, Wanted, is_fatal
from odradek.client.group.subscription import (
    decode_assignment,
    decode_candidate,
    encode_assignment,
    encode_subscription,
)
from odradek.client.holding import Holding
from odradek.client.records import NO_EPOCH, TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

PROTOCOL_TYPE: Final = "consumer"
LANE: Final = "coordinator"
JOIN_LANE: Final = "join"  # a join is answered when all have come: heartbeats and commits do not wait behind it
SPARE_MS: Final = 5_000  # beyond the rebalance time-out, before the answer to a join is given up
LEAVE_OF_MANY_SINCE: Final = 3
OUT: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class ClassicMember(Member):
    def __init__(self, cluster: Cluster, holding: Holding, terms: Terms, wanted: Wanted) -> None:
        super().__init__(cluster, holding, terms, wanted)
        self.assignors = terms.assignors or (COOPERATIVE_STICKY,)
        for name in self.assignors:
            if name not in ASSIGNORS:
                raise InvalidOption(f"there is no assignor {name!r}; there are {', '.join(ASSIGNORS)}")
        self.is_cooperative = all(name == COOPERATIVE_STICKY for name in self.assignors)
        self._must_join = True
        self._topics: list[str] = []  # that it said it wants
        self._had: list[TopicPartition] = []  # in the last generation that it was in
        self._shared_out: dict[str, int] | None = None  # partitions by topic, as it has shared them out; None: it does not lead
        self._group_topics: list[str] = []  # that any member wants
        self._failed: KafkaError | None = None
        self._settled = asyncio.Event()
        self._settled.set()

    # -- its life

    async def belong(self) -> None:
        beating = asyncio.create_task(self._beat())
        try:
            while True:
                await self._live_on()
        finally:
            beating.cancel()
            await asyncio.wait([beating])

    async def _live_on(self) -> None:
        try:
            if self._failed is not None:
                raise self._failed
            if self.is_out.is_set():
                await self.come_in_again()
            if self._must_join:
                await self._join()
                self.backoff.reset()
            if not self._must_join and not self.is_out.is_set():
                self.changed.clear()
                await self.changed.wait()
        except FellOut:
            self._must_join = True
        except KafkaError as error:
            self._must_join = True
            if is_fatal(error):
                raise
            if isinstance(error, Refused) and error.code in OUT:
                self._throw_out(error)
            elif not isinstance(error, Refused) or error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                await self.wait_before_retry()

    def fall_out(self) -> None:
        self.generation = NO_EPOCH
        self._shared_out = None
        self._must_join = True

    def wanted_changed(self) -> None:
        self._must_join = True

    def is_member(self) -> bool:
        return self.generation >= 0 and not self.is_out.is_set()

    @property
    def may_commit(self) -> bool:
        return self.is_member() and self._settled.is_set()

    async def ready(self) -> None:
        await self._settled.wait()

    # -- heartbeats

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.terms.heartbeat_interval_ms / 1000)
            if not self.may_commit:
                continue
            generation = self.generation
            request = HeartbeatRequest(
                group_id=self.terms.group,
                generation_id=generation,
                member_id=self.member_id,
                group_instance_id=self.terms.instance_id,
            )
            try:
                answer = await self.cluster.ask_coordinator(GROUP, self.terms.group, request, HeartbeatResponse, lane=LANE)
                if generation == self.generation and self.may_commit:
                    self.judge(answer.error_code)
            except KafkaError as error:
                self._hear(error)

    def _hear(self, error: KafkaError) -> None:
        if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
        elif error.code in OUT:
            self._throw_out(error)
        elif is_fatal(error):
            self._failed = error
        else:
            return
        self.changed.set()

    def _throw_out(self, error: KafkaError) -> None:
        """An id that is known stays: with another one there would be two of us, and everybody would wait for the first."""
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.is_out.set()

    # -- joining

    async def _join(self) -> None:
        self._must_join = False
        self._had = self.holding.places or self._had
        if not self.is_cooperative:
            await self.unless_out(self.holding.give_up(self.holding.places))
        self._settled.clear()
        try:
            places = await self._join_and_sync()
        finally:
            self._settled.set()
        gone = [place for place in self.holding.places if place not in places]
        if gone:
            await self.unless_out(self.holding.give_up(gone))
            self._must_join = True
        await self.unless_out(self.holding.take(places))
        self._had = places

    async def _join_and_sync(self) -> list[TopicPartition]:
        if not self.cluster.metadata.topics:
            await self.cluster.refresh()
        joined = await self._send_join()
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            joined = await self._send_join()
        self.judge(joined.error_code)
        self.member_id = joined.member_id
        if self.holding.places and joined.generation_id > self.generation + 1:
            self.judge(ErrorCode.ILLEGAL_GENERATION)
        self.generation = joined.generation_id
        shares: Shares = {}
        self._shared_out = None
        protocol = joined.protocol_name or self.assignors[0]
        if joined.leader == joined.member_id:
            shares = await self._share_out(joined, protocol)
        kind = SyncGroupRequest
        request = kind(
            group_id=self.terms.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.terms.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol,
            assignments=[
                kind.SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(share))
                for member, share in shares.items()
            ],
        )
        timeout_ms = self.terms.max_poll_interval_ms + SPARE_MS
        synced = await self.cluster.ask_coordinator(
            GROUP, self.terms.group, request, SyncGroupResponse, timeout_ms=timeout_ms, lane=JOIN_LANE
        )
        self.judge(synced.error_code)
        return decode_assignment(synced.assignment)

    async def _send_join(self) -> JoinGroupResponse:
        kind = JoinGroupRequest
        self._topics = self.wanted.matching(self.cluster)
        request = kind(
            group_id=self.terms.group,
            session_timeout_ms=self.terms.session_timeout_ms,
            rebalance_timeout_ms=self.terms.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self.terms.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[kind.JoinGroupRequestProtocol(name=name, metadata=self._subscription(name)) for name in self.assignors],
        )
        timeout_ms = self.terms.max_poll_interval_ms + SPARE_MS
        return await self.cluster.ask_coordinator(
            GROUP, self.terms.group, request, JoinGroupResponse, timeout_ms=timeout_ms, lane=JOIN_LANE
        )

    def _subscription(self, assignor: str) -> bytes:
        owned = self._had if assignor == STICKY else self.holding.places
        return encode_subscription(assignor, self._topics, owned, self.generation, self.terms.rack or None)

    # -- leading

    async def _share_out(self, joined: JoinGroupResponse, protocol: str) -> Shares:
        candidates = [decode_candidate(protocol, each) for each in joined.members]
        topics = sorted({*self._topics, *(topic for each in candidates for topic in each.topics)})
        if self.wanted.pattern is None:
            self.cluster.want([*topics, *(place.topic for place in self.holding.places)])
        await self.cluster.refresh()
        self._group_topics = topics
        self._shared_out = counts = self._counts(topics)
        if joined.skip_assignment:
            return {}
        if protocol not in ASSIGNORS:
            raise InvalidOption(f"the group {self.terms.group} shares out by {protocol!r}, which is not known here")
        return ASSIGNORS[protocol](candidates, counts)

    def _counts(self, topics: list[str]) -> dict[str, int]:
        known = self.cluster.metadata.topics
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}

    def look(self) -> None:
        shared_out = self._shared_out
        is_other = self.wanted.pattern is not None and self.wanted.matching(self.cluster) != self._topics
        if shared_out is not None:
            is_other = is_other or self._counts(self._group_topics) != shared_out
        if is_other and self._settled.is_set():
            self._must_join = True
            self.changed.set()

    # -- leaving

    async def say_goodbye(self) -> None:
        if self.terms.instance_id is not None or not self.member_id:
            return
        kind = LeaveGroupRequest
        node = await self.cluster.coordinator(GROUP, self.terms.group)
        connection = await self.cluster.connection(node, LANE)
        request = kind(group_id=self.terms.group, members=[kind.MemberIdentity(member_id=self.member_id)])
        if connection.version(kind.schema.key) < LEAVE_OF_MANY_SINCE:
            request = kind(group_id=self.terms.group, member_id=self.member_id)
        await connection.post(request, LeaveGroupResponse, self.cluster.timing.request_timeout_ms)
        self.member_id = ""
