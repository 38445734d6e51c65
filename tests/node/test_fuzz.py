"""Nothing that a client can send harms anybody but itself.

Some thousand cases, healthy and broken, go to a node in a process of its own. After each of them the next client is answered
rightly, and what was written before is still there; the node's log has no traceback, its memory a limit; and in the end it stops,
cleanly or by kill -9, and starts again on its folder with everything that must be kept.

`make fuzz` goes on for FUZZ_MINUTES. A failure names its seed: FUZZ_SEED=... in the environment sends the same again.
"""

import os
import random
import re
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import decode_response, encode_request
from odradek.wire.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from odradek.wire.records import Record, build
from tests.clients.server import Node
from tests.node.fuzzing import (
    KEPT,
    KEPT_GROUP,
    KEPT_TOPIC,
    REQUEST_BYTES_MAX,
    SENTINEL,
    TOPICS,
    WAITING,
    Case,
    World,
    decoded,
    make_case,
    split,
)
from tests.node.socket_client import Closed, SocketClient

SECONDS = float(os.environ.get("FUZZ_MINUTES", "0")) * 60 or 15
SEED = int(os.environ.get("FUZZ_SEED", "1"))
CASES_OF_A_ROUND = 5000
CASES_BETWEEN_CLEANINGS = 250
CASES_BETWEEN_CONTROLLERS = 10  # every tenth goes to the listener of the controller
RSS_BYTES_MAX = 450 * 1024 * 1024  # a batch may become 100 MB, and is once in parts and once as a whole while it does
KEPT_OFFSET = 42
WRONG = re.compile(r"Traceback|internal error|never retrieved|Exception in callback|could not be sent|CRITICAL")


class Round:
    """One node, from its first start to its last."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        folder.mkdir()
        self.node = Node(folder, socket_request_max_bytes=str(REQUEST_BYTES_MAX), log_cleaner_enable="true")
        self.world = World()
        self.kept = b""
        self.log_seen = 0
        self.number = 0

    def run(self, deadline: float) -> int:
        """Sends cases until the deadline, or until it has sent enough; gives how many."""
        self.node.start()
        try:
            with self.asking() as client:
                self.prepare(client)
            while self.number < CASES_OF_A_ROUND and time.monotonic() < deadline:
                case = make_case(random.Random(f"{self.seed}-{self.number}"), self.world)
                try:
                    self.send(case)
                    self.check()
                except (AssertionError, OSError, Closed) as error:
                    raise AssertionError(self.story(case, error)) from error
                self.number += 1
        finally:
            self.node.stop(signal.SIGKILL if self.seed % 2 else signal.SIGTERM)
        return self.number

    def story(self, case: Case, error: BaseException) -> str:
        path = self.node.folder / "case"
        path.write_bytes(case.stream)
        pieces = " ".join(piece.hex() for piece in case.pieces)
        return f"FUZZ_SEED={self.seed}, case {self.number}, {path}: {error!r}\n{pieces[:4000]}\n{self.node.output()[-4000:]}"

    # -- what must be kept

    @contextmanager
    def asking(self) -> Iterator[SocketClient]:
        with SocketClient(self.node.port) as client:
            yield client

    def prepare(self, client: SocketClient) -> None:
        self.create(client, {KEPT_TOPIC: {}, **TOPICS})
        batch = build([Record(number, 1_700_000_000_000, b"key", b"kept %d" % number) for number in range(100)])
        data = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(name=KEPT_TOPIC, partition_data=[data])
        produced = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9, ProduceResponse)
        assert not produced.responses[0].partition_responses[0].error_code
        client.ask(FindCoordinatorRequest(coordinator_keys=[KEPT_GROUP]), 4, FindCoordinatorResponse)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=KEPT_OFFSET)
        committed = OffsetCommitRequest.OffsetCommitRequestTopic(name=KEPT_TOPIC, partitions=[partition])
        answer = client.ask(OffsetCommitRequest(group_id=KEPT_GROUP, topics=[committed]), 8, OffsetCommitResponse)
        assert not answer.topics[0].partitions[0].error_code
        self.kept = self.read_kept(client)
        assert b"kept 99" in self.kept

    def create(self, client: SocketClient, topics: dict[str, dict[str, str]]) -> None:
        wanted = [
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=2,
                replication_factor=1,
                configs=[CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name, configs in topics.items()
        ]
        answer = client.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 7, CreateTopicsResponse)
        assert {topic.error_code for topic in answer.topics} <= {0, ErrorCode.TOPIC_ALREADY_EXISTS}, answer
        self.learn(client)

    def learn(self, client: SocketClient) -> None:
        found = client.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        self.world.topic_ids = {topic.name or "": topic.topic_id for topic in found.topics}

    def read_kept(self, client: SocketClient) -> bytes:
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        topic = FetchRequest.FetchTopic(topic=KEPT_TOPIC, partitions=[partition])
        answer = client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, topics=[topic]), 12, FetchResponse)
        (read,) = answer.responses[0].partitions
        assert not read.error_code
        return bytes(read.records or b"")

    def check(self) -> None:
        """The next client is served, and nothing has changed for it."""
        with self.asking() as client:
            assert self.read_kept(client) == self.kept
            group = OffsetFetchRequest(group_id=KEPT_GROUP, topics=None)
            offsets = client.ask(group, 7, OffsetFetchResponse)
            assert [part.committed_offset for topic in offsets.topics for part in topic.partitions] == [KEPT_OFFSET]
            if self.number % CASES_BETWEEN_CLEANINGS == CASES_BETWEEN_CLEANINGS - 1:
                self.clean(client)
        self.check_inside()

    def check_inside(self) -> None:
        assert self.node.process is not None
        assert self.node.process.poll() is None, "it has ended"
        with open(self.node.folder / "server.log", encoding="utf-8") as log:
            log.seek(self.log_seen)
            said = log.read()
            assert not WRONG.search(said), said
            self.log_seen = log.tell()
        status = Path(f"/proc/{self.node.process.pid}/status").read_text()
        peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
        assert peak <= RSS_BYTES_MAX, f"{peak // 2**20} MB"

    def clean(self, client: SocketClient) -> None:
        """Deletes the topics that came by chance, so that a long run has no more of them than a short one."""
        self.learn(client)
        gone = [name for name in self.world.topic_ids if name not in TOPICS and name not in KEPT]
        deleted = client.ask(DeleteTopicsRequest(topic_names=gone, timeout_ms=10_000), 5, DeleteTopicsResponse)
        assert not any(topic.error_code for topic in deleted.responses), deleted
        self.create(client, TOPICS)

    # -- sending

    def send(self, case: Case) -> None:
        """Whatever comes of it, the connection is answered or closed."""
        frames, missing = split(case.stream)
        sentinel = b"".join(encode_request(ApiVersionsRequest(), 0, SENTINEL, None))  # type: ignore[arg-type]
        may_wait = any(int.from_bytes(frame[:2], "big") in WAITING for frame in frames)
        port = self.node.port if self.number % CASES_BETWEEN_CONTROLLERS else self.node.controller_port
        with SocketClient(port) as client, suppress(Closed):
            for piece in case.pieces:
                client.send(piece)
            if missing == 0 and (case.is_healthy or not may_wait):
                client.send(sentinel)
                self.read_answers(client, case)
                return
            if missing is not None or may_wait:
                with suppress(OSError):  # it may be closed by now
                    client.socket.shutdown(socket.SHUT_WR)  # it waits, rightly, and the end of the line ends it
            while True:
                client.frame()

    def read_answers(self, client: SocketClient, case: Case) -> None:
        requests = [decoded(frame) for frame in case.frames] if case.is_healthy else []
        answered: list[int] = []
        while True:
            frame = client.frame()
            (correlation_id,) = struct.unpack_from(">i", frame)
            if correlation_id == SENTINEL:
                break
            if case.is_healthy:
                request = requests[correlation_id]
                assert request is not None
                self.understand(request[0], request[1], frame)
                answered.append(correlation_id)
        if case.is_healthy:  # a refused produce with acks=0 closes the connection, and then we do not come so far
            silent = [number for number, request in enumerate(requests) if request and getattr(request[2], "acks", 1) == 0]
            assert answered == [number for number in range(len(requests)) if number not in silent]

    def understand(self, key: int, version: int, frame: bytes) -> None:
        """An answer is one of the request's version; what it tells, later requests use."""
        answer = decode_response(APIS[key].response, frame, version)[1]
        if isinstance(answer, JoinGroupResponse) and answer.member_id:
            self.world.member_ids.append(answer.member_id)
        if isinstance(answer, FetchResponse) and answer.session_id:
            self.world.session_ids.append(answer.session_id)

    def start_again(self) -> None:
        """On its own folder, with what must be kept."""
        self.node.start()
        try:
            self.check()
        finally:
            self.node.stop()


@pytest.mark.parametrize("first_seed", [SEED])
def test_nothing_that_a_client_can_send_harms_anybody_else(tmp_path: Path, first_seed: int) -> None:
    deadline = time.monotonic() + SECONDS
    seed, cases = first_seed, 0
    while time.monotonic() < deadline:
        attempt = Round(tmp_path / str(seed), seed)
        cases += attempt.run(deadline)
        attempt.start_again()
        seed += 1
    assert cases > 0
