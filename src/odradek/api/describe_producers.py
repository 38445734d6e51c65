"""DescribeProducers (key 61), version 0: the idempotent producers that partitions know, as this replica of them does.

kafka-transactions.sh asks a broker that it is told for all that it has, and takes a refusal of what it does not lead for final.
"""

from odradek.api.context import Context
from odradek.core.metadata.topic_names import name_fault
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import DescribeProducersRequest, DescribeProducersResponse

KEY = 61

PartitionAnswer = DescribeProducersResponse.PartitionResponse


def handle(request: DescribeProducersRequest, ctx: Context) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    for topic in request.topics:
        answers = [describe(topic.name, index, ctx) for index in topic.partition_indexes]
        response.topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=answers))
    return response


def describe(topic: str, index: int, ctx: Context) -> PartitionAnswer:
    fault = name_fault(topic)
    if fault is not None:
        return PartitionAnswer(partition_index=index, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=fault)
    producers = ctx.node.partitions.producers(topic, index)
    if producers is None:
        return PartitionAnswer(partition_index=index, error_code=ctx.node.partitions.why_not(topic, index))
    return PartitionAnswer(
        partition_index=index,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer in producers
        ],
    )
