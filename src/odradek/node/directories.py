"""Tells the controller which folders the replicas of this node are in, for ever. What is told is decided by `Directories`."""

import asyncio
import logging
from collections.abc import Callable

from odradek.core.metadata.image import MetadataImage
from odradek.core.partition.directories import Directories
from odradek.core.partition.replica import TopicIdPartition
from odradek.node.controller_link import ControllerLink
from odradek.wire.errors import Refused
from odradek.wire.messages import AssignReplicasToDirsResponse

logger = logging.getLogger("odradek.directories")


class DirectoryReport:
    def __init__(self, node_id: int, image: MetadataImage) -> None:
        self.directories = Directories(node_id, image)
        self.wanted = asyncio.Event()

    def found(self, key: TopicIdPartition, directory: bytes) -> None:
        if self.directories.found(key, directory):
            self.wanted.set()

    async def send(self, link: ControllerLink, broker_epoch: Callable[[], int], timeout_ms: int) -> None:
        directories = self.directories
        while True:
            await self.wanted.wait()
            await asyncio.sleep(directories.pause_ms / 1000)
            self.wanted.clear()
            request = directories.request(broker_epoch())
            if request is None:
                continue
            try:
                fault = directories.answered(await link.ask(request, AssignReplicasToDirsResponse, timeout_ms, "directories"))
                reason = fault.name if fault else ""
            except Refused as refused:
                directories.failed()
                reason = refused.message
            if reason:
                logger.warning("the controller does not take notice of the folders of replicas: %s", reason)
            if directories.unsent:
                self.wanted.set()
