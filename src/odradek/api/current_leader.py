"""Who leads a partition, told to those who asked the wrong node, so that they need not ask for metadata first (KIP-951)."""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.api.context import Context
from odradek.core.metadata.topics import NO_LEADER, Topic


class LeaderEndpoint(NamedTuple):
    """Where a client finds a leader, by the listener that it has asked."""

    node_id: int
    host: str
    port: int
    rack: str | None


def leader_and_epoch(topic: Topic | None, index: int) -> tuple[int, int]:
    """By the metadata; -1 where nobody leads, or nobody knows."""
    state = None if topic is None else topic.partitions.get(index)
    return (NO_LEADER, -1) if state is None else (state.leader, state.leader_epoch)


def endpoints(leaders: Iterable[int], ctx: Context) -> list[LeaderEndpoint]:
    """Of those that are there, each once."""
    found = []
    for broker_id in dict.fromkeys(leaders):
        broker = ctx.node.image.brokers.get(broker_id)
        endpoint = None if broker is None or broker.fenced else broker.listeners.get(ctx.connection.listener)
        if broker is not None and endpoint is not None:
            found.append(LeaderEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
    return found
