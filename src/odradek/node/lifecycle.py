"""The broker of this node in its cluster: it registers, says that it lives, and leaves in good order.

    starting   registered and fenced: it catches up with the metadata, and opens its logs
    running    unfenced: it may lead
    leaving    a clean stop: the controller gives its leaderships to others first

Invariants
 1. Heartbeats go on, one after the other, from the registration until the controller lets the broker go.
 2. The session is told of every answered heartbeat, by when it was sent. One that had ended goes on only when the broker knows
    all that was committed meanwhile.
 3. Nothing here decides who leads: that is in the metadata, which the broker follows.
 4. Every heartbeat names all folders that have failed since the registration. One of which no controller hears in time ends the
    node: then its partitions get other leaders too.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from odradek.core.metadata.topic_names import CLUSTER_METADATA
from odradek.core.partition.broker_session import BrokerSession
from odradek.node.controller_link import ControllerLink
from odradek.node.errors import StartFailed
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)

SOON_MS: Final = 10  # until the next heartbeat, while something is waited for
RETRY_MS_MIN: Final = 100
RETRY_MS_MAX: Final = 2_000
UNANSWERED_MS_MAX: Final = 2_000  # that a broker which wants to leave waits for a word of the controller
HOPELESS: Final = frozenset(
    {ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION, ErrorCode.INVALID_REQUEST}
)

logger = logging.getLogger("odradek.lifecycle")


class Lifecycle:
    def __init__(
        self,
        link: ControllerLink,
        registration: BrokerRegistrationRequest,
        metadata_offset: Callable[[], int],
        session: BrokerSession,
        on_certain: Callable[[], None],
        on_failure: Callable[[BaseException], None],
        *,
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        registration_timeout_ms: int,
        log_dir_failure_timeout_ms: int,
    ) -> None:
        self.link = link
        self.registration = registration
        self.metadata_offset = metadata_offset
        self.session = session
        self.on_certain = on_certain
        self.on_failure = on_failure
        self.heartbeat_interval_ms = heartbeat_interval_ms
        self.session_timeout_ms = session_timeout_ms
        self.registration_timeout_ms = registration_timeout_ms
        self.log_dir_failure_timeout_ms = log_dir_failure_timeout_ms
        self.boot_ms = link.machine.boot_ms
        self.loop = asyncio.get_running_loop()
        self._answered_s = self.loop.time()
        self.offline_log_dirs: dict[bytes, bool] = {}  # since the registration, and whether the controller knows
        self.wants_fence = True
        self.wants_shut_down = False
        self._now = asyncio.Event()  # a heartbeat is wanted before its time
        self._caught_up: asyncio.Future[None] = self.loop.create_future()
        self._unfenced: asyncio.Future[None] = self.loop.create_future()
        self._released: asyncio.Future[None] = self.loop.create_future()
        self._beating: asyncio.Task[None] | None = None

    # -- coming

    async def register(self) -> None:
        """Makes the broker known; the session has its epoch then. StartFailed when no controller takes it."""
        deadline = self.loop.time() + self.registration_timeout_ms / 1000
        pause_ms = RETRY_MS_MIN
        code, reason = ErrorCode.REQUEST_TIMED_OUT, "no controller has answered"
        while self.loop.time() < deadline:
            left_ms = (deadline - self.loop.time()) * 1000
            try:
                answer = await self.link.ask(self.registration, BrokerRegistrationResponse, left_ms)
                code, reason = ErrorCode(answer.error_code), ErrorCode(answer.error_code).name
            except Refused as refused:
                code, reason = refused.code, refused.message
            if code == ErrorCode.NONE:
                self.session.registered(answer.broker_epoch)
                self._beating = self.loop.create_task(self._beat())
                return
            if code in HOPELESS:
                break
            logger.info("the controller does not register this broker yet: %s", reason)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, RETRY_MS_MAX)
        node_id = self.registration.broker_id
        raise StartFailed(f"node.id={node_id} cannot join its cluster: {reason}; look at what the active controller says")

    async def caught_up(self) -> None:
        """Until the controller finds that this broker knows the metadata."""
        await self._caught_up

    async def unfence(self) -> None:
        """Until the broker may lead."""
        self.wants_fence = False
        self._now.set()
        await self._unfenced

    # -- living

    def log_dir_failed(self, directory_id: bytes) -> None:
        """A folder of the registration has failed. As long as the controller does not know, nobody leads what is in it."""
        self.offline_log_dirs[directory_id] = False
        self._now.set()
        self.loop.call_later(self.log_dir_failure_timeout_ms / 1000, self._check_told, directory_id)

    def _check_told(self, directory_id: bytes) -> None:
        if not self.offline_log_dirs[directory_id]:
            waited_ms = self.log_dir_failure_timeout_ms
            self.on_failure(
                TimeoutError(f"no controller took notice of a failed folder in log.dir.failure.timeout.ms={waited_ms}")
            )

    async def _beat(self) -> None:
        pause_ms = RETRY_MS_MIN
        while not self._released.done():
            self._now.clear()
            if await self._heartbeat():
                pause_ms = RETRY_MS_MIN
                waits = not self._unfenced.done() or self.wants_shut_down
                delay_ms = SOON_MS if waits else self.heartbeat_interval_ms
            else:
                delay_ms, pause_ms = pause_ms, min(2 * pause_ms, RETRY_MS_MAX)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_ms / 1000):
                    await self._now.wait()

    async def _heartbeat(self) -> bool:
        """One of them; whether it was taken."""
        sent_ms = self.boot_ms()
        request = BrokerHeartbeatRequest(
            broker_id=self.registration.broker_id,
            broker_epoch=self.session.broker_epoch,
            current_metadata_offset=self.metadata_offset(),
            want_fence=self.wants_fence,
            want_shut_down=self.wants_shut_down,
            offline_log_dirs=list(self.offline_log_dirs),
        )
        try:
            answer = await self.link.ask(request, BrokerHeartbeatResponse, self.session_timeout_ms // 2)  # so there is another
        except Refused as refused:
            logger.warning("a heartbeat was not answered: %s", refused.message)
            return False
        if answer.error_code:
            logger.warning("a heartbeat was answered with %s", ErrorCode(answer.error_code).name)
            return False
        self._answered_s = self.loop.time()
        self.offline_log_dirs |= dict.fromkeys(request.offline_log_dirs, True)
        if answer.is_fenced:
            self.session.fenced()
        else:
            self.session.heartbeat_answered(sent_ms, self.boot_ms())
            if not self.session.is_certain(self.boot_ms()):
                await self._confirm()
        if answer.is_caught_up and not self._caught_up.done():
            self._caught_up.set_result(None)
        if not answer.is_fenced and not self._unfenced.done():
            self._unfenced.set_result(None)
        if answer.should_shut_down and not self._released.done():
            self._released.set_result(None)
        return True

    async def _confirm(self) -> None:
        """Until this broker knows what was committed when it asked: only then may it lead what it thinks that it leads."""
        asked_ms = self.boot_ms()
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
        with suppress(Refused, TimeoutError):
            answer = await self.link.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, self.session_timeout_ms)
            found = answer.topics[0].partitions[0]
            async with asyncio.timeout(self.heartbeat_interval_ms / 1000):
                while self.metadata_offset() + 1 < found.high_watermark:  # noqa: ASYNC110 - it moves with every record
                    await asyncio.sleep(SOON_MS / 1000)
            if not found.error_code and self.session.metadata_confirmed(asked_ms, self.boot_ms()):
                self.on_certain()

    # -- leaving

    async def shut_down(self, timeout_ms: float) -> bool:
        """Has the controller give the leaderships of this broker to others; whether it did so in time. Where no controller
        answers any more, as when the whole cluster stops, nobody is waited for."""
        self.wants_shut_down = True
        self._now.set()
        begin_s = self.loop.time()
        while not self._released.done():
            await asyncio.wait([self._released], timeout=SOON_MS / 1000)
            now_s = self.loop.time()
            unanswered_ms = (now_s - max(self._answered_s, begin_s)) * 1000
            if unanswered_ms > UNANSWERED_MS_MAX or (now_s - begin_s) * 1000 > timeout_ms:
                return self._released.done()
        return True

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            with suppress(asyncio.CancelledError):
                await self._beating
