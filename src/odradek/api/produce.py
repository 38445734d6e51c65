"""Produce (key 0), versions 3-13; 0-2 are advertised for clients that look at the lowest version, and not served.

v3  transactional id; records are batches of format 2
v5  log start offset in the answer
v7  zstd
v8  errors of single records, and a message
v9  flexible encoding
v10 the current leader with errors that ask for it
v12 a transaction's partitions are added by the first produce to them
v13 topics by id

A batch whose header says everything is appended inside the call, and answered in the same turn of the loop. One whose records
must be read or compressed anew, or synced before the answer, or that is the first of its transaction in a partition, is copied
and goes on in a coroutine. With acks=all the answer waits until all replicas in sync have the batches.
"""

from contextlib import suppress
from typing import NamedTuple

from odradek.api.acknowledgement import Acknowledgement, Uncommitted
from odradek.api.context import Context, Handled, begun
from odradek.api.current_leader import endpoints, leader_and_epoch
from odradek.api.services import Appended, Partition
from odradek.core.metadata.topic_names import INTERNAL_TOPICS
from odradek.core.partition.admission import RefusedRecords
from odradek.core.partition.beginnings import Beginnings, Place
from odradek.wire.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    InvalidBatch,
    read_header,
)
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, ProtocolError, Refused
from odradek.wire.messages import ProduceRequest, ProduceResponse

KEY = 0
ADMIN_CLIENT_ID = "__admin_client"  # may write to internal topics
ALL = -1
ACKS = (ALL, 0, 1)
ZSTD_SINCE = 7
LEADER_SINCE = 10
ABORTABLE_SINCE = 11
ADDS_PARTITIONS_SINCE = 12
TOPIC_IDS_SINCE = 13
WITHOUT_START = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

COME_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.OPERATION_NOT_ATTEMPTED,  # for the sake of another partition, of which the coordinator's node has not heard
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = ProduceResponse.PartitionProduceResponse
RecordAnswer = ProduceResponse.BatchIndexAndErrorMessage


class Slow(NamedTuple):
    """A batch whose answer takes longer, and the place that the answer goes to."""

    answers: list[PartitionAnswer]
    position: int
    partition: Partition
    batch: bytearray
    header: BatchHeader
    place: Place


def handle(request: ProduceRequest, ctx: Context) -> Handled:
    now_ms = ctx.node.now_ms()
    slow: list[Slow] = []
    uncommitted: list[Uncommitted] = []
    response = ProduceResponse()
    for topic in request.topic_data:
        answers: list[PartitionAnswer] = []
        for data in topic.partition_data:
            place = (topic.name, topic.topic_id, data.index)
            try:
                partition = find(topic, data.index, request, ctx)
                records, header = whole_batch(data.records)
                check_version(header, request, ctx)
            except (Refused, ProtocolError) as error:
                answers.append(answer := refused(data.index, error))
                with suppress(ProtocolError):
                    note_refused(place, whole_batch(data.records)[1], answer, ctx)
                continue
            if (
                partition.is_plain
                and partition.admission.is_plausible(header, now_ms)
                and not (header.attributes & TRANSACTIONAL and is_first(partition, header))
            ):
                try:
                    partition.check_acks(request.acks)
                    check_beginning(place, header, partition, ctx)
                    appended = partition.append(records, header, now_ms)
                    answers.append(answer := taken(partition, appended, now_ms))
                    if request.acks == ALL and appended.last_offset >= partition.high_watermark:
                        uncommitted.append(Uncommitted(answer, partition, appended.last_offset + 1))
                except (Refused, ProtocolError) as error:
                    answers.append(answer := refused(data.index, error, partition))
                    note_refused(place, header, answer, ctx)
            else:
                answers.append(PartitionAnswer(index=data.index))
                batch = bytearray(records)  # the frame is used again
                slow.append(Slow(answers, len(answers) - 1, partition, batch, header, place))
        response.responses.append(TopicAnswer(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if slow:
        return begun(append_slowly(slow, uncommitted, response, request, ctx))
    if uncommitted:
        acknowledge(uncommitted, response, request, ctx)
        return None
    if request.acks:
        return with_leaders(response, ctx)
    close_if_refused(response, ctx)
    return None


def find(topic: ProduceRequest.TopicProduceData, index: int, request: ProduceRequest, ctx: Context) -> Partition:
    """The partition that a batch is for."""
    partitions = ctx.node.partitions
    if request.acks not in ACKS:
        raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}, where -1, 0 and 1 are valid")
    if ctx.version < TOPIC_IDS_SINCE:
        led, name = partitions.by_name.get(topic.name), topic.name
    else:
        known = ctx.node.image.topics_by_id.get(topic.topic_id)
        if known is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        led, name = partitions.by_id.get(topic.topic_id), known.name
    partition = led.get(index) if led is not None else None
    if partition is None:
        raise Refused(partitions.why_not(name, index), "this node does not lead the partition")
    if name in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT_ID:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the brokers alone")
    return partition


def whole_batch(records: memoryview | None) -> tuple[memoryview, BatchHeader]:
    """The batch, which must be there as a whole, and its header."""
    size = 0 if records is None else len(records)
    if records is None or size < HEADER_SIZE:
        raise InvalidBatch(f"{size} bytes, where a batch has {HEADER_SIZE} at least", "records", 0)
    header = read_header(records)
    if header.batch_length + OVERHEAD > size:
        raise InvalidBatch(f"a batch of {header.size} bytes, of which {size} are there", "records", 0)
    if header.last_offset_delta < 0:
        raise InvalidBatch(f"a last offset {header.last_offset_delta} after the base", "last offset delta", 23)
    return records, header


def check_version(header: BatchHeader, request: ProduceRequest, ctx: Context) -> None:
    """Refuses what the request's version, or the node, does not have."""
    attributes = header.attributes
    if attributes & CODEC_MASK == Codec.ZSTD and ctx.version < ZSTD_SINCE:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs version {ZSTD_SINCE} of Produce")
    if attributes & TRANSACTIONAL and request.transactional_id is None:
        reason = "a batch of a transaction, in a request without a transactional id"
        raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, reason)


def check_beginning(place: Place, header: BatchHeader, partition: Partition, ctx: Context) -> None:
    """Refuses a batch that is under way behind one with which its producer was to begin."""
    beginnings = ctx.connection.beginnings
    if beginnings is not None:
        beginnings.check(place, header, is_known=partition.knows_producer(header.producer_id), now_ms=ctx.node.timers.now_ms())


def note_refused(place: Place, header: BatchHeader, answer: PartitionAnswer, ctx: Context) -> None:
    if ctx.connection.beginnings is None:
        ctx.connection.beginnings = Beginnings()
    ctx.connection.beginnings.refused(place, header, answer.error_code, ctx.node.timers.now_ms())


def is_first(partition: Partition, header: BatchHeader) -> bool:
    """Whether a batch begins its transaction in a partition, as far as is known."""
    return not partition.is_in_transaction(header.producer_id, header.producer_epoch)


def taken(partition: Partition, appended: Appended, now_ms: int) -> PartitionAnswer:
    return PartitionAnswer(
        index=partition.index,
        base_offset=appended.first_offset,
        log_append_time_ms=now_ms if partition.admission.stamps and not appended.is_duplicate else appended.timestamp,
        log_start_offset=partition.log_start,
    )


async def append_slowly(
    slow: list[Slow], uncommitted: list[Uncommitted], response: ProduceResponse, request: ProduceRequest, ctx: Context
) -> ProduceResponse | None:
    """Fills in the answers that take longer."""
    verified = await verify(slow, request, ctx)
    for each in slow:
        answers, position, partition, batch, header, place = each
        try:
            partition.check_acks(request.acks)
            check_beginning(place, header, partition, ctx)
            verification = verified.get(partition)
            if isinstance(verification, Refused):
                raise verification
            appended, now_ms = await admit_and_append(partition, batch, verification, ctx)
            answers[position] = taken(partition, appended, now_ms)
            if request.acks == ALL:  # it may be led elsewhere by now: what is committed there is not known to be this batch
                uncommitted.append(Uncommitted(answers[position], partition, appended.last_offset + 1))
        except (Refused, ProtocolError) as error:
            answers[position] = refused(partition.index, error, partition)
            note_refused(place, header, answers[position], ctx)
    if uncommitted:
        acknowledge(uncommitted, response, request, ctx)
        return None
    if request.acks:
        return with_leaders(response, ctx)
    close_if_refused(response, ctx)
    return None


async def verify(slow: list[Slow], request: ProduceRequest, ctx: Context) -> dict[Partition, object]:
    """Has the coordinator add the partitions in which the transaction begins, or say that they were added: by partition what the
    batch is to be appended with, or the Refused."""
    found: dict[Partition, object] = {}
    producers = {(each.header.producer_id, each.header.producer_epoch) for each in slow if each.header.attributes & TRANSACTIONAL}
    if not producers:
        return found
    is_adding = ctx.version >= ADDS_PARTITIONS_SINCE
    for each in slow:
        header, partition = each.header, each.partition
        if header.attributes & TRANSACTIONAL:
            try:
                found[partition] = partition.verify(
                    header.producer_id, header.producer_epoch, header.base_sequence, is_adding=is_adding
                )
            except Refused as fenced:
                found[partition] = fenced
    asked = {(partition.topic, partition.index): partition for partition, each in found.items() if is_to_be_asked(each)}
    if not asked:
        return found
    if len(producers) > 1:
        several = Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "batches of several producers in one transaction")
        return found | dict.fromkeys(asked.values(), several)
    assert request.transactional_id is not None
    errors = await ctx.node.enlist(request.transactional_id, *producers.pop(), list(asked), is_adding=is_adding)
    for place, error in errors.items():
        if error is not ErrorCode.NONE:
            found[asked[place]] = not_enlisted(error, ctx.version)
    return found


def is_to_be_asked(verification: object) -> bool:
    return verification is not None and not isinstance(verification, Refused)


def not_enlisted(error: ErrorCode, version: int) -> Refused:
    """What a producer is told when its coordinator did not take a partition into the transaction."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        error = ErrorCode.INVALID_TXN_STATE
    if error in COME_AGAIN:
        return Refused(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction's coordinator says {error.name}: send the batch again")
    return Refused(error, "the transaction's coordinator did not take the partition into the transaction")


def with_leaders(response: ProduceResponse, ctx: Context) -> ProduceResponse:
    """The answer, and who leads the partitions that are not led here."""
    if ctx.version < LEADER_SINCE:
        return response
    leaders = []
    image = ctx.node.image
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                known = image.topics.get(topic.name) if ctx.version < TOPIC_IDS_SINCE else image.topics_by_id.get(topic.topic_id)
                leader, epoch = leader_and_epoch(known, answer.index)
                answer.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.append(leader)
    if leaders:
        found = endpoints(leaders, ctx)
        response.node_endpoints = [ProduceResponse.NodeEndpoint(**endpoint._asdict()) for endpoint in found]
    return response


async def admit_and_append(partition: Partition, batch: bytearray, verification: object, ctx: Context) -> tuple[Appended, int]:
    """Reads, compresses and syncs what needs it, elsewhere; then it is an append like any other."""
    now_ms = ctx.node.now_ms()
    admitted: bytearray | memoryview = batch
    header = read_header(batch)
    if not (partition.admission.is_plain and partition.admission.is_plausible(header, now_ms)):
        admitted = await ctx.node.look_into(lambda: partition.admission.admit(batch, now_ms))
        header = read_header(admitted)
    appended = await partition.append_later(admitted, header, now_ms, verification=verification)
    await partition.sync()
    return appended, now_ms


def acknowledge(uncommitted: list[Uncommitted], response: ProduceResponse, request: ProduceRequest, ctx: Context) -> None:
    """Answers when all replicas in sync have the batches."""
    acknowledgement = Acknowledgement(uncommitted, fail, lambda: ctx.answer(with_leaders(response, ctx)))
    ctx.later()
    ctx.abandoned = acknowledgement.stop
    acknowledgement.wait(ctx.node.timers, request.timeout_ms)


def fail(answer: PartitionAnswer, code: ErrorCode) -> None:
    """What was appended is not committed, as far as is known."""
    answer.error_code = code
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def refused(index: int, error: Exception, partition: Partition | None = None) -> PartitionAnswer:
    """The answer for a batch that was not taken; it tells the log's start where the records were looked at."""
    match error:
        case RefusedRecords():
            records = [RecordAnswer(batch_index=number, batch_index_error_message=reason) for number, reason in error.records]
            code, message = error.code, error.message
        case Refused():
            records, code, message = [], error.code, error.message
        case CorruptBatch() | InvalidBatch():
            records, code, message = [], error.error, str(error)
        case _:
            records, code, message = [], ErrorCode.INVALID_RECORD, str(error)
    return PartitionAnswer(
        index=index,
        error_code=code,
        base_offset=-1,
        log_start_offset=-1 if partition is None or code in WITHOUT_START else partition.log_start,
        record_errors=records,
        error_message=message,
    )


def close_if_refused(response: ProduceResponse, ctx: Context) -> None:
    """With acks=0 there is no answer; what was refused closes the connection, so that its producer learns of it."""
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                code = ErrorCode(answer.error_code)
                ctx.connection.close(f"{topic.name}-{answer.index} with acks=0: {code.name}: {answer.error_message}")
                return
