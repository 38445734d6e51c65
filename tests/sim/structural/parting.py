"""Where logs part: a follower that is told so cuts its log, and comes nearer to its leader each time.

Invariants that are checked
 1. With every cut the log ends earlier, or has an epoch less. One that changes nothing would be asked for again, for ever.
"""

from typing import TYPE_CHECKING

from odradek.core.partition.follower import Action, Step
from odradek.log.log import Log
from odradek.node.node import Node
from odradek.node.replication import Replication, Source
from tests.sim.structural.findings import Violated, hold

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster


def extent(log: Log) -> tuple[int, int]:
    """What becomes less with a cut."""
    return log.end_offset, len(log.epochs.entries)


class PartingChecks:
    def __init__(self) -> None:
        self.cuts = 0

    def watch(self, cluster: "SimCluster") -> None:
        """Has nodes tell when a follower cuts its log."""
        cluster.on_ready.append(lambda node: self._watch(cluster, node))
        for node in cluster.nodes.values():
            self._watch(cluster, node)

    def _watch(self, cluster: "SimCluster", node: Node) -> None:
        replication = node.partitions.replication
        known, watched = replication.follow, dict[Source, None]()

        def follow(*given: object) -> None:
            known(*given)  # type: ignore[arg-type]
            self._watch_sources(cluster, replication, watched)

        replication.follow = follow  # type: ignore[method-assign, assignment]
        self._watch_sources(cluster, replication, watched)

    def _watch_sources(self, cluster: "SimCluster", replication: Replication, watched: dict[Source, None]) -> None:
        for source in replication.sources.values():
            if source not in watched:
                watched[source] = None
                self._watch_source(cluster, source)

    def _watch_source(self, cluster: "SimCluster", source: Source) -> None:
        known = source._move

        def move(log: Log, step: Step) -> None:
            before = extent(log)
            known(log, step)
            if step.action is Action.TRUNCATE:
                self.cuts += 1
                try:
                    self.check(log, before)
                except Violated as violated:  # within a step of the node, which must not see it
                    wrong = str(violated)
                    cluster.world.after(0, lambda: hold(False, wrong))

        source._move = move  # type: ignore[method-assign]

    def check(self, log: Log, before: tuple[int, int]) -> None:
        hold(extent(log) < before, f"{log.folder} was cut to {log.end_offset}, where it ended, and is no nearer to its leader's")
