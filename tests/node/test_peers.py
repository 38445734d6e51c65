"""Channels to other nodes, against a real node and against one that misbehaves."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from odradek.node.machine import Machine
from odradek.node.peers import Channel, Unreachable, is_listening
from odradek.wire.apis import APIS
from odradek.wire.frames import decode_request, encode_response
from odradek.wire.messages import (
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
    VoteRequest,
    VoteResponse,
)
from tests.kafka.broker import free_port
from tests.node.inside import new_node, port_of, running, until

TIMEOUT_MS = 10_000

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
Behaviour: TypeAlias = Callable[[Reader, Writer], Awaitable[None]]


@asynccontextmanager
async def other_side(behaviour: Behaviour, greet_when: Callable[[], Awaitable[object]] | None = None) -> AsyncIterator[int]:
    """A server that agrees on versions, and then does what the test wants."""

    async def serve(reader: Reader, writer: Writer) -> None:
        try:
            if greet_when is not None:
                await greet_when()
            await greet(reader, writer)
            await behaviour(reader, writer)
            await reader.read()  # until the other side has gone
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)


async def request(reader: Reader) -> tuple[int, int, int]:
    """Key, version and correlation id of what comes."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    header, _ = decode_request(await reader.readexactly(size))
    return header.request_api_key, header.request_api_version, header.correlation_id


async def greet(reader: Reader, writer: Writer) -> None:
    _, version, correlation_id = await request(reader)
    served = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=100) for key in APIS]
    writer.write(b"".join(encode_response(ApiVersionsResponse(api_keys=served), version, correlation_id)))  # type: ignore[arg-type]


def metadata(version: int, correlation_id: int, cluster_id: str) -> bytes:
    return b"".join(encode_response(MetadataResponse(cluster_id=cluster_id), version, correlation_id))  # type: ignore[arg-type]


def channel(port: int, lost: list[str] | None = None) -> Channel:
    return Channel(Machine(), "127.0.0.1", port, "test", lambda: (lost if lost is not None else []).append("lost"))


def test_whoever_asks_gets_the_answer_to_its_own_request(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(new_node(tmp_path)) as node:
            peer = channel(port_of(node))
            answers = await asyncio.gather(
                peer.ask(MetadataRequest(topics=[]), MetadataResponse, TIMEOUT_MS),
                peer.ask(DescribeClusterRequest(), DescribeClusterResponse, TIMEOUT_MS),
                peer.ask(MetadataRequest(topics=[]), MetadataResponse, TIMEOUT_MS),
            )
            assert [answer.cluster_id for answer in answers] == [node.cluster_id] * 3
            with pytest.raises(Unreachable, match="Vote"):
                await peer.ask(VoteRequest(), VoteResponse, TIMEOUT_MS)
            peer.close()

    asyncio.run(story())


def test_an_address_where_nobody_listens_is_told_apart() -> None:
    async def story() -> None:
        port = free_port()
        with pytest.raises(Unreachable) as error:
            await channel(port).ask(MetadataRequest(), MetadataResponse, TIMEOUT_MS)
        assert error.value.is_refused
        assert await is_listening(Machine(), "127.0.0.1", port, TIMEOUT_MS) is False
        with socket.create_server(("127.0.0.1", 0)) as server:
            assert await is_listening(Machine(), "127.0.0.1", server.getsockname()[1], TIMEOUT_MS) is True

    asyncio.run(story())


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_connection_that_the_other_side_closes_is_known_at_once(is_waiting: bool) -> None:
    async def story() -> None:
        closed = asyncio.Event()

        async def close(reader: Reader, writer: Writer) -> None:
            await (request(reader) if is_waiting else closed.wait())
            writer.close()

        lost: list[str] = []
        async with other_side(close) as port:
            peer = channel(port, lost)
            if is_waiting:
                with pytest.raises(Unreachable, match="closed"):
                    await peer.ask(MetadataRequest(), MetadataResponse, TIMEOUT_MS)
            else:
                await peer.connect(asyncio.get_running_loop().time() + 10)
                closed.set()
                await until(lambda: bool(lost))
            assert lost == ["lost"]
            assert not peer.is_connected

    asyncio.run(story())


def test_a_slow_connection_is_not_made_anew_with_every_request() -> None:
    """Who asks gives up, and the versions come later; they are there for whoever asks next."""

    async def story() -> None:
        connections, may_greet = 0, asyncio.Event()

        async def wait() -> None:
            nonlocal connections
            connections += 1
            await may_greet.wait()

        async def tell(reader: Reader, writer: Writer) -> None:
            _, version, correlation_id = await request(reader)
            writer.write(metadata(version, correlation_id, "cluster"))

        async with other_side(tell, wait) as port:
            peer = channel(port)
            for _ in range(3):
                with pytest.raises(Unreachable, match="what it serves"):
                    await peer.ask(MetadataRequest(), MetadataResponse, 20)
            may_greet.set()
            answer = await peer.ask(MetadataRequest(), MetadataResponse, TIMEOUT_MS)
            assert answer.cluster_id == "cluster"
            assert connections == 1
            peer.close()

    asyncio.run(story())


class ClosedTooSoon(Channel):
    """Is closed in the turn in which the versions came, as when its time was over just then."""

    def _take(self) -> None:
        super()._take()
        if self._filled == 0:
            self.close()


def test_a_connection_that_is_closed_right_after_it_was_made_is_no_connection() -> None:
    async def story() -> None:
        async def listen(_: Reader, __: Writer) -> None:
            return

        async with other_side(listen) as port:
            with pytest.raises(Unreachable, match="closed"):
                await ClosedTooSoon(Machine(), "127.0.0.1", port, "test").ask(MetadataRequest(), MetadataResponse, TIMEOUT_MS)

    asyncio.run(story())


@pytest.mark.parametrize("timeout_ms", [50, TIMEOUT_MS])
def test_a_request_that_nobody_reads_is_given_up(timeout_ms: int) -> None:
    """In time, or when the other side closes the connection: whatever of it is still to be sent."""

    async def story() -> None:
        async def ignore(_: Reader, writer: Writer) -> None:
            if timeout_ms == TIMEOUT_MS:
                writer.transport.abort()

        async with other_side(ignore) as port:
            large = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="x" * 32_000)] * 1_000)
            peer = channel(port)
            with pytest.raises(Unreachable):
                await peer.ask(large, MetadataResponse, timeout_ms)
            assert not peer.is_connected

    asyncio.run(story())


def test_an_answer_that_is_late_is_not_taken_for_the_next() -> None:
    async def story() -> None:
        asked = 0

        async def late(reader: Reader, writer: Writer) -> None:
            nonlocal asked
            _, version, correlation_id = await request(reader)
            asked += 1
            if asked == 1:
                await reader.read()
            writer.write(metadata(version, correlation_id, f"cluster {asked}"))

        async with other_side(late) as port:
            peer = channel(port)
            with pytest.raises(Unreachable, match="in time"):
                await peer.ask(MetadataRequest(), MetadataResponse, 50)
            answer = await peer.ask(MetadataRequest(), MetadataResponse, TIMEOUT_MS)
            assert answer.cluster_id == "cluster 2"
            peer.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "answer",
    [
        (2**31 - 1).to_bytes(4, "big"),
        (-1).to_bytes(4, "big", signed=True),
        (8).to_bytes(4, "big") + b"no words",
        metadata(13, 77, "cluster"),
    ],
)
def test_nonsense_ends_the_connection(answer: bytes) -> None:
    async def story() -> None:
        async def nonsense(reader: Reader, writer: Writer) -> None:
            await request(reader)
            writer.write(answer)

        async with other_side(nonsense) as port:
            peer = channel(port)
            with pytest.raises(Unreachable):
                await peer.ask(MetadataRequest(), MetadataResponse, TIMEOUT_MS)
            assert not peer.is_connected

    asyncio.run(story())


def test_a_large_answer_in_small_pieces_comes_whole() -> None:
    async def story() -> None:
        topics = [MetadataResponse.MetadataResponseTopic(name="x" * 30_000) for _ in range(100)]

        async def trickle(reader: Reader, writer: Writer) -> None:
            _, version, correlation_id = await request(reader)
            buffers = encode_response(MetadataResponse(topics=topics), version, correlation_id)
            answer = b"".join(buffers)  # type: ignore[arg-type]
            for start in range(0, len(answer), 65_537):
                writer.write(answer[start : start + 65_537])
                await writer.drain()

        async with other_side(trickle) as port:
            peer = channel(port)
            answer = await peer.ask(MetadataRequest(), MetadataResponse, TIMEOUT_MS)
            assert answer.topics == topics
            peer.close()

    asyncio.run(story())
