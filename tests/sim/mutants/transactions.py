"""The rules of transactions, and how to do without each: of producers and their epochs, of partitions that are taken into a
transaction (node/enlisting.py, api), of its end and its markers (core/transactions, node/markers.py, log/producer_state.py), of
offsets that are committed with it (core/groups), and of what readers see of it (log).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from odradek.core.coordinator.events import Effect, Now, Request, Turn, Write
from odradek.core.groups import offset_requests
from odradek.core.groups.offsets import OffsetStore
from odradek.core.transactions import coordinator as coordinating
from odradek.core.transactions import requests
from odradek.core.transactions.coordinator import Entry, TransactionCoordinator
from odradek.core.transactions.events import MarkersWritten
from odradek.core.transactions.transaction import EPOCH_BUMPED_SINCE, PREPARED, State, TopicIndex, Transaction
from odradek.log import loading
from odradek.log import replay as replaying
from odradek.log.producer_state import CompletedTransaction, ProducerRefused, ProducerState
from odradek.log.segment import Segment
from odradek.log.transaction_index import AbortedTransaction, TransactionIndex
from odradek.node.coordinators import Shard
from odradek.node.enlisting import Enlisting, by_topic, errors_of
from odradek.node.groups import CONSUMER_OFFSETS, Groups
from odradek.node.transactions import TransactionShard
from odradek.wire.batch import NO_PRODUCER_ID, BatchHeader
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import AddPartitionsToTxnRequest, InitProducerIdRequest, TransactionLogValue
from odradek.wire.varint import Buffer
from tests.sim.mutants.mutant import Mutant, Patch

# -- partitions of a transaction


def enlisting(patch: Patch, is_left_out: Callable[[TopicIndex, bool], bool]) -> None:
    """Some partitions are taken for being in the transaction, and nobody is asked."""
    known = Enlisting.enlist

    async def enlist(
        asking: Enlisting, name: str, producer_id: int, epoch: int, partitions: Sequence[TopicIndex], *, is_adding: bool
    ) -> Mapping[TopicIndex, ErrorCode]:
        asked = [place for place in partitions if not is_left_out(place, is_adding)]
        found = await known(asking, name, producer_id, epoch, asked, is_adding=is_adding) if asked else {}
        return dict.fromkeys(partitions, ErrorCode.NONE) | dict(found)

    patch.setattr(Enlisting, "enlist", enlist)


def is_of_groups(place: TopicIndex) -> bool:
    return place[0] == CONSUMER_OFFSETS


def partitions_added(patch: Patch) -> None:
    enlisting(patch, lambda place, is_adding: is_adding and not is_of_groups(place))


def partitions_verified(patch: Patch) -> None:
    enlisting(patch, lambda place, is_adding: not is_adding and not is_of_groups(place))


def offsets_added(patch: Patch) -> None:
    enlisting(patch, lambda place, is_adding: is_adding and is_of_groups(place))


def offsets_verified(patch: Patch) -> None:
    enlisting(patch, lambda place, is_adding: not is_adding and is_of_groups(place))


def concurrent_transactions(patch: Patch) -> None:
    """Whoever begins while the last end is under way is told so at once: neither coordinators nor leaders wait for it."""

    def hold(_: TransactionCoordinator, __: str, request: Request, turn: Turn) -> None:
        requests.refuse(request, ErrorCode.CONCURRENT_TRANSACTIONS, turn)

    async def enlist(
        asking: Enlisting, name: str, producer_id: int, epoch: int, partitions: Sequence[TopicIndex], *, is_adding: bool
    ) -> Mapping[TopicIndex, ErrorCode]:
        asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=not is_adding,
            topics=by_topic(partitions),
        )
        return errors_of(await asking._ask(asked), partitions)

    patch.setattr(Enlisting, "enlist", enlist)
    patch.setattr(TransactionCoordinator, "hold", hold)


# -- epochs of producers


def epoch_of_every_end(patch: Patch) -> None:
    """The next transaction has the epoch of the last."""
    known = requests.end_transaction

    def end_transaction(*given: Any) -> None:
        bump, requests.bumped = requests.bumped, lambda epoch: epoch  # type: ignore[attr-defined]
        try:
            known(*given)
        finally:
            requests.bumped = bump  # type: ignore[attr-defined]

    patch.setattr(requests, "end_transaction", end_transaction)


def epoch_of_a_timeout(patch: Patch) -> None:
    """A transaction that is ended for its producer is so in the producer's epoch."""
    patch.setattr(coordinating, "bumped", lambda epoch: epoch)


def zombie_that_begins(patch: Patch) -> None:
    """InitProducerId gives the next epoch to whoever asks."""
    known = requests.next_epoch

    def next_epoch(
        coordinator: TransactionCoordinator,
        request: Request,
        message: InitProducerIdRequest,
        entry: Entry,
        turn: Turn,
        producer_id: int,
    ) -> None:
        if message.producer_id != NO_PRODUCER_ID:
            message.producer_epoch = entry.transaction.epoch
        known(coordinator, request, message, entry, turn, producer_id)

    patch.setattr(requests, "next_epoch", next_epoch)


def zombie_that_ends(patch: Patch) -> None:
    """EndTxn ends the transaction that is open, whoever asks."""
    patch.setattr(requests, "is_valid_epoch", lambda *_, **__: True)


def adding_by_zombies(patch: Patch, is_let_in: Callable[[TopicIndex], bool]) -> None:
    known = requests.check_producer

    def check_producer(
        coordinator: TransactionCoordinator,
        entry: Entry | None,
        asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction,
    ) -> ErrorCode:
        if entry is not None and all(is_let_in((topic.name, index)) for topic in asked.topics for index in topic.partitions):
            asked = replace_epoch(asked, entry.transaction.epoch)
        return known(coordinator, entry, asked)

    patch.setattr(requests, "check_producer", check_producer)


def replace_epoch(
    asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction, epoch: int
) -> AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=epoch,
        verify_only=asked.verify_only,
        topics=asked.topics,
    )


def zombie_that_adds_partitions(patch: Patch) -> None:
    adding_by_zombies(patch, lambda place: not is_of_groups(place))


def zombie_that_adds_offsets(patch: Patch) -> None:
    adding_by_zombies(patch, is_of_groups)


def zombie_that_produces(patch: Patch) -> None:
    """A partition takes batches of epochs that are over."""
    known, verify = ProducerState.check, ProducerState.verify

    def is_old(state: ProducerState, producer_id: int, epoch: int) -> bool:
        producer = state.producers.get(producer_id)
        return producer is not None and epoch < producer.epoch

    def check(state: ProducerState, header: BatchHeader, verification: object = None) -> Any:
        is_late = is_old(state, header.producer_id, header.producer_epoch)
        return None if is_late else known(state, header, verification)

    def begin(state: ProducerState, producer_id: int, sequence: int, epoch: int, **how: Any) -> Any:
        return None if is_old(state, producer_id, epoch) else verify(state, producer_id, sequence, epoch, **how)

    patch.setattr(ProducerState, "check", check)
    patch.setattr(ProducerState, "verify", begin)


# -- the end of a transaction


def timed_out_transactions(patch: Patch) -> None:
    """A transaction is open until somebody ends it."""
    patch.setattr(TransactionCoordinator, "_time_out", lambda *_: None)


def ahead_of_the_commit(patch: Patch, do: Callable[[TransactionShard, Write], list[Effect]]) -> None:
    """When a record is appended, something is done that has to wait for its commit."""
    known = TransactionShard._write

    def write(shard: TransactionShard, written: Write) -> None:
        end = shard.coordinator.log_end
        known(shard, written)
        if shard.coordinator.log_end > end:
            shard._do(do(shard, written))

    patch.setattr(TransactionShard, "_write", write)


def markers_of_what_is_committed(patch: Patch) -> None:
    """Markers are sent as soon as the decision is written."""

    def send(shard: TransactionShard, _: Write) -> list[Effect]:
        coordinator = shard.coordinator
        turn = coordinator._turn(shard.now())
        while coordinator.decided:
            name = coordinator.decided.popleft()[1]
            coordinator._begin_markers(name, coordinator.entries[name].transaction, turn)
        return turn.effects

    ahead_of_the_commit(patch, send)


def answers_of_what_is_committed(patch: Patch) -> None:
    """Whoever asks is answered as soon as it is written."""

    def answer(shard: TransactionShard, written: Write) -> list[Effect]:
        coordinator = shard.coordinator
        turn = coordinator._turn(shard.now())
        if coordinator.writes and coordinator.writes[-1].sequel is written.sequel:
            coordinator.writes.pop().sequel.committed(turn)
        return turn.effects

    ahead_of_the_commit(patch, answer)


def all_partitions_marked(patch: Patch) -> None:
    """A transaction is complete when one of its partitions has the marker."""
    known = TransactionCoordinator._written

    def written(coordinator: TransactionCoordinator, event: MarkersWritten, turn: Turn) -> None:
        known(coordinator, replace(event, partitions=event.markers.partitions), turn)

    patch.setattr(TransactionCoordinator, "_written", written)


def decision_of_the_last_coordinator(patch: Patch) -> None:
    """A coordinator that finds a transaction about to be committed aborts it."""
    known = TransactionCoordinator.loaded

    def loaded(coordinator: TransactionCoordinator, now: Now) -> list[Effect]:
        for entry in coordinator.entries.values():
            if entry.transaction.state is State.PREPARE_COMMIT:
                entry.transaction = replace(entry.transaction, state=State.PREPARE_ABORT)
        return known(coordinator, now)

    patch.setattr(TransactionCoordinator, "loaded", loaded)


def decision_that_stands(patch: Patch) -> None:
    """A transaction that is about to be committed is aborted for whoever begins with its transactional id."""
    known = requests.check_init

    def check_init(coordinator: TransactionCoordinator, entry: Entry, message: InitProducerIdRequest) -> ErrorCode:
        if not coordinator.is_pending(entry) and entry.transaction.state is State.PREPARE_COMMIT:
            entry.transaction = replace(entry.transaction, state=State.ONGOING)
        return known(coordinator, entry, message)

    patch.setattr(requests, "check_init", check_init)


# -- markers


def epoch_of_markers(patch: Patch) -> None:
    """A marker has the epoch in which its transaction was written."""
    known = TransactionCoordinator._begin_markers

    def begin_markers(coordinator: TransactionCoordinator, name: str, transaction: Transaction, turn: Turn) -> None:
        if transaction.version >= EPOCH_BUMPED_SINCE:
            transaction = replace(transaction, epoch=transaction.epoch - 1)
        known(coordinator, name, transaction, turn)

    patch.setattr(TransactionCoordinator, "_begin_markers", begin_markers)


def refusing_markers(patch: Patch, is_taken: Callable[[ErrorCode, int], bool]) -> None:
    known = ProducerState.check_marker

    def check_marker(state: ProducerState, header: BatchHeader, batch: Buffer, transaction_version: int = 0) -> bool:
        try:
            return known(state, header, batch, transaction_version)
        except ProducerRefused as refused:
            if not is_taken(refused.code, transaction_version):
                raise
            return False

    patch.setattr(ProducerState, "check_marker", check_marker)


def marker_of_an_old_epoch(patch: Patch) -> None:
    refusing_markers(patch, lambda code, version: code is ErrorCode.INVALID_PRODUCER_EPOCH and version >= EPOCH_BUMPED_SINCE)


def marker_of_an_old_coordinator(patch: Patch) -> None:
    refusing_markers(patch, lambda code, _: code is ErrorCode.TRANSACTION_COORDINATOR_FENCED)


def one_marker(patch: Patch) -> None:
    """A marker that comes again is written again."""
    known = ProducerState.check_marker
    patch.setattr(ProducerState, "check_marker", lambda *given: known(*given) and False)


# -- offsets of a group


def checking_commits(patch: Patch, taken: ErrorCode) -> None:
    """Commits in transactions that would be refused for this are not."""
    known = offset_requests.check_transactional_commit

    def check(*given: Any) -> ErrorCode:
        error = known(*given)
        return ErrorCode.NONE if error is taken else error

    patch.setattr(offset_requests, "check_transactional_commit", check)


def member_of_the_group(patch: Patch) -> None:
    checking_commits(patch, ErrorCode.UNKNOWN_MEMBER_ID)


def generation_of_the_group(patch: Patch) -> None:
    checking_commits(patch, ErrorCode.ILLEGAL_GENERATION)


def instance_of_the_group(patch: Patch) -> None:
    checking_commits(patch, ErrorCode.FENCED_INSTANCE_ID)


def unstable_offsets(patch: Patch) -> None:
    """Whoever asks for stable offsets is told those from before the open transactions."""
    patch.setattr(OffsetStore, "is_open", lambda *_: False)


def offsets_wait_for_the_marker(patch: Patch) -> None:
    """The offsets of a transaction count at once."""
    known = OffsetStore.replay

    def replay(store: OffsetStore, offset: int, _: int, *rest: Any) -> None:
        known(store, offset, NO_PRODUCER_ID, *rest)

    patch.setattr(OffsetStore, "replay", replay)


def offsets_of_aborted_transactions(patch: Patch) -> None:
    known = OffsetStore.replay_end_of_transaction

    def replay_end(store: OffsetStore, offset: int, producer_id: int, is_commit: bool) -> None:
        known(store, offset, producer_id, is_commit or True)

    patch.setattr(OffsetStore, "replay_end_of_transaction", replay_end)


def offsets_of_committed_transactions(patch: Patch) -> None:
    known = OffsetStore.replay_end_of_transaction

    def replay_end(store: OffsetStore, offset: int, producer_id: int, is_commit: bool) -> None:
        known(store, offset, producer_id, is_commit and False)

    patch.setattr(OffsetStore, "replay_end_of_transaction", replay_end)


# -- what a coordinator knows after a start


def decisions_after_a_start(patch: Patch) -> None:
    """A coordinator that reads its log passes over decisions."""
    known = TransactionCoordinator._replay

    def replay(coordinator: TransactionCoordinator, offset: int, key: Any, value: Any, producer_id: int) -> None:
        is_decision = isinstance(value, TransactionLogValue) and value.transaction_status in PREPARED
        if not (is_decision and is_loading(coordinator)):
            known(coordinator, offset, key, value, producer_id)

    loading_now: list[TransactionCoordinator] = []

    def is_loading(coordinator: TransactionCoordinator) -> bool:
        return any(each is coordinator for each in loading_now)

    read = Shard._replay

    def replay_batch(shard: Shard[Any], *given: Any) -> int:
        loading_now.append(shard.coordinator)
        try:
            return read(shard, *given)
        finally:
            loading_now.clear()

    patch.setattr(TransactionCoordinator, "_replay", replay)
    patch.setattr(Shard, "_replay", replay_batch)


def pending_offsets_after_a_start(patch: Patch) -> None:
    """A coordinator of groups that reads its log passes over offsets of transactions."""
    known = Shard._replay

    def replay(shard: Shard[Any], data: bytes, position: int, header: BatchHeader) -> int:
        is_pending = header.is_transactional and not header.is_control
        return 0 if is_pending else known(shard, data, position, header)

    patch.setattr(Shard, "_replay", replay)


def markers_told_to_groups(patch: Patch) -> None:
    """A coordinator of groups hears of the end of a transaction when it reads its log again."""
    patch.setattr(Groups, "marked", lambda *_: None)


# -- what readers see


def last_stable_offset(patch: Patch) -> None:
    """What is committed is stable."""
    for name in ("_open", "_forget_completed"):
        known = getattr(ProducerState, name)

        def change(state: ProducerState, *given: Any, known: Any = known) -> None:
            known(state, *given)
            state.first_unstable_offset = None

        patch.setattr(ProducerState, name, change)


def stable_when_the_marker_is_committed(patch: Patch) -> None:
    """A transaction is stable when its marker is written."""
    known = ProducerState.complete

    def complete(state: ProducerState, completed: CompletedTransaction) -> None:
        known(state, completed)
        del state.unreplicated[completed.first_offset]
        state._forget_completed(0)

    patch.setattr(ProducerState, "complete", complete)


def aborted_transactions(patch: Patch) -> None:
    """Nobody keeps which were aborted."""
    patch.setattr(TransactionIndex, "append", lambda *_: None)


def aborted_in_later_segments(patch: Patch) -> None:
    """Of what was aborted, only the segment that is read tells."""
    known = TransactionIndex.collect

    def collect(index: TransactionIndex, offset: int, upper_offset: int) -> tuple[list[AbortedTransaction], bool]:
        return known(index, offset, upper_offset)[0], True

    patch.setattr(TransactionIndex, "collect", collect)


def aborted_after_a_crash(patch: Patch) -> None:
    """The transaction index of what is scanned is not built again."""
    known = replaying.note_batch

    def note_batch(producers: ProducerState, segment: Segment, header: BatchHeader, data: Buffer) -> None:
        if header.is_control and header.producer_id >= 0:
            replaying.note_marker(producers, None, header, data)
        else:
            known(producers, segment, header, data)

    patch.setattr(loading, "note_batch", note_batch)


def aborted_of_what_is_cut(patch: Patch) -> None:
    """The transaction index keeps what was cut off its log."""
    patch.setattr(TransactionIndex, "truncate_to", lambda *_: None)


CLIENTS: Final = "transactions"

MUTANTS: Final = (
    Mutant("the first batch of a transaction waits until its partition is added", partitions_added, "links", CLIENTS),
    Mutant(
        "that of an older client until its partition is known to be added",
        partitions_verified,
        "late requests",
        "older transactions",
    ),
    Mutant("offsets of a transaction wait until their partition is added", offsets_added, "links", CLIENTS),
    Mutant("those of an older client until it is known to be added", offsets_verified, "late requests", "older transactions"),
    Mutant("who begins while the last end is under way is waited for", concurrent_transactions, "slow links", "zombies"),
    Mutant("the epoch is bumped with every end", epoch_of_every_end, "links", CLIENTS),
    Mutant("it is when a transaction is ended for its producer", epoch_of_a_timeout, "links", CLIENTS),
    Mutant("a producer of an old epoch gets no new one", zombie_that_begins, "links", "zombies"),
    Mutant("it ends no transaction", zombie_that_ends, "links", CLIENTS),
    Mutant("it adds no partitions", zombie_that_adds_partitions, "links", CLIENTS),
    Mutant("it adds no offsets", zombie_that_adds_offsets, "links", "zombies"),
    Mutant("it produces nothing", zombie_that_produces, "links", CLIENTS),
    Mutant("a transaction that is open for too long is ended", timed_out_transactions, "links", "zombies"),
    Mutant("markers are sent for what is committed as decided", markers_of_what_is_committed, "slow links", "coordinators"),
    Mutant("coordinators of transactions answer what is committed", answers_of_what_is_committed, "links", "coordinators"),
    Mutant("a transaction is complete when all partitions have their marker", all_partitions_marked, "links", CLIENTS),
    Mutant("a decision stands with another coordinator", decision_of_the_last_coordinator, "slow links", "coordinators"),
    Mutant("a decision stands, whoever begins then", decision_that_stands, "slow links", "zombies"),
    Mutant("a marker has the epoch that follows on its transaction's", epoch_of_markers, "links", CLIENTS),
    Mutant("a marker of an epoch that has begun is refused", marker_of_an_old_epoch, "links", "zombies"),
    Mutant("a marker of an old coordinator is refused", marker_of_an_old_coordinator, "links", "coordinators"),
    Mutant("a partition has one marker of a transaction", one_marker, "late news", "coordinators"),
    Mutant("who is no member commits no offsets in a transaction", member_of_the_group, "links", "processing"),
    Mutant("who is of an old generation commits none", generation_of_the_group, "links", "instances"),
    Mutant("whose instance is another's commits none", instance_of_the_group, "links", "instances"),
    Mutant("who asks for stable offsets waits for open transactions", unstable_offsets, "links", "processing"),
    Mutant("the offsets of a transaction count with its marker", offsets_wait_for_the_marker, "links", "processing"),
    Mutant("those of an aborted one are dropped", offsets_of_aborted_transactions, "links", "processing"),
    Mutant("those of a committed one are kept", offsets_of_committed_transactions, "links", "processing"),
    Mutant("a coordinator of transactions reads decisions", decisions_after_a_start, "slow links", "coordinators"),
    Mutant("a coordinator of groups reads offsets of transactions", pending_offsets_after_a_start, "slow links", "coordinators"),
    Mutant("it hears of their ends", markers_told_to_groups, "links", "processing"),
    Mutant("nothing is stable past an open transaction", last_stable_offset, "links", CLIENTS),
    Mutant("a transaction is stable when its marker is committed", stable_when_the_marker_is_committed, "slow links", CLIENTS),
    Mutant("readers hear what was aborted", aborted_transactions, "links", CLIENTS),
    Mutant("also where its end is in a later segment", aborted_in_later_segments, "links", CLIENTS),
    Mutant("which transactions were aborted is built again", aborted_after_a_crash, "processes", CLIENTS),
    Mutant("what is cut off a log was not aborted", aborted_of_what_is_cut, "links", CLIENTS),
)
