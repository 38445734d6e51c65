"""A slow disk delays those who need it, and nobody else: the loop never waits for it, but for the one write that shows it.

The disk has a gate. While the gate is closed nothing gets through, so whatever is answered did not wait for it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odradek.node.connection import Connection
from odradek.node.node import Node
from odradek.node.partition import Partition
from odradek.node.writing import FAST_WRITES_MIN
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from odradek.wire.records import Record, build
from tests.node.disks import Gate, SlowDisk, size_of
from tests.node.inside import Client, connected, fetch_request, new_node, produce_request, running, until

OK = ErrorCode.NONE


class Scene:
    """A node with two folders, a slow topic and a fast one, and three clients."""

    def __init__(self, node: Node, gate: Gate, clients: tuple[Client, Client, Client]) -> None:
        self.node = node
        self.gate = gate
        self.one, self.two, self.three = clients

    @property
    def slow(self) -> Partition:
        return self.node.partitions.by_name["slow"][0]

    @property
    def fast(self) -> Partition:
        return self.node.partitions.by_name["fast"][0]

    async def others_go_on(self) -> None:
        """Whoever does not need what is behind the gate is answered."""
        end = self.fast.log_end
        assert await self.three.produce("fast", b"through") == OK
        assert await self.three.fetch("fast", end) == [b"through"]
        assert (await self.three.ask(MetadataRequest(topics=[]), 12, MetadataResponse)).brokers

    @property
    def connections(self) -> list[Connection]:
        return [each for listener in self.node.listeners for each in listener.connections]

    async def turn_cold(self) -> None:
        """100 kB of the slow topic are no longer in memory."""
        for number in range(100):
            assert await self.one.produce("slow", b"%d" % number * 1000) == OK
        disk = self.slow.log.disk
        assert isinstance(disk, SlowDisk)
        disk.cold.add(self.slow.log.active.file.path)
        self.gate.close()

    async def turn_slow(self) -> None:
        """One write on the loop shows that the folder is slow."""
        self.gate.close()
        assert await self.one.produce("slow", b"first") == OK
        assert self.slow.writing.is_slow
        assert not self.fast.writing.is_slow


def play(folder: Path, operation: str, scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    """`operation` on the logs of the slow topic is what the gate is for; "sync metadata" is that of the metadata log."""
    what, _, which = operation.partition(" ")
    part = "/__cluster_metadata-0/" if which else "/slow-0/"

    async def run() -> None:
        gate = Gate(lambda done, path: done == what and part in path and path.endswith(".log"))
        async with running(new_node(folder, lambda: SlowDisk(gate), log_dirs="a,b")) as node:
            try:
                async with connected(node) as one, connected(node) as two, connected(node) as three:
                    assert await one.create("slow") == OK
                    assert await one.create("fast") == OK
                    scene = Scene(node, gate, (one, two, three))
                    assert scene.slow.writing is not scene.fast.writing
                    await scenario(scene)
            finally:
                gate.open()

    asyncio.run(run())


# -- writes


def test_writes_that_wait_for_the_disk_hold_up_nobody_else(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.turn_slow()
        scene.one.send(produce_request("slow", b"second"), 9)
        await until(lambda: scene.gate.waiting == 1)
        scene.two.send(produce_request("slow", b"third"), 9)
        await until(lambda: len(scene.slow.writing.tasks) == 2)
        await scene.others_go_on()
        assert await scene.three.fetch("slow") == [b"first"]
        assert scene.slow.high_watermark == scene.slow.log_end == 1
        scene.three.send(fetch_request("slow", 1, max_wait_ms=600_000), 12)
        await until(lambda: bool(scene.slow.readers))
        scene.gate.open()
        assert await scene.one.produced() == OK
        assert await scene.two.produced() == OK
        assert (await scene.three.fetched())[0] == b"second"
        assert await scene.three.fetch("slow") == [b"first", b"second", b"third"]

    play(tmp_path, "append", scenario)


def test_a_folder_that_is_fast_again_is_written_at_once(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.turn_slow()
        assert not scene.slow.is_plain
        scene.gate.open()
        for number in range(FAST_WRITES_MIN * 10):
            assert await scene.one.produce("slow", b"%d" % number) == OK
            if scene.slow.is_plain:
                break
        assert scene.slow.is_plain
        assert await scene.one.produce("slow", b"last") == OK
        assert (await scene.one.fetch("slow"))[-1] == b"last"

    play(tmp_path, "append", scenario)


def test_a_batch_that_comes_twice_while_the_first_is_written_is_one_batch(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.turn_slow()
        for client in (scene.one, scene.two):
            client.send(produce_request("slow", b"once", sequence=0), 9)
        await until(lambda: len(scene.slow.writing.tasks) == 2)
        scene.gate.open()
        assert await scene.one.produced() == OK
        assert await scene.two.produced() == OK
        assert await scene.one.fetch("slow") == [b"first", b"once"]
        assert await scene.one.produce("slow", b"next", sequence=1) == OK
        assert await scene.one.produce("slow", b"gap", sequence=9) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    play(tmp_path, "append", scenario)


def test_a_slow_write_that_finds_no_room_has_changed_nothing(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.turn_slow()
        disk = scene.slow.log.disk
        assert isinstance(disk, SlowDisk)
        for client in (scene.one, scene.two):
            client.send(produce_request("slow", b"never"), 9)
        await until(lambda: len(scene.slow.writing.tasks) == 2)
        disk.is_full = True
        scene.gate.open()
        assert await scene.one.produced() == ErrorCode.KAFKA_STORAGE_ERROR
        assert await scene.two.produced() == ErrorCode.KAFKA_STORAGE_ERROR
        disk.is_full = False
        assert await scene.one.produce("slow", b"later") == OK
        assert await scene.one.fetch("slow") == [b"first", b"later"]

    play(tmp_path, "append", scenario)


def test_a_folder_that_takes_long_to_say_that_it_is_full_is_slow_too(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        disk = scene.slow.log.disk
        assert isinstance(disk, SlowDisk)
        disk.is_full = True
        scene.gate.close()
        assert await scene.one.produce("slow", b"never") == ErrorCode.KAFKA_STORAGE_ERROR
        assert scene.slow.writing.is_slow
        scene.gate.open()
        disk.is_full = False

    play(tmp_path, "append", scenario)


def test_what_was_written_for_a_leader_that_is_one_no_longer_is_taken_back(tmp_path: Path) -> None:
    """The epoch of the next leader has begun where the log ended before it. Until then nobody else writes to the log."""

    async def scenario(scene: Scene) -> None:
        await scene.turn_slow()
        partition, log = scene.slow, scene.slow.log
        scene.one.send(produce_request("slow", b"late"), 9)
        await until(lambda: scene.gate.waiting == 1)
        with pytest.raises(Refused):
            partition.append_own(build([Record(0, 0, b"key", b"own")]), 0)
        partition.close()
        scene.gate.open()
        assert await scene.one.produced() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not log.is_being_written
        assert log.end_offset == 1
        assert size_of(log.active.file.path) == log.active.file.size == log.active.size

    play(tmp_path, "append", scenario)


def test_what_was_written_in_a_leader_epoch_that_is_over_is_taken_back_by_who_leads_the_next_one_too(tmp_path: Path) -> None:
    """Followers would cut it off, fetch it, and cut it off again, for ever."""

    async def scenario(scene: Scene) -> None:
        await scene.turn_slow()
        partition = scene.slow
        scene.one.send(produce_request("slow", b"second"), 9)
        await until(lambda: scene.gate.waiting == 1)
        state = scene.node.image.topics["slow"].partitions[0]
        partition.lead(replace(state, leader_epoch=state.leader_epoch + 1))
        scene.gate.open()
        assert await scene.one.produced() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log_end == partition.log.active.next_offset() == 1
        assert partition.log.epochs.epoch_for(1) == state.leader_epoch + 1
        assert await scene.two.produce("slow", b"third") == OK
        assert await scene.three.fetch("slow") == [b"first", b"third"]

    play(tmp_path, "append", scenario)


def test_a_topic_that_is_deleted_while_it_is_written(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.turn_slow()
        for client in (scene.one, scene.two):
            client.send(produce_request("slow", b"late"), 9)
        await until(lambda: len(scene.slow.writing.tasks) == 2)
        request = DeleteTopicsRequest(topic_names=["slow"], timeout_ms=10_000)
        assert not (await scene.three.ask(request, 5, DeleteTopicsResponse)).responses[0].error_code
        scene.gate.open()
        assert await scene.one.produced() in (OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await scene.two.produced() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await scene.three.create("slow") == OK
        assert await scene.three.produce("slow", b"anew") == OK
        assert await scene.three.fetch("slow") == [b"anew"]

    play(tmp_path, "append", scenario)


def test_a_stop_waits_for_what_is_being_written(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.turn_slow()
        scene.one.send(produce_request("slow", b"second"), 9)
        await until(lambda: scene.gate.waiting == 1)
        scene.node.loop.call_later(0.1, scene.gate.open)

    play(tmp_path, "append", scenario)

    async def look() -> None:
        async with running(new_node(tmp_path, log_dirs="a,b")) as node, connected(node) as client:
            assert all(folder.was_clean for folder in node.partitions.folders)
            assert await client.fetch("slow") == [b"first", b"second"]

    asyncio.run(look())


# -- reads and syncs


def test_a_read_of_what_is_not_in_memory_holds_up_nobody_else(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.turn_cold()
        scene.one.send(fetch_request("slow", 7), 12)
        await until(lambda: scene.gate.waiting == 1)
        await scene.others_go_on()
        assert await scene.three.produce("slow", b"last") == OK
        scene.gate.open()
        assert (await scene.one.fetched())[0] == b"7" * 1000

    play(tmp_path, "warm", scenario)


def test_a_batch_that_has_to_be_looked_for_on_the_disk_holds_up_nobody_else(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.turn_cold()
        scene.slow.log.active._boundaries.clear()  # as after a while
        scene.one.send(fetch_request("slow", 90), 12)
        await until(lambda: scene.gate.waiting == 1)
        await scene.others_go_on()
        scene.gate.open()
        assert (await scene.one.fetched())[0] == b"90" * 1000
        assert scene.gate.loop_waited == 0

    play(tmp_path, "warm", scenario)


def test_a_connection_that_a_thread_sends_on_keeps_its_descriptor_until_that_is_done(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.turn_cold()
        scene.one.send(fetch_request("slow", 0), 12)
        await until(lambda: scene.gate.waiting == 1)
        (sending,) = [each for each in scene.connections if each.is_elsewhere]
        scene.one.writer.close()
        await until(lambda: sending.is_closed)
        assert sending.socket.fileno() >= 0  # nobody else can get the number, and with it the bytes
        await scene.others_go_on()
        scene.gate.open()
        await until(lambda: sending.socket.fileno() < 0)
        await scene.others_go_on()

    play(tmp_path, "warm", scenario)


def test_much_is_sent_on_a_thread_and_a_reader_who_stops_holds_up_nobody(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        values = [bytes([number]) * 900_000 for number in range(10)]
        for value in values:
            assert await scene.one.produce("slow", value) == OK
        scene.two.send(fetch_request("slow", 0), 12)  # and does not read the answer yet
        await until(lambda: any(each.is_sending for each in scene.connections))
        await scene.others_go_on()
        assert await scene.two.fetched() == values
        assert not any(each.is_elsewhere for each in scene.connections)

    play(tmp_path, "warm", scenario)


def test_a_slow_sync_of_the_metadata_delays_changes_of_it_alone(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        scene.gate.close()
        wanted = CreateTopicsRequest.CreatableTopic(name="late", num_partitions=1, replication_factor=1)
        scene.one.send(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
        await until(lambda: scene.gate.waiting == 1)
        await scene.others_go_on()
        assert await scene.three.produce("slow", b"first") == OK
        assert "late" not in scene.node.image.topics
        scene.gate.open()
        assert not (await scene.one.receive(CreateTopicsResponse, 7)).topics[0].error_code
        assert await scene.one.produce("late", b"here") == OK

    play(tmp_path, "sync metadata", scenario)


def test_a_sync_before_the_answer_delays_that_answer_alone(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        request = DeleteTopicsRequest(topic_names=["slow"], timeout_ms=10_000)
        assert not (await scene.three.ask(request, 5, DeleteTopicsResponse)).responses[0].error_code
        assert await scene.one.create("slow", flush_messages="1") == OK
        scene.gate.close()
        scene.one.send(produce_request("slow", b"first"), 9)
        await until(lambda: scene.gate.waiting == 1)
        await scene.others_go_on()
        assert await scene.three.fetch("slow") == [b"first"]
        scene.gate.open()
        assert await scene.one.produced() == OK

    play(tmp_path, "sync", scenario)
