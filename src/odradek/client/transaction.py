"""The transactions of one producer: what it writes to several partitions, and offsets of groups, become visible together.

    await transactions.begin() -> partitions are added as batches leave -> await transactions.commit(), or abort()

With `transaction.version` 2 (KIP-890) a broker adds a partition when its first batch comes, and every end gives the next epoch;
before that, partitions are added here, and an epoch stays until something has failed.

Invariants
 1. A transaction of which anything failed is aborted, whatever the program wants.
 2. Who was fenced does nothing more.
 3. What waits for room when its transaction ends is in no other one; while it ends, nothing more is taken, and what is under
    way is waited for, offsets too.
 4. Nobody ends a transaction that was joined but who has begun it; and the next one has another epoch, so that what others
    count in their partitions begins anew.
 5. After an end whose outcome is not known, the next transaction begins with a new epoch: whatever was decided is decided then.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, Final

from odradek.client.cluster import LOST_COORDINATOR, TRANSACTION, Cluster, forget_failure
from odradek.client.errors import Fenced, InvalidOption, KafkaError, Refused, TransactionFailed, known_code, refused
from odradek.client.identity import NAMES_UNTIL
from odradek.client.records import Committed, GroupMetadata, SharedTransaction, TopicPartition
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
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

FEATURE: Final = "transaction.version"
IMPLICIT_SINCE: Final = 2  # of the feature: partitions are added by their first batch
EXPLICIT_PRODUCE_MAX, EXPLICIT_END_MAX, EXPLICIT_COMMIT_MAX = 11, 4, 4  # versions of requests that say the opposite
IMPLICIT_COMMIT_MAX: Final = 5  # later ones know topics by id alone
PARTITIONS_VERSION: Final = 3  # of AddPartitionsToTxn: later ones are the brokers' own
GROUP: Final = 0
FATAL: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    }
)


class State(Enum):
    NEW = auto()  # no id yet, or one whose last transaction may have had any end
    READY = auto()
    OPEN = auto()
    FAILED = auto()  # is to be aborted
    FENCED = auto()


class Transactions:
    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        timeout_ms: int,
        wake: Callable[[], None],
        give_up: Callable[[KafkaError], None],
    ) -> None:
        """`give_up` is told when nothing more of the transaction is to be sent."""
        self.cluster = cluster
        self.give_up = give_up
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.wake = wake
        self.state = State.NEW
        self.error: KafkaError | None = None  # of a transaction that failed, or why nothing goes on
        self.producer_id = self.epoch = -1
        self.number = 0  # of transactions, so far
        self.is_implicit = False
        self.has_begun = False  # a broker may know of it
        self.has_failed_batch = False
        self.is_shared = False  # others write in it, with numbers of their own
        self.is_joined = False  # it is another's
        self.is_ending = False  # what was sent is waited for
        self.added: set[TopicPartition] = set()
        self.groups: set[str] = set()
        self._sending_offsets: set[asyncio.Future[None]] = set()
        self._to_add: dict[TopicPartition, None] = {}
        self._adding: asyncio.Task[None] | None = None

    # -- what the sender asks

    @property
    def owner(self) -> tuple[int, int] | None:
        return (self.producer_id, self.epoch) if self.state is State.OPEN else None

    @property
    def produce_version_max(self) -> int:
        return NAMES_UNTIL if self.is_implicit else EXPLICIT_PRODUCE_MAX

    def admits(self, place: TopicPartition) -> bool:
        if self.is_implicit:
            self.has_begun = True
            return True
        if place in self.added:
            return True
        self._to_add[place] = None
        if self._adding is None:
            self._adding = self.cluster.loop.create_task(self._add())
            self._adding.add_done_callback(forget_failure)
        return False

    def next_epoch(self) -> tuple[int, int] | None:
        return None  # that takes an abort

    def failed(self, place: TopicPartition, error: KafkaError) -> None:
        del place
        self.has_failed_batch = True
        self._fail(error)

    def left_out(self, number: int, error: KafkaError) -> None:
        """A record, or offsets, could not be taken into a transaction, which may have ended meanwhile."""
        if number == self.number:
            self._fail(error)

    def judged(self, error: KafkaError) -> KafkaError:
        """Brokers refuse the epoch of who was fenced, and, where every transaction has another one, of who took too long as well:
        the transaction has failed, and which of the two it is the coordinator says, when it is asked to abort."""
        is_open = self.is_implicit and self.state in (State.OPEN, State.FAILED)
        if not is_open or error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
            return error
        took_long = f"it took longer than transaction_timeout_ms={self.timeout_ms}"
        reason = f"{error}; either {took_long}, or somebody else has the id, which its abort will tell"
        failed = TransactionFailed(
            f"the transaction of {self.transactional_id} is over: {reason}", transactional_id=self.transactional_id
        )
        failed.__cause__ = error
        return failed

    def _fail(self, error: KafkaError) -> None:
        if is_final(error):
            self.state, self.error = State.FENCED, error
        elif self.state in (State.OPEN, State.FAILED):
            self.error = self.error or error
            self.state = State.FAILED
        self.cluster.loop.call_soon(self._give_up)

    def _give_up(self) -> None:
        """What has not been sent never will be: nobody need wait for it."""
        if self.state in (State.FAILED, State.FENCED):
            self.give_up(self.failure())

    def check(self) -> int:
        """Raises when no record may be sent now; gives which transaction it would be in."""
        if self.state is State.FENCED:
            assert self.error is not None
            raise self.error
        if self.state is State.FAILED:
            raise self.failure()
        if self.state is not State.OPEN:
            raise InvalidOption("a producer with a transactional_id sends within `async with producer.transaction():` only")
        if self.is_ending:
            raise InvalidOption(f"the transaction of {self.transactional_id} is being ended: nothing more can be sent in it")
        return self.number

    def check_same(self, number: int) -> None:
        """Raises when a record that has waited may not be sent in the transaction in which it was given."""
        if self.check() != number:
            failed = f"the transaction of {self.transactional_id} has ended before the record was taken"
            raise TransactionFailed(failed, transactional_id=self.transactional_id)

    def failure(self) -> TransactionFailed:
        failed = TransactionFailed(
            f"the transaction of {self.transactional_id} has to be aborted: {self.error}", transactional_id=self.transactional_id
        )
        failed.__cause__ = self.error
        return failed

    def ended_by_others(self) -> TransactionFailed:
        """What cannot be committed, for it is over: nobody but us commits it."""
        name = self.transactional_id
        reason = f"most likely it took longer than transaction_timeout_ms={self.timeout_ms}"
        return TransactionFailed(f"the transaction of {name} has been aborted by the cluster: {reason}", transactional_id=name)

    # -- its life

    async def begin(self) -> None:
        if self.state is State.FENCED:
            self.check()
        if self.state is State.NEW:
            await self._init()
        if self.state is not State.READY:
            raise InvalidOption("a transaction is open already: a producer has one at a time")
        self._open()

    def _open(self) -> None:
        self.state, self.error = State.OPEN, None
        self.number += 1
        self.has_begun = self.has_failed_batch = self.is_shared = self.is_joined = False
        self.added.clear()
        self.groups.clear()

    def share(self) -> SharedTransaction:
        self.check()
        self.has_begun = self.is_shared = True
        return SharedTransaction(self.transactional_id, self.producer_id, self.epoch, self.is_implicit)

    def join(self, shared: SharedTransaction) -> None:
        if shared.transactional_id != self.transactional_id:
            raise InvalidOption(f"the transaction is of {shared.transactional_id}, the producer is {self.transactional_id}")
        if self.state in (State.OPEN, State.FAILED) and not self.is_joined:
            raise InvalidOption("a transaction is open already: a producer has one at a time")
        _, self.producer_id, self.epoch, self.is_implicit = shared
        self._open()
        self.is_joined = True

    async def _init(self) -> None:
        """Gets an id and an epoch, and fences whoever had them: its open transaction is aborted."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
        )

        async def attempt() -> None:
            answer = await self._ask(request, InitProducerIdResponse)
            self._check(answer.error_code)
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            node = await self.cluster.coordinator(TRANSACTION, self.transactional_id)
            connection = await self.cluster.connection(node, "coordinator")
            self.is_implicit = connection.features.get(FEATURE, 0) >= IMPLICIT_SINCE
            self.state = State.READY

        await self._insist("to begin as a transactional producer", attempt)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Takes nothing more, as long as it is being ended: what is taken then is not waited for."""
        self.is_ending = True
        try:
            yield
        finally:
            self.is_ending = False

    async def end(self, *, is_commit: bool) -> None:
        """Everything that was sent has been answered. Of a transaction that failed, only an abort."""
        if self.is_joined:
            raise InvalidOption("a transaction is ended by the producer that has begun it")
        if not is_commit:
            self._fail(TransactionFailed("it is being aborted"))  # offsets that are under way are not tried again
        under_way = [*self._sending_offsets, *([self._adding] if self._adding is not None else [])]
        if under_way:
            await asyncio.wait(under_way)
        if self.state not in (State.OPEN, State.FAILED):
            self.check()
        if is_commit and self.state is State.FAILED:
            raise self.failure()
        if self.has_begun:
            await self._end(is_commit=is_commit)
        needs_epoch = not self.is_implicit and (self.has_failed_batch or self.is_shared)
        self.state = State.NEW if needs_epoch else State.READY

    async def _end(self, *, is_commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        newest = None if self.is_implicit else EXPLICIT_END_MAX

        async def attempt() -> EndTxnResponse:
            answer: EndTxnResponse = await self._ask(request, EndTxnResponse, newest)
            self._check(answer.error_code)
            return answer

        self.state = State.NEW  # whatever happens now, unless it is known how it ended
        try:
            answer: EndTxnResponse = await self._insist("to commit" if is_commit else "to abort", attempt)
        except Refused as error:
            if error.code is not ErrorCode.INVALID_TXN_STATE or not (is_commit or self.is_shared or not self.is_implicit):
                raise
            if is_commit:
                raise self.ended_by_others() from error
            return  # nobody has written anything, or nothing could be added, and it has not begun
        if self.is_implicit and answer.producer_id >= 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    # -- what is in it

    async def _add(self) -> None:
        """Partitions, before their first batch leaves."""
        try:
            while self._to_add:
                places, self._to_add = [*self._to_add], {}
                await self._insist(f"to add {places[0]} to the transaction", lambda: self._add_some(places))  # noqa: B023
                self.added.update(places)
                self.wake()
        except KafkaError as error:
            self._fail(error)
            self.wake()
        finally:
            self._adding = None

    async def _add_some(self, places: list[TopicPartition]) -> None:
        self.has_begun = True
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[kind(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        answer = await self._ask(request, AddPartitionsToTxnResponse, PARTITIONS_VERSION)
        codes = [
            each.partition_error_code for topic in answer.results_by_topic_v3_and_below for each in topic.results_by_partition
        ]
        for code in sorted(codes, key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED):
            self._check(code)

    async def send_offsets(self, offsets: Mapping[TopicPartition, Committed], group: GroupMetadata) -> None:
        number = self.check()
        if not offsets:
            return  # or a transaction with nothing in it would begin
        self.has_begun = True
        ended = self.cluster.loop.create_future()
        self._sending_offsets.add(ended)
        try:
            if not self.is_implicit and group.group not in self.groups:
                await self._insist("to add a group to the transaction", lambda: self._add_group(group.group))
                self.groups.add(group.group)
            await self._insist("to send offsets in the transaction", lambda: self._commit_offsets(offsets, group))
        except KafkaError as error:
            self._fail(error)
            raise
        except asyncio.CancelledError:
            unknown = f"offsets of group {group.group} may be in it or not, who waited for that was cancelled"
            self.left_out(number, TransactionFailed(unknown, group=group.group))
            raise
        finally:
            self._sending_offsets.discard(ended)
            ended.set_result(None)

    def _check_open(self) -> None:
        """Raises when what is tried again is in vain."""
        if self.state is not State.OPEN:
            raise self.failure()

    async def _add_group(self, group: str) -> None:
        self._check_open()
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
        )
        answer = await self._ask(request, AddOffsetsToTxnResponse)
        self._check(answer.error_code)

    async def _commit_offsets(self, offsets: Mapping[TopicPartition, Committed], group: GroupMetadata) -> None:
        self._check_open()
        kind = TxnOffsetCommitRequest
        topics: dict[str, list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]] = {}
        for place, committed in offsets.items():
            entry = kind.TxnOffsetCommitRequestPartition(
                partition_index=place.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
            topics.setdefault(place.topic, []).append(entry)
        request = kind(
            transactional_id=self.transactional_id,
            group_id=group.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id_or_member_epoch=group.generation,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[kind.TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        newest = IMPLICIT_COMMIT_MAX if self.is_implicit else EXPLICIT_COMMIT_MAX
        answer = await self.cluster.ask_coordinator(GROUP, group.group, request, TxnOffsetCommitResponse, newest=newest)
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    if known_code(partition.error_code) in LOST_COORDINATOR:
                        self.cluster.forget_coordinator(GROUP, group.group)
                    raise refused(partition.error_code, topic=topic.name, partition=partition.partition_index, group=group.group)

    # -- asking

    async def _ask(self, request: Message, response: type[Any], newest: int | None = None) -> Any:
        return await self.cluster.ask_coordinator(TRANSACTION, self.transactional_id, request, response, newest=newest)

    def _check(self, code: int) -> None:
        if code:
            if known_code(code) in LOST_COORDINATOR:
                self.cluster.forget_coordinator(TRANSACTION, self.transactional_id)
            raise refused(code, transactional_id=self.transactional_id)

    async def _insist(self, what: str, attempt: Callable[[], Any]) -> Any:
        try:
            return await self.cluster.insist(f"{what} ({self.transactional_id})", attempt)
        except KafkaError as error:
            judged = self.judged(error)
            if is_final(judged):
                self.state, self.error = State.FENCED, judged
            if judged is error:
                raise
            raise judged from error

    async def close(self) -> None:
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.wait([self._adding])


def is_final(error: KafkaError) -> bool:
    """Whether the producer is at its end. A consumer whose offsets it sends may be, and the producer is not."""
    return (isinstance(error, Fenced) and error.code is not ErrorCode.FENCED_INSTANCE_ID) or error.code in FATAL
