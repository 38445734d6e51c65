"""A node inside the test's own process, with whatever disk the test wants, and a client that shares its loop.

So that a test can look at what the node holds, and at what it does while its disk does nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from odradek.core.config.broker import BrokerConfig
from odradek.log.disk import Disk, RealDisk
from odradek.node.machine import Machine
from odradek.node.node import Node
from odradek.node.reserve import RESERVE_BYTES
from odradek.wire.batch import HEADER_SIZE, read_header
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import decode_response, encode_request
from odradek.wire.message import Message
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from odradek.wire.records import Record, build, records

ANSWER_SECONDS_MAX = 20
CONDITION_SECONDS_MAX = 20
NOW_MS = 1_700_000_000_000

Answer = TypeVar("Answer", bound=Message)

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "advertised.listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",
}


def new_node(
    folder: Path,
    new_disk: Callable[[], Disk] = RealDisk,
    reserve_bytes: int = RESERVE_BYTES,
    machine: Machine | None = None,
    /,
    **settings: str,
) -> Node:
    """Not started yet. `log_dirs` in the settings are names of folders in the folder."""
    names = settings.pop("log_dirs", "data").split(",")
    given = {key.replace("_", "."): value for key, value in settings.items()}
    log_dirs = ",".join(str(folder / name) for name in names)
    return Node(BrokerConfig({**SETTINGS, "log.dirs": log_dirs, **given}), new_disk, reserve_bytes, machine)


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[Node]:
    """Serves until the block ends, then stops cleanly, unless it has failed by then."""
    await node.start()
    try:
        yield node
    finally:
        if not node.stopped.done():
            await node.close()
        for listener in node.listeners:
            listener.close()


def port_of(node: Node) -> int:
    (port,) = [int(listener.port) for listener in node.listeners if not listener.is_controller]
    return port


async def until(condition: Callable[[], bool]) -> None:
    """Lets others run until something is so."""
    async with asyncio.timeout(CONDITION_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - what is waited for knows nothing of tests
            await asyncio.sleep(0.001)


class Client:
    """One connection. Requests may be sent before others are answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.correlation_id = 0

    def send(self, request: Message, version: int) -> None:
        self.correlation_id += 1
        self.writer.write(b"".join(encode_request(request, version, self.correlation_id, "inside")))  # type: ignore[arg-type]

    async def receive(self, response: type[Answer], version: int) -> Answer:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return decode_response(response, await self.reader.readexactly(size), version)[1]

    async def ask(self, request: Message, version: int, response: type[Answer]) -> Answer:
        self.send(request, version)
        return await self.receive(response, version)

    # -- the requests that most tests need

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> ErrorCode:
        wanted = CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        answer = await self.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7, CreateTopicsResponse)
        return ErrorCode(answer.topics[0].error_code)

    async def produce(self, topic: str, *values: bytes, index: int = 0, sequence: int = -1) -> ErrorCode:
        self.send(produce_request(topic, *values, index=index, sequence=sequence), 9)
        return await self.produced()

    async def produced(self) -> ErrorCode:
        answer = await self.receive(ProduceResponse, 9)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def fetch(self, topic: str, offset: int = 0, *, index: int = 0, max_wait_ms: int = 0) -> list[bytes]:
        self.send(fetch_request(topic, offset, index=index, max_wait_ms=max_wait_ms), 12)
        return await self.fetched()

    async def fetched(self) -> list[bytes]:
        answer = await self.receive(FetchResponse, 12)
        (partition,) = answer.responses[0].partitions
        assert not partition.error_code, ErrorCode(partition.error_code)
        return values_in(bytes(partition.records or b""))


@asynccontextmanager
async def connected(node: Node) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(node))
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def produce_request(topic: str, *values: bytes, index: int = 0, sequence: int = -1, acks: int = -1) -> ProduceRequest:
    """With a sequence, of an idempotent producer."""
    entries = [Record(number, NOW_MS, b"key", value) for number, value in enumerate(values)]
    is_idempotent = sequence >= 0
    batch = build(
        entries, producer_id=7 if is_idempotent else -1, producer_epoch=0 if is_idempotent else -1, base_sequence=sequence
    )
    data = ProduceRequest.PartitionProduceData(index=index, records=batch)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def fetch_request(topic: str, offset: int = 0, *, index: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=10_000_000)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=10_000_000, topics=topics)


def values_in(data: bytes) -> list[bytes]:
    """Without those of a batch that is cut off at the end."""
    found: list[bytes] = []
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if position + header.size > len(data):
            break
        found += [record.value or b"" for record in records(data, position, header)]
        position += header.size
    return found
