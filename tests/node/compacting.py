"""Topics that are worth a compaction, and a round of it."""

from odradek.log.cleaner import Cleaner
from odradek.node.node import Node
from odradek.wire.errors import ErrorCode
from tests.node.inside import Client, until

CONFIGS = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "2000",
    "min_cleanable_dirty_ratio": "0.01",
    "file_delete_delay_ms": "0",
}


async def fill(node: Node, client: Client, topic: str) -> None:
    """Makes a topic, with closed segments that are worth a compaction."""
    assert await client.create(topic, 1, **CONFIGS) == ErrorCode.NONE
    for number in range(30):
        assert await client.produce(topic, b"%d" % number * 200) == ErrorCode.NONE
    log = node.partitions.by_name[topic][0].log
    await until(lambda: not log.has_rolled)


async def clean(node: Node) -> Cleaner:
    """One round; gives who has chosen."""
    node.background.clean()
    await until(lambda: not node.background.cleaning)
    return node.background.cleaners[node.partitions.folders[0]]
