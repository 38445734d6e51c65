"""The host of the controller: what it decides goes into the metadata log, and is answered when it is committed.

The controller is active while its node leads the quorum. What has to be looked for now and then is looked for here: brokers that
fell silent, leaders that are not the preferred ones.

Invariants
 1. Append, then replay, without anything in between: the next decision sees the last one.
 2. An answer is given after the commit, and after the broker's image has replayed the records.
 3. When the append is refused, nothing was decided.
 4. A node that leads no more has no controller: with it goes all that was decided and not committed.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from odradek.core.controller.controller import Controller, ControllerConfig
from odradek.core.controller.decision import Decision
from odradek.core.controller.quorum import QuorumStatus, ReplicaStatus
from odradek.core.metadata.brokers import Broker
from odradek.log.disk import DiskFailed
from odradek.node.peers import is_listening
from odradek.node.quorum import Quorum
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message

MS_PER_SECOND: Final = 1000
PROBE_MS: Final = 1000
PROBE_PAUSE_MS: Final = 100
SLEPT_MS_MIN: Final = 2000  # between two looks at the clock: the process was stopped, or the machine
LOOK_MS: Final = 500  # at most, until it looks again whose session is over

PERIODIC: Final[dict[str, Callable[[Controller], Decision[bool]]]] = {
    "balance": Controller.balance_leaders,
    "unclean": Controller.elect_unclean_leaders,
}

Answer = TypeVar("Answer")

logger = logging.getLogger("odradek.controller")


class ControllerHost:
    def __init__(
        self,
        quorum: Quorum,
        config: ControllerConfig,
        balance_interval_ms: int = 0,
        unclean_interval_ms: int = 0,
    ) -> None:
        """Leaders are balanced, and unclean ones elected, once in the interval, if it is not 0."""
        self.quorum = quorum
        self.config = config
        self.intervals_ms = {"balance": balance_interval_ms, "unclean": unclean_interval_ms}
        self.controller: Controller | None = None
        self.bootstrap: Sequence[Message] = ()
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms: dict[str, int] = {}
        self._asked_ms = self._slept_ms = 0
        self._works: dict[str, asyncio.Task[None]] = {}
        quorum.on_active = self._activate
        quorum.on_inactive = self._deactivate

    def monotonic_ms(self) -> int:
        """Time in which this process was there: who could not listen does not judge who was silent, so that it stands still while
        the process, or its machine, is stopped."""
        now_ms = int(self.quorum.host.seconds() * MS_PER_SECOND)
        if now_ms - self._asked_ms > SLEPT_MS_MIN:
            self._slept_ms += now_ms - self._asked_ms
        self._asked_ms = now_ms
        return now_ms - self._slept_ms

    @property
    def is_active(self) -> bool:
        return self.controller is not None

    async def start(self, bootstrap: Sequence[Message]) -> None:
        """Takes part in the quorum. `bootstrap` are the records of bootstrap.checkpoint, for a log that is empty. A node that is
        the only voter is active when this returns."""
        self.bootstrap = bootstrap
        self.quorum.start()
        if self.quorum.voters.ids == [self.config.node_id]:
            while not self.is_active:
                if self.quorum.failure is not None:
                    raise self.quorum.failure
                await asyncio.sleep(0)
            await self.quorum.commit(self.quorum.end_offset - 1)

    def _activate(self) -> None:
        """This node leads, and everything that others decided is in the image."""
        self.controller = Controller(self.quorum.image.copy(), self.config, self.monotonic_ms())
        try:
            self._decide(lambda controller: controller.activate(self.bootstrap))
        except (Refused, DiskFailed) as error:
            logger.error("the controller cannot begin: %s", error)
        now_ms = self.monotonic_ms()
        self._due_ms = {name: now_ms + interval for name, interval in self.intervals_ms.items()}
        self._watch()
        for broker in self.controller.image.brokers.values():  # one may have ended together with who led before, or been here
            self.broker_lost(broker.id, broker.epoch)

    def _deactivate(self) -> None:
        self.controller = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def submit(self, decide: Callable[[Controller], Decision[Answer]]) -> Answer:
        """Has the controller decide. Refused when it refuses the whole request, the disk does, or it is not here."""
        try:
            offset, response = self._decide(decide)
            await self.quorum.commit(offset)
        except DiskFailed as error:  # the node ends
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata cannot be written: {error.strerror or error}") from error
        return response

    def _decide(self, decide: Callable[[Controller], Decision[Answer]]) -> tuple[int, Answer]:
        controller, quorum = self.controller, self.quorum
        if controller is None:
            raise Refused(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
        controller.next_offset = quorum.end_offset
        controller.kraft_version = quorum.kraft_version
        controller.voters = quorum.machine.told_voters
        decision = decide(controller)
        if decision.kraft_version is not None:
            quorum.upgrade(decision.kraft_version)
        offset = quorum.end_offset - 1
        for batch in decision.batches():
            offset = quorum.append(batch)
            controller.replay(batch)
        return offset, decision.response

    # -- now and then

    def _watch(self) -> None:
        """Looks at the time, and has done what is due."""
        loop, now_ms, controller = asyncio.get_running_loop(), self.monotonic_ms(), self.controller
        assert controller is not None
        self._timer = loop.call_later(LOOK_MS / 1000, self._watch)
        expiry_ms = controller.sessions.next_expiry_ms()
        if expiry_ms is not None and expiry_ms <= now_ms:
            self._begin("fence", partial(self._repeat, lambda active: active.fence_stale(self.monotonic_ms())))
        for name, decide in PERIODIC.items():
            if self.intervals_ms[name] and now_ms >= self._due_ms.get(name, now_ms):
                self._due_ms[name] = now_ms + self.intervals_ms[name]
                self._begin(name, partial(self._repeat, decide))

    def _begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if name not in self._works:
            self._works[name] = asyncio.get_running_loop().create_task(self._run(name, work))

    async def _run(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Refused as refused:
            logger.debug("%s: %s", name, refused.message)
        finally:
            del self._works[name]

    async def _repeat(self, decide: Callable[[Controller], Decision[bool]]) -> None:
        """Decides until there is nothing more to decide."""
        while await self.submit(decide):
            pass

    # -- crashes

    def broker_lost(self, broker_id: int, broker_epoch: int) -> None:
        """A broker's connection is closed: where its process is gone too, nobody waits until its session is over."""
        broker = self.controller.image.brokers.get(broker_id) if self.controller is not None else None
        if broker is not None and broker.epoch == broker_epoch and not broker.fenced:
            self._begin(f"probe {broker_id}", partial(self._probe, broker))

    async def _probe(self, broker: Broker) -> None:
        """Until it is known to have ended, is heard of again, or its session is over: a process that ends closes its connections
        one after the other, and one that has just started again listens to nobody before it is registered."""
        heard_ms = self._heard_ms(broker)
        while heard_ms is not None and self._heard_ms(broker) == heard_ms:
            if not await self._is_there(broker):
                logger.warning("node %d has ended without a word: its partitions get other leaders", broker.id)
                await self.submit(lambda controller: controller.fence(broker.id, broker.epoch))
                return
            await asyncio.sleep(PROBE_PAUSE_MS / 1000)

    def _heard_ms(self, broker: Broker) -> int | None:
        return None if self.controller is None else self.controller.sessions.contacts.get((broker.id, broker.epoch))

    async def _is_there(self, broker: Broker) -> bool:
        """Whether one of its listeners takes connections, or there is no telling."""
        for endpoint in broker.listeners.values():
            if await is_listening(self.quorum.host, endpoint.host, endpoint.port, PROBE_MS) is not False:
                return True
        return False

    async def close(self) -> None:
        self._deactivate()
        await asyncio.gather(*self._works.values(), return_exceptions=True)

    def status(self) -> QuorumStatus:
        """Where the quorum stands."""
        quorum = self.quorum
        now_ms = quorum.now_ms()
        return QuorumStatus(
            leader_id=quorum.leader.leader_id,
            leader_epoch=quorum.epoch,
            high_watermark=quorum.committed_offset,
            log_end_offset=quorum.end_offset,
            kraft_version=quorum.kraft_version,
            voters=quorum.voters,
            now_ms=now_ms,
            replicas=self._replicas(now_ms),
            is_leader=quorum.machine.leadership is not None,
        )

    def _replicas(self, now_ms: int) -> tuple[ReplicaStatus, ...]:
        """The others, as the leader knows them; their times are those of the machine, and become times of the wall clock."""
        leader = self.quorum.machine.leadership
        if leader is None:
            return ()
        ahead_ms = now_ms - int(asyncio.get_running_loop().time() * 1000)
        return tuple(
            ReplicaStatus(
                id=replica.key.id,
                directory_id=replica.key.directory_id,
                log_end_offset=replica.end_offset,
                last_fetch_ms=wall_clock_ms(replica.last_fetch_ms, ahead_ms),
                last_caught_up_ms=wall_clock_ms(replica.last_caught_up_ms, ahead_ms),
            )
            for replica in (*leader.voters.values(), *leader.observers.values())
            if replica.key.id != self.config.node_id
        )


def wall_clock_ms(time_ms: int, ahead_ms: int) -> int:
    """A time of another clock; what has not been stays that."""
    return time_ms if time_ms < 0 else time_ms + ahead_ms
