"""The host of the controller: what it decides goes into the metadata log, and is answered when it is committed.

Invariants
 1. Append, then replay, without anything in between: the next decision sees the last one.
 2. An answer is given after the commit, and after the broker's image has replayed the records.
 3. When the append is refused, nothing was decided.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from odradek.core.controller.controller import Controller, ControllerConfig
from odradek.core.controller.decision import Decision
from odradek.core.controller.quorum import QuorumStatus
from odradek.log.disk import DiskFailed
from odradek.node.quorum import Quorum
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message

NS_PER_MS: Final = 1_000_000

Answer = TypeVar("Answer")


class ControllerHost:
    def __init__(
        self,
        quorum: Quorum,
        config: ControllerConfig,
        monotonic_ms: Callable[[], int] = lambda: time.monotonic_ns() // NS_PER_MS,
    ) -> None:
        self.quorum = quorum
        self.config = config
        self.monotonic_ms = monotonic_ms
        self.controller: Controller | None = None

    async def start(self, bootstrap: Sequence[Message]) -> None:
        """Becomes active. `bootstrap` are the records of bootstrap.checkpoint, for a log that is empty."""
        await self.quorum.start()
        self.controller = Controller(self.quorum.image.copy(), self.config, self.monotonic_ms())
        await self.submit(lambda controller: controller.activate(bootstrap))

    async def submit(self, decide: Callable[[Controller], Decision[Answer]]) -> Answer:
        """Has the controller decide. Refused when it refuses the whole request, or the disk does."""
        controller, quorum = self.controller, self.quorum
        assert controller is not None, "start comes first"
        controller.next_offset = quorum.end_offset
        controller.kraft_version = quorum.kraft_version
        decision = decide(controller)
        offset = quorum.end_offset - 1
        try:
            for batch in decision.batches():
                offset = quorum.append(batch)
                controller.replay(batch)
            await quorum.commit(offset)
        except DiskFailed as error:  # the node ends
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata cannot be written: {error.strerror or error}") from error
        return decision.response

    def status(self) -> QuorumStatus:
        """Where the quorum stands."""
        quorum = self.quorum
        assert quorum.voters is not None
        return QuorumStatus(
            leader_id=self.config.node_id,
            leader_epoch=quorum.epoch,
            high_watermark=quorum.committed_offset,
            log_end_offset=quorum.end_offset,
            kraft_version=quorum.kraft_version,
            voters=quorum.voters,
            now_ms=quorum.now_ms(),
        )
