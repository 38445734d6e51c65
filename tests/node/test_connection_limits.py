"""The limits of a listener: how many connections, for how long, and how much of their requests may be under way."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from odradek.node.listener import Listener
from odradek.node.node import Node
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import encode_request
from odradek.wire.message import Message
from odradek.wire.messages import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from tests.node.inside import Client, connected, fetch_request, new_node, port_of, produce_request, running, until

WAIT_MS = 600_000


def with_node(tmp_path: Path, scenario: Callable[[Node, Listener], Coroutine[Any, Any, None]], **settings: str) -> None:
    async def run() -> None:
        async with running(new_node(tmp_path, **settings)) as node:
            (listener,) = [listener for listener in node.listeners if not listener.is_controller]
            await scenario(node, listener)

    asyncio.run(run())


async def is_served(client: Client) -> bool:
    return bool((await client.ask(MetadataRequest(topics=[]), 12, MetadataResponse)).brokers)


async def alter(client: Client, broker: str, key: str, value: str) -> None:
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=key, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name=broker, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await client.ask(request, 1, IncrementalAlterConfigsResponse)
    assert [each.error_code for each in answer.responses] == [ErrorCode.NONE], answer


async def is_closed(client: Client) -> bool:
    try:
        return await client.reader.read(1) == b""
    except ConnectionError:
        return True


def test_at_max_connections_the_next_client_waits_until_one_goes(tmp_path: Path) -> None:
    async def scenario(node: Node, listener: Listener) -> None:
        async with connected(node) as first, connected(node) as second:
            assert await is_served(first)
            assert await is_served(second)
            async with connected(node) as third:
                third.send(MetadataRequest(topics=[]), 12)
                await until(lambda: not listener.is_accepting)
                assert await is_served(first)
                assert len(listener.connections) == 2
                second.writer.close()
                assert (await third.receive(MetadataResponse, 12)).brokers

    with_node(tmp_path, scenario, max_connections="2")


def test_a_limit_for_one_listener_goes_before_that_of_all(tmp_path: Path) -> None:
    async def scenario(_: Node, listener: Listener) -> None:
        assert listener.limits.connections_max == 3

    with_node(tmp_path, scenario, **{"listener.name.plaintext.max.connections": "3", "max.connections": "2"})


def test_limits_change_while_connections_are_open(tmp_path: Path) -> None:
    async def scenario(node: Node, listener: Listener) -> None:
        async with connected(node) as first, connected(node) as waiting:
            assert await is_served(first)
            waiting.send(MetadataRequest(topics=[]), 12)
            await until(lambda: not listener.is_accepting)
            await alter(first, "", "max.connections", "7")
            assert (await waiting.receive(MetadataResponse, 12)).brokers
            await alter(first, "", "listener.name.plaintext.max.connections", "9")
            await until(lambda: listener.limits.connections_max == 9)
            await alter(first, "1", "max.connections.per.ip", "2")
            await until(lambda: listener.limits.connections_per_ip_max == 2)
            async with connected(node) as third:
                assert await is_closed(third)
            assert await is_served(waiting)

    with_node(tmp_path, scenario, max_connections="1")


def test_more_new_connections_than_a_second_may_have_wait_for_the_next_one(tmp_path: Path) -> None:
    async def scenario(node: Node, listener: Listener) -> None:
        async with AsyncExitStack() as open_ones:
            clients = [await open_ones.enter_async_context(connected(node)) for _ in range(5)]
            assert await is_served(clients[0])
            first = listener.second
            for client in clients[1:]:
                assert await is_served(client)
                assert listener.accepted <= 2
            assert listener.second >= first + 2  # five, of which a second has two at most

    with_node(tmp_path, scenario, max_connection_creation_rate="2")


def test_over_the_limit_of_its_address_a_client_is_closed_and_others_are_not(tmp_path: Path) -> None:
    async def scenario(node: Node, listener: Listener) -> None:
        async with connected(node) as first, connected(node) as second, connected(node) as third:
            assert await is_served(first)
            assert await is_served(second)
            assert await is_closed(third)
            with socket.create_connection(("127.0.0.1", port_of(node)), source_address=("127.0.0.9", 0)):
                await until(lambda: listener.by_host == {"127.0.0.1": 2, "127.0.0.9": 1})
            await until(lambda: listener.by_host == {"127.0.0.1": 2})
            second.writer.close()
            await until(lambda: listener.by_host == {"127.0.0.1": 1})
            async with connected(node) as fourth:
                assert await is_served(fourth)

    with_node(tmp_path, scenario, max_connections_per_ip="2", max_connections_per_ip_overrides="127.0.0.9:1")


def test_an_idle_connection_is_closed_and_one_that_waits_for_its_answer_is_not(tmp_path: Path) -> None:
    async def scenario(node: Node, listener: Listener) -> None:
        async with connected(node) as creating:
            await creating.create("awaited")
        async with connected(node) as waiting:
            waiting.send(fetch_request("awaited", max_wait_ms=WAIT_MS), 12)
            await until(lambda: bool(node.partitions.by_name["awaited"][0].readers))
            async with connected(node) as idle:
                assert await is_closed(idle)
                assert len(listener.connections) == 1
            async with connected(node) as producing:
                assert not await producing.produce("awaited", b"here")
            assert await waiting.fetched() == [b"here"]

    with_node(tmp_path, scenario, connections_max_idle_ms="200")


def framed(request: Message, version: int) -> bytes:
    return b"".join(encode_request(request, version, 1, "large"))  # type: ignore[arg-type]


def test_large_requests_wait_while_others_take_what_is_allowed(tmp_path: Path) -> None:
    async def scenario(node: Node, listener: Listener) -> None:
        large = framed(produce_request("things", b"x" * 600_000), 9)
        async with connected(node) as first, connected(node) as second, connected(node) as small:
            assert not await small.create("things")
            first.writer.write(large[:-1])
            await until(lambda: len(listener.reserved) == 1)
            second.writer.write(large)
            await until(lambda: len(listener.starved) == 1)
            assert await is_served(small)
            assert len(listener.reserved) == 1
            first.writer.write(large[-1:])
            for each in (first, second):
                answer = await each.receive(ProduceResponse, 9)
                assert not answer.responses[0].partition_responses[0].error_code
            assert not listener.reserved
            assert not listener.starved

    with_node(tmp_path, scenario, queued_max_request_bytes="1000000", socket_request_max_bytes="1000000")


def test_who_goes_in_the_middle_of_a_large_request_gives_others_its_room(tmp_path: Path) -> None:
    async def scenario(node: Node, listener: Listener) -> None:
        large = framed(produce_request("things", b"x" * 600_000), 9)
        async with connected(node) as first, connected(node) as second, connected(node) as small:
            assert not await small.create("things")
            first.writer.write(large[:-1])
            await until(lambda: len(listener.reserved) == 1)
            second.writer.write(large)
            await until(lambda: len(listener.starved) == 1)
            first.writer.close()
            answer = await second.receive(ProduceResponse, 9)
            assert not answer.responses[0].partition_responses[0].error_code

    with_node(tmp_path, scenario, queued_max_request_bytes="1000000", socket_request_max_bytes="1000000")
