"""A transactional producer, as Java's: one transactional id, one transaction at a time, in one of two manners.

    V2  Produce and TxnOffsetCommit take partitions into the transaction, and every end brings a new epoch (KIP-890)
    V1  AddPartitionsToTxn and AddOffsetsToTxn come first; an epoch lasts until a batch fails, and InitProducerId bumps it

    await transactor.initialize()
    await transactor.begin(); transactor.send(...); await transactor.commit_offsets(...)
    await transactor.commit()       # Abortable: then `abort`, and begin anew. Fenced: its life is over
    await transactor.abort()

Invariants
 1. A transaction is committed when each of its batches and offsets is acknowledged, and at no other time.
 2. The end is asked for until it is known; when it never will be, the life of this producer is over, and the next one's
    InitProducerId decides.
 3. Before the end is asked for, nothing of the transaction is on its way any more, as far as this client can know.
 4. What it asks for after another life was told a newer epoch is refused.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceResponse,
)
from tests.checker import history
from tests.sim.clients.commits import ELSEWHERE, Committed, Identity
from tests.sim.clients.connection import Lost
from tests.sim.clients.fencing import Fence
from tests.sim.clients.lane import DOUBLINGS_MAX, Batch
from tests.sim.clients.producer import LOOK_SECONDS, Manner, Producer, Sent
from tests.sim.clients.program import Place, Program
from tests.sim.clients.transactional_commits import Author, commit
from tests.sim.clients.view import BACK_OFF_SECONDS, OF_TRANSACTIONS, View

PURPOSE: Final = "transactions"
FLOORS: Final = {"FindCoordinator": 1, "TxnOffsetCommit": 3}  # transactional ids, members
SECOND: Final = {"Produce": 12, "EndTxn": 5, "TxnOffsetCommit": 5}  # from these versions on there is V2
CLIENTS_UNTIL: Final = {"AddPartitionsToTxn": 3}  # above it brokers speak to brokers
BUMP_SINCE: Final = 3  # of InitProducerId
BACK_OFF_SECONDS_MAX: Final = 1.0
CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS.name
PATIENCE_SECONDS: Final = 0.1  # add.partitions.to.txn.retry.backoff.max.ms: for so long leaders try to add a partition
OVER: Final = frozenset(  # after which Java's producer has to be closed
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)

Answer = TypeVar("Answer", bound=Message)
Told = TypeVar("Told", bound=InitProducerIdResponse | EndTxnResponse | AddOffsetsToTxnResponse)


class Abortable(Exception):
    """The transaction cannot be committed any more."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(f"{why}: {code.name}")
        self.code = code


class Fenced(Exception):
    """This producer is none any more: another one has its transactional id, or nobody knows how its transaction ended."""


class Terms(msgspec.Struct, frozen=True):
    """How a transactional producer was configured."""

    transactional_id: str
    timeout_ms: int = 10_000
    fence: Fence = msgspec.field(default_factory=Fence)  # of all lives that have these terms


async def awake() -> None:
    """Who never stalls."""


class Transactor(Producer):
    def __init__(
        self,
        program: Program,
        manner: Manner,
        terms: Terms,
        awake: Callable[[], Awaitable[None]] = awake,
        view: View | None = None,
    ) -> None:
        assert manner.is_idempotent
        assert manner.acks == -1
        era = program.era.with_floor(**FLOORS).with_ceiling(**CLIENTS_UNTIL)
        self.is_second = all(era.wants(name) >= version for name, version in SECOND.items())
        program.era = era if self.is_second else era.with_ceiling(**{name: version - 1 for name, version in SECOND.items()})
        super().__init__(program, manner)
        self.view = view or self.view
        self.terms = terms
        self.transactional_id = terms.transactional_id
        self.awake = awake
        self.ended = {"committed": 0, "aborted": 0}
        self._is_begun_there = False  # the coordinator knows of the transaction
        self._added: dict[Place, bool] = {}  # V1: partitions that were taken into it
        self._failed_before = 0  # sends, when it began
        self._fenced = ""  # why its life is over
        self._adding = asyncio.Lock()

    # -- its life

    async def initialize(self) -> None:
        """Ends whatever a former life has left open."""
        await self._initialize(-1, -1)

    async def renew(self) -> None:
        """Goes on in another epoch, where its era can ask for one."""
        assert self.transaction is None
        if self.program.era.wants("InitProducerId") >= BUMP_SINCE:
            await self._initialize(self.producer_id, self.epoch)

    async def _initialize(self, producer_id: int, epoch: int) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.terms.transactional_id,
            transaction_timeout_ms=self.terms.timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer = await self._resolve(request, InitProducerIdResponse)
        self._take_end(ErrorCode(answer.error_code), "InitProducerId")
        self._take_identity(answer)

    def _take_identity(self, answer: InitProducerIdResponse | EndTxnResponse) -> None:
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.terms.fence.told(self.program.name, (self.producer_id, self.epoch))

    @property
    def is_overtaken(self) -> bool:
        return self.terms.fence.is_past(self.program.name, (self.producer_id, self.epoch))

    # -- a transaction

    async def begin(self) -> None:
        assert self.producer_id >= 0
        assert self.transaction is None
        program = self.program
        self.transaction = program.history.next_id()
        self._is_begun_there, self._failed_before = False, self._failures
        self._added.clear()
        program.tell(
            history.TransactionBegun(program.at_ms, program.name, self.transaction, self.terms.transactional_id, program.name)
        )

    async def commit_offsets(self, who: Identity, offsets: dict[Place, Committed], seconds_max: float | None = None) -> None:
        """Until they are acknowledged; Abortable when they never will be, or are not in time."""
        assert self.transaction is not None
        end_s = None if seconds_max is None else self.program.loop.time() + seconds_max
        if not self.is_second:
            await self._add_offsets(who.group)
        self._is_begun_there = True
        author = Author(self.terms.transactional_id, self.producer_id, self.epoch, self.transaction)
        back_off = BackOff(self.program)
        while True:
            await self.awake()
            is_late = self.is_overtaken
            code = await commit(self.program, self.view, author, who, offsets)
            assert code or not is_late, f"offsets of {who.group} are taken from {self._zombie}"
            if not code.retriable or (end_s is not None and self.program.loop.time() >= end_s):
                break
            await self._wait(back_off)
        if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            raise Fenced(f"TxnOffsetCommit: {code.name}")
        if code:
            raise Abortable(code, f"offsets of {who.group}")

    async def commit_late(self, who: Identity, offsets: dict[Place, Committed], *, is_added: bool) -> None:
        """A commit of an earlier generation, or transaction, comes now: it has to be refused."""
        assert self.transaction is not None
        if is_added:
            if not self.is_second:
                await self._add_offsets(who.group)
            self._is_begun_there = True
        author = Author(self.terms.transactional_id, self.producer_id, self.epoch, self.transaction)
        code = await commit(self.program, self.view, author, who, offsets)
        how = f"of generation {who.generation}" if is_added else "that were not added to the transaction"
        assert code, f"offsets {how} are taken for {who.group} from {self.program.name}"

    async def flush(self) -> None:
        """Until all that was sent is acknowledged; Abortable when something never will be."""
        while self.unfinished and not self.has_failed:  # noqa: ASYNC110 - of many lanes
            await asyncio.sleep(LOOK_SECONDS)
        if self._fenced:
            raise Fenced(self._fenced)
        if self.has_failed:
            raise Abortable(ErrorCode.NETWORK_EXCEPTION, "a batch was not delivered")

    async def commit(self) -> None:
        await self.flush()
        await self.awake()
        self._tell_ending(is_commit=True)
        try:
            await self._end(is_commit=True)
        except Fenced:
            self._tell_ended("unknown")
            raise
        self._tell_ended("committed")

    async def abort(self) -> None:
        await self._abandon()
        self._tell_ending(is_commit=False)
        if self._fenced:
            raise Fenced(self._fenced)
        await self._end(is_commit=False)
        if self._is_numbered_anew:
            await self._begin_epoch()
        self._tell_ended("aborted")

    @property
    def has_failed(self) -> bool:
        return bool(self._fenced) or self._failures > self._failed_before or self._is_numbered_anew

    @property
    def _is_numbered_anew(self) -> bool:
        """Sequences of a partition have to begin again, which takes another epoch."""
        return any(lane.must_bump or lane.is_bumped for lane in self.lanes.values())

    @property
    def _failures(self) -> int:
        return sum(lane.outcomes["refused"] + lane.outcomes["unknown"] for lane in self.lanes.values())

    # -- its end

    async def _abandon(self) -> None:
        """Sends nothing any more, and waits for what is under way."""
        while self.unfinished:
            for lane in self.lanes.values():
                for batch in [each for each in lane.batches if not each.is_under_way]:
                    lane.end(batch, "unknown" if batch.is_unclear else "refused", "the transaction is aborted")
            if self.unfinished:
                await asyncio.sleep(LOOK_SECONDS)

    async def _end(self, *, is_commit: bool) -> None:
        if not self._is_begun_there:
            return
        request = EndTxnRequest(
            transactional_id=self.terms.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        answer = await self._resolve(request, EndTxnResponse)
        self._take_end(ErrorCode(answer.error_code), "EndTxn")
        if self.is_second:
            assert (answer.producer_id, answer.producer_epoch) > (self.producer_id, self.epoch), "every end brings a new epoch"
            self._take_identity(answer)

    async def _begin_epoch(self) -> None:
        """After a batch has failed sequences begin anew."""
        if not self.is_second:
            if self.program.era.wants("InitProducerId") < BUMP_SINCE:
                raise Fenced("its epoch cannot be bumped in this era")
            await self._initialize(self.producer_id, self.epoch)
        for lane in self.lanes.values():
            lane.must_bump = lane.is_bumped = False

    def _take_end(self, code: ErrorCode, what: str) -> None:
        if code:
            raise Fenced(f"{what}: {code.name}")

    def _tell_ending(self, *, is_commit: bool) -> None:
        program = self.program
        assert self.transaction is not None
        program.tell(history.TransactionEnding(program.at_ms, program.name, self.transaction, is_commit))

    def _tell_ended(self, outcome: str) -> None:
        program, transaction = self.program, self.transaction
        assert transaction is not None
        self.transaction = None
        if outcome in self.ended:
            self.ended[outcome] += 1
        program.tell(history.TransactionEnded(program.at_ms, program.name, transaction, outcome))  # type: ignore[arg-type]

    # -- before a batch is sent

    async def _prepare(self, place: Place) -> None:
        await self.awake()
        if self.has_failed or self.transaction is None:
            raise Lost("the transaction is over")
        if self.is_second:
            self._is_begun_there = True
            return
        async with self._adding:
            if place not in self._added:
                await self._add_partition(place)
                self._added[place] = self._is_begun_there = True

    async def _add_partition(self, place: Place) -> None:
        kind = AddPartitionsToTxnRequest
        request = kind(
            v3_and_below_transactional_id=self.terms.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=place.topic, partitions=[place.index])],
        )
        is_late = self.is_overtaken
        answer = await self._ask(request, AddPartitionsToTxnResponse)
        (told,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        code = ErrorCode(told.partition_error_code)
        assert code or not is_late, f"AddPartitionsToTxn of {self._zombie} is done"
        if code in ELSEWHERE:
            self.view.coordinators.pop(self.terms.transactional_id, None)
        if code in OVER:
            self._fenced = f"AddPartitionsToTxn: {code.name}"
        if code:
            raise Lost(f"AddPartitionsToTxn of {place.topic}-{place.index}: {code.name}")

    async def _add_offsets(self, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.terms.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        answer = await self._resolve(request, AddOffsetsToTxnResponse)
        self._take_end(ErrorCode(answer.error_code), "AddOffsetsToTxn")

    @property
    def _zombie(self) -> str:
        fence = self.terms.fence
        return f"{self.program.name} in epoch {self.epoch}, where {fence.owner} was told {fence.newest[1]}"

    def _check_answer(self, batch: Batch, sent: Sent, told: ProduceResponse.PartitionProduceResponse) -> None:
        is_taken, message = told.error_code == ErrorCode.NONE, told.error_message
        assert not (is_taken and sent.is_late), f"a batch of epoch {batch.epoch} is taken from {self._zombie}"
        is_early = self.is_second and sent.seconds < PATIENCE_SECONDS and CONCURRENT in (message or "")
        assert not is_early, f"{self.program.name} is told after {sent.seconds * 1000:.0f} ms: {message}"

    # -- questions for its coordinator

    async def _resolve(self, request: Message, response: type[Told]) -> Told:
        """Asks until there is an answer that no repetition changes."""
        back_off = BackOff(self.program)
        while True:
            is_late = self.producer_id >= 0 and self.is_overtaken
            try:
                answer = await self._ask(request, response)
            except Lost:
                await self._wait(back_off)
                continue
            code = ErrorCode(answer.error_code)
            is_abort = isinstance(request, EndTxnRequest) and not request.committed  # of nothing, perhaps, and done by another
            assert code or not is_late or is_abort, f"{type(request).__name__} of {self._zombie} is done"
            if code in ELSEWHERE:
                self.view.coordinators.pop(self.terms.transactional_id, None)
            if not code.retriable:
                return answer
            await self._wait(back_off)

    async def _ask(self, request: Message, response: type[Answer]) -> Answer:
        await self.awake()
        node = await self.view.coordinator(self.terms.transactional_id, OF_TRANSACTIONS)
        try:
            return await self.view.ask(node, PURPOSE, request, response)
        except Lost:
            self.view.coordinators.pop(self.terms.transactional_id, None)
            raise

    async def _wait(self, back_off: "BackOff") -> None:
        await back_off.wait()
        if back_off.failed > 1:
            with suppress(Lost):
                await self.view.refresh()


class BackOff:
    """For a longer while after every failure."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.failed = 0

    async def wait(self) -> None:
        seconds = min(BACK_OFF_SECONDS * 2 ** min(self.failed, DOUBLINGS_MAX), BACK_OFF_SECONDS_MAX)
        self.failed += 1
        await asyncio.sleep(seconds * self.program.chance.uniform(0.5, 1.5))
