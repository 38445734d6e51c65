"""metadata.max.idle.interval.ms: an empty record where nothing else is written to the metadata log."""

import asyncio
from pathlib import Path

import pytest

from odradek.node.quorum import Quorum
from odradek.node.reserve import Reserve
from odradek.wire.message import Message
from odradek.wire.messages import NoOpRecord, TopicRecord
from tests.log.disk import SimDisk
from tests.node.inside import new_node, running, until
from tests.node.metadata import CONFIG, TickingMachine, formatted, started

FOLDER = "/disk/data"


def new_disk() -> SimDisk:
    disk = SimDisk()
    formatted(disk, FOLDER)
    return disk


def test_an_empty_record_is_written_only_where_nothing_else_was() -> None:
    async def story() -> None:
        disk = new_disk()
        quorum = (await started(disk, FOLDER)).quorum
        committed: list[Message] = []
        quorum.on_commit(lambda entries: committed.extend(record for _, record in entries))
        topic = TopicRecord(name="t", topic_id=b"0123456789abcdef")
        quorum.append_if_idle()  # the first look
        quorum.append_if_idle()
        quorum.append_if_idle()
        quorum.append([(topic, 0)])
        quorum.append_if_idle()
        quorum.append_if_idle()
        await quorum.commit(quorum.end_offset - 1)
        assert committed == [NoOpRecord(), NoOpRecord(), topic, NoOpRecord()]
        await quorum.close()
        assert Quorum(disk, FOLDER, CONFIG, TickingMachine()).end_offset == quorum.end_offset

    asyncio.run(story())


def test_without_room_there_is_none_and_the_reserve_stays() -> None:
    async def story() -> None:
        disk = new_disk()
        quorum = (await started(disk, FOLDER)).quorum
        quorum.reserve = Reserve(disk, FOLDER, 1000)
        disk.reserve(quorum.reserve.path, 1000)
        quorum.reserve.made()
        quorum.append_if_idle()
        end_offset, disk.room = quorum.end_offset, 0
        quorum.append_if_idle()
        assert (quorum.end_offset, quorum.reserve.is_there) == (end_offset, True)
        disk.room = None
        quorum.append_if_idle()
        assert quorum.end_offset == end_offset + 1
        await quorum.close()

    asyncio.run(story())


@pytest.mark.parametrize(("interval_ms", "writes"), [("1", True), ("0", False)])
def test_a_node_writes_them_as_long_as_it_runs_unless_told_not_to(tmp_path: Path, interval_ms: str, writes: bool) -> None:
    async def story() -> None:
        node = new_node(tmp_path, metadata_max_idle_interval_ms=interval_ms)
        async with running(node):
            quorum, end_offset = node.quorum, node.quorum.end_offset
            if writes:
                await until(lambda: quorum.committed_offset > end_offset + 3)
        assert len(node.stops) == (2 if writes else 1)
        async with running(new_node(tmp_path, metadata_max_idle_interval_ms="0")) as again:
            assert again.quorum.image.offset >= quorum.end_offset  # nothing was written behind a clean stop

    asyncio.run(story())
