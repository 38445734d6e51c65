"""Tells the controller who is in sync, one request after the other.

Invariants
 1. One request is under way at a time; what changes meanwhile goes with the next (core/partition/isr_changes.py).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from odradek.core.partition.isr_changes import RETRY_MS, IsrChanges
from odradek.core.partition.leader import Leader
from odradek.node.controller_link import ControllerLink
from odradek.node.partition import Partition
from odradek.wire.errors import Refused
from odradek.wire.messages import AlterPartitionResponse

logger = logging.getLogger("odradek.partitions")


class IsrReports:
    def __init__(self, node_id: int, monotonic_ms: Callable[[], int], moved: Callable[[Leader], None]) -> None:
        """`moved` is told of a leader whose high watermark an answer has moved."""
        self.monotonic_ms = monotonic_ms
        self.moved = moved
        self._changes = IsrChanges(node_id)
        self._is_wanted = asyncio.Event()

    def changed(self, partition: Partition) -> None:
        """The leader has a change of the ISR to send."""
        self._changes.add((partition.topic_id, partition.index), partition.leader)
        self._is_wanted.set()

    async def send(self, link: ControllerLink, broker_epoch: Callable[[], int], timeout_ms: int) -> None:
        """For ever."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            request = self._changes.request(broker_epoch())
            if request is None:
                continue
            moved: Iterable[Leader] = ()
            try:
                answer = await link.ask(request, AlterPartitionResponse, timeout_ms, "isr")
                moved = self._changes.answered(answer, self.monotonic_ms())
                is_failed = bool(answer.error_code)
            except Refused as refused:
                logger.warning("changes of the ISR are not taken: %s", refused.message)
                self._changes.failed()
                is_failed = True
            for leader in moved:
                self.moved(leader)
            if self._changes.is_due:
                await asyncio.sleep(RETRY_MS / 1000 if is_failed else 0)
                self._is_wanted.set()
