"""One Produce request as it is sent, so that a test can be any producer at any point of its life."""

import socket

from odradek.log.names import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import SIZE, decode_response, encode_request
from odradek.wire.messages import ProduceRequest, ProduceResponse

VERSION = 12  # the last that names topics instead of giving their ids
ALL_IN_SYNC = -1


def produce(port: int, partition: TopicPartition, batch: bytes | bytearray) -> tuple[ErrorCode, int]:
    """Sends a batch to a partition; gives the error, and the offset of the first record."""
    data = ProduceRequest.PartitionProduceData(index=partition.partition, records=bytes(batch))
    topic = ProduceRequest.TopicProduceData(name=partition.topic, partition_data=[data])
    request = ProduceRequest(acks=ALL_IN_SYNC, timeout_ms=10_000, topic_data=[topic])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"".join(encode_request(request, VERSION, correlation_id=1)))  # type: ignore[arg-type]
        with connection.makefile("rb") as answers:
            (size,) = SIZE.unpack(answers.read(SIZE.size))
            _, response = decode_response(ProduceResponse, answers.read(size), VERSION)
    answer = response.responses[0].partition_responses[0]
    return ErrorCode(answer.error_code), answer.base_offset
