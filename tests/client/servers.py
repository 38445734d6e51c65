"""What the client is tried on: a cluster of three nodes of ours, and Apache Kafka."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.cluster.cluster import Cluster, running
from tests.kafka.broker import Broker


class Server(Protocol):
    @property
    def bootstrap(self) -> str: ...

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None: ...

    def start(self) -> None: ...


class Three:
    """A cluster as one: all of its nodes stop and start together."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        (self.cluster.kill if how is signal.SIGKILL else self.cluster.stop)(*self.cluster.nodes)

    def start(self) -> None:
        self.cluster.heal()


@contextmanager
def serving(kind: str, folder: Path, **settings: str) -> Iterator[Server]:
    """`three` nodes, or `kafka`."""
    if kind == "three":
        with running(folder, None, **settings) as cluster:
            yield Three(cluster)
        return
    broker = Broker(folder, **settings)
    with broker.running():
        yield broker
