"""How long the codecs take, beside kio's on the same values in the same run: microseconds, the best of many rounds.

python bench/wire.py
"""

import io
import sys
import timeit
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode as KioError
from kio.schema.produce.v13 import request as kio_produce
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i64

from odradek.wire.frames import decode_request, encode_request, encode_response
from odradek.wire.messages import FetchResponse, MetadataResponse, ProduceRequest

TOPIC_ID = bytes(range(16))
RECORDS = b"r" * 100
ROUNDS, ROUND_SECONDS = 40, 0.01


class Figure(NamedTuple):
    """One line of the report; kio and the goal are 0 where there is none."""

    name: str
    ours: float
    kio: float
    goal: float


def best_us(run: Callable[[], object]) -> float:
    """The best time of one run among many rounds: others work on the machine too."""
    run()
    number = max(1, int(ROUND_SECONDS / max(timeit.timeit(run, number=1), 1e-7)))
    return min(timeit.repeat(run, number=number, repeat=ROUNDS)) / number * 1e6


def kio_encode(value: Any) -> Callable[[], object]:
    write = entity_writer(type(value))

    def run() -> bytes:
        stream = io.BytesIO()
        write(stream, value)
        return stream.getvalue()

    return run


def produce() -> list[Figure]:
    partition = ProduceRequest.PartitionProduceData(index=3, records=RECORDS)
    topic = ProduceRequest.TopicProduceData(topic_id=TOPIC_ID, partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])
    data = request.to_bytes(13)
    frame = memoryview(b"".join(encode_request(request, 13, 7, "client"))[4:])  # type: ignore[arg-type]
    read = entity_reader(kio_produce.ProduceRequest)
    theirs, _ = read(data, 0)
    assert theirs.topic_data[0].partition_data[0].records == RECORDS
    view = memoryview(data)
    name = "Produce request v13, 1 partition, decoded"
    return [
        Figure(name, best_us(lambda: ProduceRequest.decode(view, 13)), best_us(lambda: read(data, 0)), 0),
        Figure(f"{name} with its header", best_us(lambda: decode_request(frame)), 0, 0),
    ]


def fetch(partitions: int, goal: float) -> Figure:
    ours = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic_id=TOPIC_ID,
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=index, high_watermark=1000, last_stable_offset=1000, log_start_offset=0, records=RECORDS
                    )
                    for index in range(partitions)
                ],
            )
        ]
    )
    kio = sys.modules[load_response_schema(1, i16(17)).__module__]
    theirs = kio.FetchResponse(
        throttle_time=timedelta(),
        error_code=KioError.none,
        session_id=i32(0),
        responses=(
            kio.FetchableTopicResponse(
                topic_id=uuid.UUID(bytes=TOPIC_ID),
                partitions=tuple(
                    kio.PartitionData(
                        partition_index=i32(index),
                        error_code=KioError.none,
                        high_watermark=i64(1000),
                        last_stable_offset=i64(1000),
                        log_start_offset=i64(0),
                        aborted_transactions=(),
                        records=RECORDS,
                    )
                    for index in range(partitions)
                ),
            ),
        ),
    )
    encode = kio_encode(theirs)
    assert ours.to_bytes(17) == encode()
    name = f"Fetch answer v17, {partitions} partition{'s' if partitions > 1 else ''}, encoded with its frame"
    return Figure(name, best_us(lambda: encode_response(ours, 17, 7)), best_us(encode), goal)


def metadata(partitions: int, goal: float) -> Figure:
    topic = MetadataResponse.MetadataResponseTopic(
        name="events",
        topic_id=TOPIC_ID,
        partitions=[
            MetadataResponse.MetadataResponsePartition(
                partition_index=index, leader_id=1, leader_epoch=5, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
            )
            for index in range(partitions)
        ],
    )
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=n, host="localhost", port=9092 + n) for n in (1, 2, 3)]
    ours = MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=1, topics=[topic])
    kio = load_response_schema(3, i16(12))
    theirs, _ = entity_reader(kio)(ours.to_bytes(12), 0)
    encode = kio_encode(theirs)
    assert ours.to_bytes(12) == encode()
    name = f"Metadata answer v12, {partitions} partitions, encoded with its frame"
    return Figure(name, best_us(lambda: encode_response(ours, 12, 7)), best_us(encode), goal)


def main() -> None:
    sys.stdout.write(f"{'':64}{'ours':>10}{'kio':>10}{'goal':>10}   us\n")
    for figure in (*produce(), fetch(1, 0), fetch(100, 150), metadata(1000, 3000)):
        kio = f"{figure.kio:.2f}" if figure.kio else ""
        goal = f"{figure.goal:.0f}" if figure.goal else ""
        sys.stdout.write(f"{figure.name:64}{figure.ours:10.2f}{kio:>10}{goal:>10}\n")


if __name__ == "__main__":
    main()
