"""Settings of the cleaner that change while a node runs."""

import asyncio
from pathlib import Path

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from tests.node.inside import connected, new_node, running, until

BROKER = 4
CHANGED = {
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.dedupe.buffer.size": "10000000",
    "log.cleaner.io.max.bytes.per.second": "5000000",
}


def test_the_cleaner_goes_by_what_was_changed_from_its_next_run_on(tmp_path: Path) -> None:
    async def story() -> None:
        node = new_node(tmp_path, log_cleaner_enable="true", log_cleaner_backoff_ms="86400000")
        async with running(node), connected(node) as client:
            background, runs = node.background, []
            background.clean = lambda: runs.append(1)  # type: ignore[method-assign]
            configs = [IncrementalAlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in CHANGED.items()]
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=BROKER, configs=configs)
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = await client.ask(request, 1, IncrementalAlterConfigsResponse)
            assert [each.error_code for each in answer.responses] == [ErrorCode.NONE]
            await until(lambda: len(runs) > 2)
            assert [cleaner.memory_bytes for cleaner in background.cleaners.values()] == [10_000_000]
            assert background.config.number("log.cleaner.io.max.bytes.per.second") == 5_000_000

    asyncio.run(story())
