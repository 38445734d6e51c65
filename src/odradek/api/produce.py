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
must be read or compressed anew, or synced before the answer, is copied and goes on in a coroutine.
"""

from collections.abc import Sequence

from odradek.api.context import Context, Handled
from odradek.api.services import Partition
from odradek.core.metadata.topic_names import INTERNAL_TOPICS
from odradek.core.partition.admission import RefusedRecords
from odradek.wire.batch import HEADER_SIZE, BatchHeader, CorruptBatch, InvalidBatch, read_header
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, ProtocolError, Refused
from odradek.wire.messages import ProduceRequest, ProduceResponse

KEY = 0
ADMIN_CLIENT_ID = "__admin_client"  # may write to internal topics
ACKS = (-1, 0, 1)
ZSTD_SINCE = 7
TOPIC_IDS_SINCE = 13

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = ProduceResponse.PartitionProduceResponse
RecordAnswer = ProduceResponse.BatchIndexAndErrorMessage


class Target:
    """One batch and where it goes; `error` when it goes nowhere."""

    __slots__ = ("error", "header", "index", "partition", "records")

    def __init__(self, index: int, records: memoryview) -> None:
        self.index = index
        self.records: bytearray | memoryview = records
        self.partition: Partition | None = None
        self.header: BatchHeader | None = None
        self.error: Exception | None = None


def handle(request: ProduceRequest, ctx: Context) -> Handled:
    now_ms = ctx.node.now_ms()
    answers = []
    plain = True
    for topic in request.topic_data:
        targets = [find(topic, data, request, ctx) for data in topic.partition_data]
        answers.append((topic, targets))
        for target in targets:
            partition, header = target.partition, target.header
            if partition is not None and header is not None:
                plain = plain and partition.is_plain and partition.admission.is_plausible(header, now_ms)
    if not plain:
        for _, targets in answers:
            for target in targets:
                target.records = bytearray(target.records)  # what the frame is in will be used again
        return append_slowly(answers, request.acks, ctx)
    response = ProduceResponse(
        responses=[
            TopicAnswer(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[append(target, now_ms) for target in targets]
            )
            for topic, targets in answers
        ]
    )
    if request.acks:
        return response
    close_if_refused(response, ctx)
    return None


def find(
    topic: ProduceRequest.TopicProduceData, data: ProduceRequest.PartitionProduceData, request: ProduceRequest, ctx: Context
) -> Target:
    """The partition that a batch is for, and the batch's header."""
    records = data.records
    target = Target(data.index, memoryview(b"") if records is None else records)
    partitions = ctx.node.partitions
    try:
        if request.acks not in ACKS:
            raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}, where -1, 0 and 1 are valid")
        if ctx.version >= TOPIC_IDS_SINCE:
            led = partitions.by_id.get(topic.topic_id)
            if led is None and topic.topic_id not in ctx.node.image.topics_by_id:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        else:
            led = partitions.by_name.get(topic.name)
        partition = led.get(data.index) if led is not None else None
        if partition is None:
            raise Refused(partitions.why_not(name_of(topic, ctx), data.index), "this node does not lead the partition")
        if partition.topic in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT_ID:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic} is written by the brokers alone")
        header = whole_batch(target.records)
        if header.codec == Codec.ZSTD and ctx.version < ZSTD_SINCE:
            raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs version {ZSTD_SINCE} of Produce")
        if header.is_transactional:
            unknown = request.transactional_id is None
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if unknown else ErrorCode.INVALID_TXN_STATE
            raise Refused(code, "transactions are not served yet")
        target.partition, target.header = partition, header
    except (Refused, ProtocolError) as error:
        target.error = error
    return target


def whole_batch(records: bytearray | memoryview) -> BatchHeader:
    """The header of the batch, which must be there as a whole."""
    if len(records) < HEADER_SIZE:
        raise InvalidBatch(f"{len(records)} bytes, where a batch has {HEADER_SIZE} at least", "records", 0)
    header = read_header(records)
    if header.size > len(records):
        raise InvalidBatch(f"a batch of {header.size} bytes, of which {len(records)} are there", "records", 0)
    if header.last_offset_delta < 0:
        raise InvalidBatch(f"a last offset {header.last_offset_delta} after the base", "last offset delta", 23)
    return header


def name_of(topic: ProduceRequest.TopicProduceData, ctx: Context) -> str:
    return ctx.node.image.topics_by_id[topic.topic_id].name if ctx.version >= TOPIC_IDS_SINCE else topic.name


def append(target: Target, now_ms: int) -> PartitionAnswer:
    partition, header = target.partition, target.header
    if partition is None or header is None:
        assert target.error is not None
        return refused(target.index, target.error)
    try:
        appended = partition.append(target.records, header, now_ms)
    except (Refused, ProtocolError) as error:
        return refused(target.index, error)
    return PartitionAnswer(
        index=target.index,
        base_offset=appended.first_offset,
        log_append_time_ms=now_ms if partition.admission.stamps and not appended.is_duplicate else -1,
        log_start_offset=partition.log_start,
    )


async def append_slowly(
    answers: Sequence[tuple[ProduceRequest.TopicProduceData, list[Target]]], acks: int, ctx: Context
) -> ProduceResponse | None:
    """Reads, compresses and syncs what needs it, elsewhere; then it is an append like any other."""
    response = ProduceResponse()
    for topic, targets in answers:
        answer = TopicAnswer(name=topic.name, topic_id=topic.topic_id)
        for target in targets:
            answer.partition_responses.append(await admit_and_append(target, ctx))
        response.responses.append(answer)
    if acks:
        return response
    close_if_refused(response, ctx)
    return None


async def admit_and_append(target: Target, ctx: Context) -> PartitionAnswer:
    partition = target.partition
    now_ms = ctx.node.now_ms()
    if partition is None:
        return append(target, now_ms)
    try:
        target.records = await ctx.node.work(lambda: partition.admission.admit(target.records, now_ms))
    except (Refused, ProtocolError) as error:
        return refused(target.index, error)
    target.header = read_header(target.records)
    answer = append(target, now_ms)
    if not answer.error_code:
        await partition.sync()
    return answer


def refused(index: int, error: Exception) -> PartitionAnswer:
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
        index=index, error_code=code, base_offset=-1, log_start_offset=-1, record_errors=records, error_message=message
    )


def close_if_refused(response: ProduceResponse, ctx: Context) -> None:
    """With acks=0 there is no answer; what was refused closes the connection, so that its producer learns of it."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                code = ErrorCode(partition.error_code)
                ctx.connection.close(f"{topic.name}-{partition.index} with acks=0: {code.name}: {partition.error_message}")
                return
