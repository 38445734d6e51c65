"""A cluster of real processes on this machine, and what can be done to them.

Invariants
 1. Whatever happens, no process outlives the `with` block: a paused one neither.
 2. What fails in `explaining` has in its message what the nodes said last.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Final, TypeVar

from odradek.cli.start import FILE, SCREEN, write
from odradek.cli.storage import configured
from odradek.cli.up import Node, format_new
from odradek.core.metadata.topic_names import CLUSTER_METADATA
from odradek.wire.message import Message
from odradek.wire.messages import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.cluster.layout import Layout, Places, free_block
from tests.cluster.links import Links
from tests.cluster.settings import until
from tests.node.socket_client import Closed, SocketClient

STOP_SECONDS_MAX: Final = 60
LOG_LINES_MAX: Final = 40

Answer = TypeVar("Answer", bound=Message)


class Cluster:
    """Nodes go by their numbers."""

    node_kind = Node

    def __init__(self, folder: Path, layout: Layout, **settings: str) -> None:
        """`settings` go to all nodes; `{node}` in a value is the node's number. With links, the nodes reach each other through
        this process alone."""
        self.layout = layout
        self.places = Places(layout, free_block(layout.ports))
        self.links = Links(self.places.routes())
        self.nodes: dict[int, Node] = {}
        for number in layout.nodes:
            home = str(folder / f"node-{number}")
            more = {key.replace("_", "."): value.format(node=number) for key, value in settings.items()}
            write(os.path.join(home, FILE), self.places.settings(number, home) | more)
            self.nodes[number] = self.node_kind(number, home, os.path.join(home, FILE), self.places.address(number))
        format_new([configured(node.properties) for node in self.nodes.values()])
        self.paused: set[int] = set()
        self.ended: set[int] = set(layout.nodes)  # because somebody wanted it

    @property
    def brokers(self) -> range:
        return self.layout.broker_numbers

    @property
    def bootstrap(self) -> str:
        return ",".join(self.nodes[number].address for number in self.brokers)

    def logs(self, topic: str) -> dict[int, set[str]]:
        """The folders of a topic's partitions, by broker, with those that are about to be removed."""
        return {
            number: {path.name for folder in self.log_dirs(number) for path in folder.glob(f"{topic}-*")}
            for number in self.brokers
        }

    def log_dirs(self, number: int) -> list[Path]:
        return [Path(path) for path in configured(self.nodes[number].properties).log_dirs]

    # -- what can be done to a node

    def start(self, *numbers: int) -> None:
        for number in numbers:
            assert not self.is_running(number)
            self.nodes[number].start()
            self.ended.discard(number)

    def kill(self, *numbers: int) -> None:
        self._end(signal.SIGKILL, numbers)

    def stop(self, *numbers: int) -> None:
        """Cleanly, all of them at once."""
        for number, status in self._end(signal.SIGTERM, numbers).items():
            assert status == 0, f"node {number} ended with {status}"

    def _end(self, how: signal.Signals, numbers: Iterable[int]) -> dict[int, int]:
        self.ended |= set(numbers)
        for number in numbers:
            self.process(number).send_signal(how)
        return {number: self.process(number).wait(STOP_SECONDS_MAX) for number in numbers}

    def pause(self, *numbers: int) -> None:
        for number in numbers:
            self.process(number).send_signal(signal.SIGSTOP)
            self.paused.add(number)

    def go_on(self, *numbers: int) -> None:
        for number in numbers:
            self.process(number).send_signal(signal.SIGCONT)
            self.paused.discard(number)

    def process(self, number: int) -> Popen[bytes]:
        process = self.nodes[number].process
        assert process is not None
        return process

    def is_running(self, number: int) -> bool:
        process = self.nodes[number].process
        return process is not None and process.poll() is None

    # -- who is who

    def serving(self) -> list[int]:
        return [number for number in self.brokers if self.is_running(number) and number not in self.paused]

    def connected(self, number: int) -> SocketClient:
        return SocketClient(self.places.client_port(number))

    def ask(self, number: int, request: Message, version: int, response: type[Answer]) -> Answer | None:
        """None when it does not answer."""
        try:
            with self.connected(number) as client:
                return client.ask(request, version, response)
        except (OSError, Closed):
            return None

    def _known(self, look: Callable[[int], int | None], what: str) -> int:
        """The node that any of those that serve knows."""

        def ask_all() -> int | None:
            found = (look(number) for number in self.serving())
            return next((number for number in found if number is not None and number > 0), None)

        known = until(ask_all, what)
        assert known is not None
        return known

    def leader(self, topic: str, index: int = 0) -> int:
        return self._known(lambda number: self.leaders(number, topic).get(index), f"the leader of {topic}-{index}")

    def leaders(self, number: int, topic: str) -> dict[int, int]:
        return {each.partition_index: each.leader_id for each in self.partitions(number, topic)}

    def partitions(self, number: int, topic: str) -> list[MetadataResponse.MetadataResponsePartition]:
        """As this node knows them."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = self.ask(number, request, 12, MetadataResponse)
        return [] if answer is None or answer.topics is None else answer.topics[0].partitions

    def topics(self, number: int) -> set[str]:
        """That this node knows."""
        answer = self.ask(number, MetadataRequest(topics=None), 12, MetadataResponse)
        assert answer is not None, f"node {number} does not answer"
        return {topic.name or "" for topic in answer.topics}

    def controller(self) -> int:
        """Who leads the quorum."""
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])

        def look(number: int) -> int | None:
            answer = self.ask(number, DescribeQuorumRequest(topics=[topic]), 2, DescribeQuorumResponse)
            return answer.topics[0].partitions[0].leader_id if answer is not None and answer.topics else None

        return self._known(look, "the leader of the quorum")

    def coordinator(self, key: str, *, is_transactional: bool = False) -> int:
        """Of a group, or of a transactional id."""

        def look(number: int) -> int | None:
            request = FindCoordinatorRequest(key_type=int(is_transactional), coordinator_keys=[key])
            answer = self.ask(number, request, 4, FindCoordinatorResponse)
            return answer.coordinators[0].node_id if answer is not None and answer.coordinators else None

        return self._known(look, f"the coordinator of {key}")

    # -- waiting

    def heal(self) -> None:
        """Ends whatever was done to it, until every broker knows all of them."""
        self.links.heal()
        self.go_on(*self.paused.copy())
        self.check_alive()
        self.start(*self.ended)

        def look() -> bool:
            self.check_alive()
            found = [self.ask(number, MetadataRequest(topics=[]), 12, MetadataResponse) for number in self.brokers]
            return all(seen is not None and len(seen.brokers) == self.layout.brokers for seen in found)

        until(look, "all nodes there")

    def check_alive(self) -> None:
        """No node has ended by itself."""
        for number in self.layout.nodes:
            if number not in self.ended:
                assert self.is_running(number), f"node {number} has ended with {self.process(number).returncode}"

    def all_in_sync(self, topic: str) -> None:
        """Until every broker is there, and knows that every copy of the topic is in sync."""

        def look() -> bool:
            self.check_alive()
            found = [self.partitions(number, topic) for number in self.brokers]
            return all(seen and all(len(each.isr_nodes) == len(each.replica_nodes) for each in seen) for seen in found)

        until(look, f"all replicas of {topic} in sync")

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Adds what the nodes said to whatever fails in it."""
        try:
            yield
        except BaseException as error:
            error.add_note(self.said())
            raise

    def lines(self, number: int) -> list[str]:
        """What a node said."""
        node = self.nodes[number]
        screen = SCREEN.format(address=node.address, data=node.folder, settings=node.properties).splitlines()
        with open(os.path.join(node.folder, "node.log"), errors="replace") as file:
            return [line for line in file.read().splitlines() if line not in screen]

    def said(self) -> str:
        """The last lines of each node's log."""
        parts: list[str] = []
        for number in self.nodes:
            parts += [f"-- node {number}", *self.lines(number)[-LOG_LINES_MAX:]]
        return "\n".join(parts)


@contextmanager
def running(folder: Path, layout: Layout | None = None, kind: type[Cluster] = Cluster, /, **settings: str) -> Iterator[Cluster]:
    cluster = kind(folder, layout or Layout(), **settings)
    with cluster.links:
        try:
            with cluster.explaining():
                cluster.heal()
            yield cluster
        finally:
            for number in cluster.nodes:
                if cluster.is_running(number):
                    cluster.process(number).kill()
                    cluster.process(number).wait()
