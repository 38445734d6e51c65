"""The host of the controller: what it decides goes into the metadata log, and is answered when it is committed.

Invariants
 1. Append, then replay, without anything in between: the next decision sees the last one.
 2. An answer is given after the commit, and after the broker's image has replayed the records.
 3. When the append is refused, nothing was decided.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from odradek.core.controller.controller import Controller, ControllerConfig
from odradek.core.controller.decision import Decision
from odradek.core.controller.quorum import QuorumStatus
from odradek.node.quorum import Quorum
from odradek.wire.message import Message

Answer = TypeVar("Answer")


class ControllerHost:
    def __init__(self, quorum: Quorum, config: ControllerConfig) -> None:
        self.quorum = quorum
        self.config = config
        self.controller: Controller | None = None

    async def start(self, bootstrap: Sequence[Message]) -> None:
        """Becomes active. `bootstrap` are the records of bootstrap.checkpoint, for a log that is empty."""
        await self.quorum.start()
        self.controller = Controller(self.quorum.image.copy(), self.config)
        await self.submit(lambda controller: controller.activate(bootstrap))

    async def submit(self, decide: Callable[[Controller], Decision[Answer]]) -> Answer:
        """Has the controller decide. Refused when it refuses the whole request; an OSError when the disk has failed."""
        controller, quorum = self.controller, self.quorum
        assert controller is not None, "start comes first"
        controller.next_offset = quorum.end_offset
        controller.kraft_version = quorum.kraft_version
        decision = decide(controller)
        offset = quorum.end_offset - 1
        if decision.records:
            offset = quorum.append(decision.records)
            controller.replay(decision.records)
        await quorum.commit(offset)
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
