"""Many clients, slow ones and greedy ones: each costs a node little, and none costs another client anything.

Ten thousand connections are real ones, to a node in a process of its own. What a node still holds when they have gone is looked
at in a node inside the test.
"""

import asyncio
import gc
import resource
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from odradek.api.context import Context
from odradek.api.fetch import Fetch
from odradek.node.connection import ANSWERS_BYTES_MAX, FRAMES_MAX, INBOX_BYTES
from odradek.node.node import Node as InsideNode
from odradek.node.timers import Timer
from odradek.wire.compression import Codec
from odradek.wire.frames import decode_response, encode_request
from odradek.wire.message import Message
from odradek.wire.messages import FetchResponse, MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse
from tests.clients.server import Node
from tests.clients.waiting import until as until_seen
from tests.kafka.broker import Broker
from tests.node.fuzzed_batches import bomb
from tests.node.inside import connected, fetch_request, new_node, port_of, produce_request, running, until, values_in
from tests.node.socket_client import SocketClient

CLIENTS = 10_000
CLIENTS_OF_AN_ADDRESS = 5_000  # so that ports do not run out, whatever else is tested at the same time
IP_BIND_ADDRESS_NO_PORT = 24  # of Linux: the port is chosen by connect, which is much faster where many are taken
RSS_BYTES_MAX = 200 * 1024 * 1024
BOMBS_BYTES_MAX = 550 * 1024 * 1024  # two at a time, once in parts and once as a whole
FILES_WANTED = CLIENTS + 500
WAIT_MS = 600_000
ROUNDS = 13
WARM_ROUNDS = 7  # until there is all the memory that a round needs: what was seen grows so long, and then stays for ever
SOCKETS_OF_ITS_OWN_MAX = 20
CLIENTS_OF_A_ROUND = 2_000
LEFT_BYTES_MAX = 4 * 1024 * 1024  # five rounds that leave half a kB of each connection are 5 MB
SILENCE_SECONDS_MAX = 30
OTHER = 77  # the correlation id of the one who waits for its turn


def rss_bytes(server: Broker) -> int:
    return memory_bytes(server, "VmRSS:")


def peak_bytes(server: Broker) -> int:
    return memory_bytes(server, "VmHWM:")


def memory_bytes(server: Broker, which: str) -> int:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition(which)[2].split()[0]) * 1024


def open_sockets(server: Broker) -> int:
    assert server.process is not None
    found = 0
    for path in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += path.readlink().name.startswith("socket:")
    return found


def framed(request: Message, version: int, correlation_id: int = 1) -> bytes:
    return b"".join(encode_request(request, version, correlation_id, "many"))  # type: ignore[arg-type]


@pytest.fixture
def many_files() -> Iterator[None]:
    """Enough descriptors for the test's own side of the connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def many_connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        made = []
        for number in range(count):
            client = stack.enter_context(socket.socket())
            client.settimeout(SILENCE_SECONDS_MAX)
            client.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            client.bind((f"127.0.0.{2 + number // CLIENTS_OF_AN_ADDRESS}", 0))
            client.connect(("127.0.0.1", port))
            made.append(client)
        yield made


def answers(clients: list[socket.socket]) -> list[bytes]:
    """One answer to each; AssertionError when for a while none comes."""
    found: dict[socket.socket, bytes] = {}
    with selectors.DefaultSelector() as selector:
        for client in clients:
            found[client] = b""
            selector.register(client, selectors.EVENT_READ)
        left = len(clients)
        while left:
            ready = selector.select(SILENCE_SECONDS_MAX)
            assert ready, f"{left} of {len(clients)} were not answered"
            for key, _ in ready:
                answered = key.fileobj
                assert isinstance(answered, socket.socket)
                part = answered.recv(65536)
                assert part, "a connection was closed"
                data = found[answered] = found[answered] + part
                if len(data) >= 4 and len(data) == 4 + int.from_bytes(data[:4], "big"):
                    selector.unregister(answered)
                    left -= 1
    return [found[client][4:] for client in clients]


def create(client: SocketClient, topic: str) -> None:
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    client.ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=True), 9, MetadataResponse)


def values_of(response: FetchResponse) -> list[bytes]:
    return values_in(bytes(response.responses[0].partitions[0].records or b""))


def test_ten_thousand_connections_and_as_many_waiting_fetches(tmp_path: Path, many_files: None) -> None:
    server = Node(tmp_path, socket_listen_backlog_size="4096")  # all of them come at once
    with server.running(), SocketClient(server.port) as client:
        create(client, "awaited")
        create(client, "other")
        with many_connections(server.port, CLIENTS) as clients:
            assert client.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
            assert rss_bytes(server) < RSS_BYTES_MAX
            request = framed(fetch_request("awaited", max_wait_ms=WAIT_MS), 12)
            for waiting in clients:
                waiting.sendall(request)
            with SocketClient(server.port) as newcomer:
                for number in range(200):
                    produced = newcomer.ask(produce_request("other", b"%d" % number), 9, ProduceResponse)
                    assert not produced.responses[0].partition_responses[0].error_code
                    fetched = newcomer.ask(fetch_request("other", number), 12, FetchResponse)
                    assert values_of(fetched) == [b"%d" % number]
            assert rss_bytes(server) < RSS_BYTES_MAX
            client.ask(produce_request("awaited", b"here"), 9, ProduceResponse)
            for answer in answers(clients):
                assert values_of(decode_response(FetchResponse, answer, 12)[1]) == [b"here"]
            assert rss_bytes(server) < RSS_BYTES_MAX
        assert client.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
    assert "Traceback" not in server.output()


def test_the_memory_of_clients_that_have_gone_is_used_again(tmp_path: Path, many_files: None) -> None:
    """Each of them asks, produces, and leaves a fetch behind that waits."""
    server = Node(tmp_path, socket_listen_backlog_size="4096")
    requests = [
        framed(MetadataRequest(topics=None), 12),
        framed(produce_request("things", b"one"), 9),
        framed(fetch_request("read"), 12),
    ]
    waiting = framed(fetch_request("awaited", max_wait_ms=WAIT_MS), 12)
    with server.running(), SocketClient(server.port) as client:
        create(client, "awaited")
        create(client, "things")
        create(client, "read")
        client.ask(produce_request("read", b"one"), 9, ProduceResponse)
        left_bytes = []
        for _ in range(ROUNDS):
            with many_connections(server.port, CLIENTS_OF_A_ROUND) as clients:
                for request in requests:
                    for each in clients:
                        each.sendall(request)
                    assert len(answers(clients)) == CLIENTS_OF_A_ROUND
                for each in clients:
                    each.sendall(waiting)
                assert client.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
            until_seen(lambda: open_sockets(server) < SOCKETS_OF_ITS_OWN_MAX, "the end of all connections")
            left_bytes.append(rss_bytes(server))
        assert left_bytes[-1] - left_bytes[WARM_ROUNDS] < LEFT_BYTES_MAX, left_bytes
    assert "Traceback" not in server.output()


def test_a_client_that_pipelines_ten_thousand_requests(tmp_path: Path) -> None:
    server = Node(tmp_path)
    with server.running(), SocketClient(server.port) as client:
        create(client, "things")
        requests = b"".join(framed(MetadataRequest(topics=None), 12, number) for number in range(10_000))
        sending = threading.Thread(target=client.send, args=(requests,))
        sending.start()
        for number in range(10_000):
            correlation_id, answer = decode_response(MetadataResponse, client.frame(), 12)
            assert correlation_id == number
            assert answer.topics[0].name == "things"
        sending.join()


# -- what a node holds, looked at inside it


def counted(node: InsideNode, key: int, then: Callable[[Context], None]) -> None:
    """Tells of every request of an API that is handled."""
    listener = next(listener for listener in node.listeners if not listener.is_controller)
    served = listener.handlers[key]

    def handle(request: Message, ctx: Context) -> object:
        then(ctx)
        return served.handle(request, ctx)

    listener.handlers = {**listener.handlers, key: served._replace(handle=handle)}


def test_who_has_sent_much_gives_others_their_turn(tmp_path: Path) -> None:
    async def run() -> None:
        handled: Counter[int] = Counter()
        before_the_other: list[int] = []

        def note(ctx: Context) -> None:
            handled[ctx.correlation_id] += 1
            if ctx.correlation_id == OTHER:
                before_the_other.append(handled.total())

        async with running(new_node(tmp_path)) as node:
            counted(node, MetadataRequest.schema.key, note)
            address = ("127.0.0.1", port_of(node))
            with socket.create_connection(address) as greedy, socket.create_connection(address) as other:
                await until(lambda: len(node.listeners[0].connections) == 2)
                greedy.sendall(framed(MetadataRequest(topics=[]), 12) * 2000)
                other.sendall(framed(MetadataRequest(topics=[]), 12, OTHER))
                await until(lambda: handled.total() == 2001)
        assert before_the_other[0] <= FRAMES_MAX + 1

    asyncio.run(run())


def test_a_client_that_never_reads_holds_little_and_stops_only_itself(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("wide", partitions=2000)
            await until(lambda: len(node.partitions.by_name.get("wide", ())) == 2000)  # on a busy disk after the answer
            request = framed(MetadataRequest(topics=None), 12)
            answer_bytes = len((await client.ask(MetadataRequest(topics=None), 12, MetadataResponse)).to_bytes(12))
            with socket.create_connection(("127.0.0.1", port_of(node))) as greedy:
                greedy.setblocking(False)
                await until(lambda: len(node.listeners[0].connections) == 2)
                connection = [*node.listeners[0].connections][-1]
                with suppress(BlockingIOError):
                    greedy.send(request * 5000)
                await until(lambda: not connection.is_reading)
                held_bytes = sum(map(len, connection.out)) + connection.answers_bytes + len(connection.held)
                assert held_bytes <= ANSWERS_BYTES_MAX + answer_bytes + INBOX_BYTES
                assert await client.fetch("wide") == []
                assert not connection.is_closed

    asyncio.run(run())


def test_nothing_is_left_of_clients_that_have_gone(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("awaited")
            (listener,) = [listener for listener in node.listeners if not listener.is_controller]
            partition = node.partitions.by_name["awaited"][0]
            timers = len(waiting_timers(node))
            async with AsyncExitStack() as stack:
                clients = [await stack.enter_async_context(connected(node)) for _ in range(300)]
                for each in clients:
                    each.send(fetch_request("awaited", max_wait_ms=WAIT_MS), 12)
                await until(lambda: len(partition.readers) == 300)
                assert len(waiting_timers(node)) == timers + 300
            await until(lambda: len(listener.connections) == 1)
            assert not partition.readers
            assert len(waiting_timers(node)) == timers
            assert listener.by_host == {"127.0.0.1": 1}
            assert not listener.reserved
            assert not listener.starved
            gc.collect()
            assert not [found for found in gc.get_objects() if isinstance(found, Fetch)]

    asyncio.run(run())


def waiting_timers(node: InsideNode) -> list[Timer]:
    return [timer for bucket in node.timers._buckets.values() for timer in bucket]


def test_bombs_that_come_together_are_looked_into_a_few_at_a_time(tmp_path: Path) -> None:
    """Each becomes a hundred megabytes before it is refused."""
    server = Node(tmp_path)
    with server.running(), SocketClient(server.port) as client:
        create(client, "things")
        data = ProduceRequest.PartitionProduceData(index=0, records=bomb(Codec.ZSTD))
        topics = [ProduceRequest.TopicProduceData(name="things", partition_data=[data])]
        request = framed(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)
        with many_connections(server.port, 30) as clients:
            for each in clients:
                each.sendall(request)
            for answer in answers(clients):
                response = decode_response(ProduceResponse, answer, 9)[1]
                assert response.responses[0].partition_responses[0].error_code
        assert peak_bytes(server) < BOMBS_BYTES_MAX
        produced = client.ask(produce_request("things", b"sound"), 9, ProduceResponse)
        assert produced.responses[0].partition_responses[0].base_offset == 0
