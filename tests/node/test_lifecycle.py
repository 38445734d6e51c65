"""A broker tells the controller of folders that failed, in every heartbeat; when no controller hears of one in time, it ends. And
it leads as long as it is heard of."""

import asyncio
from pathlib import Path

from odradek.core.partition.broker_session import BrokerSession
from odradek.core.raft.effects import AppendControl
from odradek.node.lifecycle import Lifecycle
from odradek.node.machine import Machine
from odradek.wire.control import ControlType
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message
from odradek.wire.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest
from tests.core.raft.memory import voter_of
from tests.node.inside import new_node, running

FOLDER, OTHER = b"f" * 16, b"o" * 16
SECONDS_MAX = 20
DAY_MS = 24 * 3600 * 1000


class Link:
    """A way to a controller that answers, or does not."""

    def __init__(self, *, is_silent: bool) -> None:
        self.is_silent = is_silent
        self.heartbeats: list[BrokerHeartbeatRequest] = []
        self.machine = Machine()

    async def ask(self, request: Message, _response: type[Message], _timeout_ms: float, _purpose: str = "") -> Message:
        assert isinstance(request, BrokerHeartbeatRequest)
        self.heartbeats.append(request)
        if self.is_silent:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "no active controller has answered in time")
        return BrokerHeartbeatResponse(is_fenced=True)


def broker(link: Link, failed: "asyncio.Future[BaseException]", timeout_ms: int) -> Lifecycle:
    return Lifecycle(
        link,  # type: ignore[arg-type]
        BrokerRegistrationRequest(broker_id=1),
        lambda: 0,
        BrokerSession(9_000),
        lambda: None,
        failed.set_result,
        heartbeat_interval_ms=2_000,
        session_timeout_ms=9_000,
        registration_timeout_ms=60_000,
        log_dir_failure_timeout_ms=timeout_ms,
    )


def test_a_broker_ends_when_no_controller_hears_of_a_folder_that_failed() -> None:
    async def run() -> None:
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        life = broker(Link(is_silent=True), failed, 1)
        life.log_dir_failed(FOLDER)
        assert not await life._heartbeat()
        async with asyncio.timeout(SECONDS_MAX):
            assert "log.dir.failure.timeout.ms=1" in str(await failed)

    asyncio.run(run())


def test_every_heartbeat_names_all_folders_that_failed_and_what_is_known_ends_no_broker() -> None:
    async def run() -> None:
        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        link = Link(is_silent=False)
        life = broker(link, failed, 600_000)
        for folder in (FOLDER, OTHER):
            life.log_dir_failed(folder)
            assert await life._heartbeat()
        assert [each.offline_log_dirs for each in link.heartbeats] == [[FOLDER], [FOLDER, OTHER]]
        for folder in (FOLDER, OTHER):
            life._check_told(folder)
        assert not failed.done()

    asyncio.run(run())


def test_who_voted_alone_leads_as_long_as_it_is_heard_of_once_others_vote_too(tmp_path: Path) -> None:
    """One of them may come to control the cluster, and this node be cut off: it would tell old offsets for ever."""

    async def run() -> None:
        async with running(new_node(tmp_path)) as node:
            quorum, later_ms = node.quorum, node.machine.boot_ms() + DAY_MS
            offset, voters = quorum.end_offset, quorum.voters.with_added(voter_of(2)).to_record()
            assert node.session.is_certain(later_ms)
            quorum.machine._quorum.history.note(offset, voters)
            quorum._do(AppendControl([(ControlType.KRAFT_VOTERS, voters)], offset, quorum.epoch))
            assert node.session.is_certain(node.machine.boot_ms())
            assert not node.session.is_certain(later_ms)
            quorum.machine._quorum.history.truncate(offset)  # so that it can stop

    asyncio.run(run())
