"""An administrator: topics, partitions, settings, records, replicas, elections and voters.

Invariants
 1. What the checker knows of (topics, deleted records) is told before it is asked for and after it was answered.
 2. A topic ends as refused only when no attempt can have come through.
 3. A cleanup policy is allowed in the history before a node can hear of it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, TypeVar

from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID, Message
from odradek.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.checker.history import (
    DeletionBegun,
    DeletionEnded,
    LossAllowed,
    Outcome,
    RemovalAllowed,
    TopicBegun,
    TopicEnded,
)
from tests.sim.clients.connection import Lost
from tests.sim.clients.program import Place, Program
from tests.sim.clients.view import View

TIMEOUT_MS: Final = 3000
ANSWER_SECONDS_MAX: Final = 6.0
AGAIN_SECONDS: Final = 0.5
DELETE_BY_ID: Final = 6
TOPIC_RESOURCE: Final = 2
SET: Final = 0
PREFERRED: Final = 0
UNCLEAN: Final = 1
CLEAN: Final = frozenset(  # answers after which nothing was done
    {
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.POLICY_VIOLATION,
    }
)
DONE_ALREADY: Final = {"create": ErrorCode.TOPIC_ALREADY_EXISTS, "delete": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

Answer = TypeVar("Answer", bound=Message)


class Administrator:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.view = View(program)
        self.answered: dict[str, int] = {}  # requests that were done, by what they were
        self.made: dict[str, bytes] = {}  # ids of topics that one attempt has made: no other can come late

    def close(self) -> None:
        self.view.close()

    async def _ask(self, request: Message, response: type[Answer], node: int | None = None) -> Answer:
        """Of one node, or of any: each hands it on to where it is decided."""
        if node is None:
            node = await self.view.any_broker()
        return await self.view.ask(node, "administration", request, response, ANSWER_SECONDS_MAX)

    def _count(self, what: str, code: ErrorCode) -> ErrorCode:
        if code == ErrorCode.NONE:
            self.answered[what] = self.answered.get(what, 0) + 1
        return code

    # -- topics

    async def create(
        self,
        topic: str,
        partitions: int,
        replicas: int,
        configs: Mapping[str, str],
        attempts_max: int = 1,
        *,
        is_new: bool = False,
    ) -> Outcome:
        """With `is_new` nobody has ever asked for it: if it is there, it is by one of these attempts."""
        if "cleanup.policy" in configs or "retention.ms" in configs:
            self._allow(topic, configs)
        kind = CreateTopicsRequest
        wanted = kind.CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[kind.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )

        async def attempt() -> ErrorCode:
            answer = await self._ask(kind(topics=[wanted], timeout_ms=TIMEOUT_MS), CreateTopicsResponse)
            if not answer.topics[0].error_code and answer.topics[0].topic_id != NIL_UUID:
                self.made[topic] = answer.topics[0].topic_id
            return ErrorCode(answer.topics[0].error_code)

        return await self._change(topic, "create", partitions, attempts_max, attempt, is_ours=is_new)

    async def delete(self, topic: str, attempts_max: int = 1, topic_id: bytes = NIL_UUID) -> Outcome:
        """By its name, or by its id: then no attempt that comes late deletes another topic of that name, and what is not known is
        gone."""
        is_by_id = topic_id != NIL_UUID

        async def attempt() -> ErrorCode:
            request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=TIMEOUT_MS)
            if self.program.era.wanted[request.schema.key] >= DELETE_BY_ID:
                state = DeleteTopicsRequest.DeleteTopicState(name=None if is_by_id else topic, topic_id=topic_id)
                request = DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
            answer = await self._ask(request, DeleteTopicsResponse)
            code = ErrorCode(answer.responses[0].error_code)
            return ErrorCode.NONE if is_by_id and code == ErrorCode.UNKNOWN_TOPIC_ID else code

        return await self._change(topic, "delete", 1, attempts_max, attempt, topic_id=topic_id)

    async def _change(
        self,
        topic: str,
        change: Literal["create", "delete"],
        partitions: int,
        attempts_max: int,
        attempt: Callable[[], Awaitable[ErrorCode]],
        *,
        is_ours: bool = False,
        topic_id: bytes = NIL_UUID,
    ) -> Outcome:
        program = self.program
        number = program.history.next_id()
        told = topic_id.hex() if topic_id != NIL_UUID else ""
        program.tell(TopicBegun(program.at_ms, program.name, number, topic, change, partitions, told))
        self.made.pop(topic, None)
        outcome: Outcome = "refused"
        error = ""
        attempts = 0
        while attempts < attempts_max:
            attempts += 1
            try:
                code = await attempt()
            except Lost as lost:
                outcome, error = "unknown", str(lost)
            else:
                error = code.name if code else ""
                if code == ErrorCode.NONE or (code == DONE_ALREADY[change] and (is_ours or outcome == "unknown")):
                    outcome = "acknowledged"
                    self._count(change, ErrorCode.NONE)
                    break
                if code == DONE_ALREADY[change]:
                    outcome = "unknown"  # a broker that passes a request on sends it again when the controller changes
                    break
                if code not in CLEAN:
                    outcome = "unknown"
            await asyncio.sleep(AGAIN_SECONDS)
        made = self.made[topic].hex() if topic in self.made else ""
        program.tell(TopicEnded(program.at_ms, program.name, number, outcome, error, made))
        if attempts > 1:
            self.made.pop(topic, None)
        return outcome

    async def add_partitions(self, topic: str, count: int) -> ErrorCode:
        kind = CreatePartitionsRequest
        wanted = kind.CreatePartitionsTopic(name=topic, count=count, assignments=None)
        answer = await self._ask(kind(topics=[wanted], timeout_ms=TIMEOUT_MS), CreatePartitionsResponse)
        return self._count("partitions", ErrorCode(answer.results[0].error_code))

    # -- settings, records

    def _allow(self, topic: str, configs: Mapping[str, str]) -> None:
        program = self.program
        policies = configs.get("cleanup.policy", "delete").split(",")
        for policy in ("delete", "compact"):
            is_delete_without_limit = policy == "delete" and "retention.ms" not in configs
            if policy in policies and not is_delete_without_limit:
                program.tell(RemovalAllowed(program.at_ms, program.name, topic, policy))

    async def configure(self, topic: str, configs: Mapping[str, str]) -> ErrorCode:
        if "cleanup.policy" in configs or "retention.ms" in configs:
            self._allow(topic, configs)
        kind = IncrementalAlterConfigsRequest
        changes = [kind.AlterableConfig(name=name, config_operation=SET, value=value) for name, value in configs.items()]
        resource = kind.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=changes)
        answer = await self._ask(kind(resources=[resource]), IncrementalAlterConfigsResponse)
        return self._count("settings", ErrorCode(answer.responses[0].error_code))

    async def delete_records(self, place: Place, offset: int) -> ErrorCode:
        """Up to the offset, which has to be known to be below the end."""
        program = self.program
        led = await self.view.led(place)
        number = program.history.next_id()
        program.tell(DeletionBegun(program.at_ms, program.name, number, place.topic, place.index, offset))
        kind = DeleteRecordsRequest
        partition = kind.DeleteRecordsPartition(partition_index=place.index, offset=offset)
        topic = kind.DeleteRecordsTopic(name=place.topic, partitions=[partition])
        outcome: Outcome = "unknown"
        log_start = -1
        code = ErrorCode.NETWORK_EXCEPTION
        try:
            answer = await self._ask(kind(topics=[topic], timeout_ms=TIMEOUT_MS), DeleteRecordsResponse, led.leader)
        except Lost:
            pass
        else:
            (told,) = answer.topics[0].partitions
            code, log_start = ErrorCode(told.error_code), told.low_watermark
            outcome = "acknowledged" if code == ErrorCode.NONE else "unknown"
        program.tell(DeletionEnded(program.at_ms, program.name, number, outcome, log_start if not code else -1))
        return self._count("records deleted", code)

    # -- replicas

    async def reassign(self, place: Place, replicas: list[int] | None) -> ErrorCode:
        """None takes a move back."""
        kind = AlterPartitionReassignmentsRequest
        partition = kind.ReassignablePartition(partition_index=place.index, replicas=replicas)
        topic = kind.ReassignableTopic(name=place.topic, partitions=[partition])
        answer = await self._ask(kind(topics=[topic], timeout_ms=TIMEOUT_MS), AlterPartitionReassignmentsResponse)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        return self._count("moves", ErrorCode(answer.responses[0].partitions[0].error_code))

    async def elect(self, place: Place, *, is_unclean: bool = False) -> ErrorCode:
        kind = ElectLeadersRequest
        wanted = kind.TopicPartitions(topic=place.topic, partitions=[place.index])
        request = kind(election_type=UNCLEAN if is_unclean else PREFERRED, topic_partitions=[wanted], timeout_ms=TIMEOUT_MS)
        self._allow_loss(place, is_unclean)
        try:
            answer = await self._ask(request, ElectLeadersResponse)
        finally:
            self._allow_loss(place, is_unclean)  # of what was acknowledged while the request was on its way, too
        results = [each for topic in answer.replica_election_results for each in topic.partition_result]
        code = ErrorCode(answer.error_code or (results[0].error_code if results else 0))
        return self._count("elections", code)

    def _allow_loss(self, place: Place, is_unclean: bool) -> None:
        if is_unclean:
            program = self.program
            program.tell(LossAllowed(program.at_ms, program.name, "an unclean election", [place.topic]))
