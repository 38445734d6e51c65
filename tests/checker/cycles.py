"""Is there one order of everything that happened? Adya's G0 and G1c, for logs.

Appends, commits of transactions and polls are points in time. What is known of their order: an append comes before those at
higher offsets of its partition; a commit comes after the appends of its transaction; a poll comes after the appends that it saw,
and in read_committed after the commits; the commit of a transaction comes after the polls in it; and each point is between the
beginning and the end of what the client did. If these contradict each other, the graph has a cycle, or a point cannot be where
its client says it was: what began after the end of one comes before it.

Writes of several transactions may be mixed in different order in different partitions: Kafka allows that, so a transaction is not
one point for its writes. That a poll did not see something says nothing (it may have come from a buffer): no edges for that.
"""

from bisect import bisect_right

from tests.checker.evidence import Evidence
from tests.checker.facts import NEVER, Log, Place
from tests.checker.history import AnyEvent
from tests.checker.report import Report

POINTS_SHOWN_MAX = 8


class Graph:
    """Points with the time before which they cannot be, and after which they cannot be."""

    def __init__(self) -> None:
        self.earliest: list[int] = []
        self.latest: list[int] = []
        self.names: list[str] = []
        self.events: list[AnyEvent] = []
        self.is_read: list[bool] = []
        self.later: list[list[int]] = []

    def point(self, name: str, event: AnyEvent, earliest: int, latest: int, is_read: bool = False) -> int:
        self.earliest.append(earliest)
        self.latest.append(latest)
        self.names.append(name)
        self.events.append(event)
        self.is_read.append(is_read)
        self.later.append([])
        return len(self.names) - 1

    def edge(self, before: int, after: int) -> None:
        self.later[before].append(after)


def check(known: Evidence) -> Report:
    report = Report()
    graph = _graph(known)
    report.looked_at("points in order", len(graph.names))
    waits = [0] * len(graph.names)
    for after in (after for later in graph.later for after in later):
        waits[after] += 1
    source = list(range(len(waits)))  # the point whose beginning is the earliest time of each
    ready = [point for point, count in enumerate(waits) if not count]
    told: set[tuple[int, bool]] = set()  # one example is enough, of reads and of writes
    for point in ready:  # grows
        if graph.earliest[point] > graph.latest[point] and (source[point], graph.is_read[point]) not in told:
            told.add((source[point], graph.is_read[point]))
            _found_late(graph, source[point], point, report)
        for after in graph.later[point]:
            if graph.earliest[after] < graph.earliest[point]:
                graph.earliest[after], source[after] = graph.earliest[point], source[point]
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
    if len(ready) < len(waits):
        _found_cycle(graph, {point for point, count in enumerate(waits) if count}, report)
    return report


def _graph(known: Evidence) -> Graph:
    graph = Graph()
    commits = {
        each.id: graph.point(f"the commit of transaction {each.id}", known.events[each.ending], each.ending, each.ended)
        for each in known.transactions.values()
        if each.state == "committed" and each.ending != NEVER
    }
    appends = _appends(known, graph, commits)
    for ended, event in known.polls:
        point = graph.point(f"a poll of {event.client}", event, 0, ended, is_read=True)
        last: dict[Log, int] = {}
        for record in event.records:
            log = known.log(record.topic, record.partition, ended)
            last[log] = max(record.offset, last.get(log, 0))
            send = known.sender(record, ended) if event.isolation == "read_committed" else None
            if send is not None and send.event.transaction in commits:
                graph.edge(commits[send.event.transaction], point)
        for log, offset in last.items():
            offsets, points = appends.get(log, ([], []))
            if below := bisect_right(offsets, offset):
                graph.edge(points[below - 1], point)
        if event.transaction in commits:
            graph.edge(point, commits[event.transaction])
    return graph


def _appends(known: Evidence, graph: Graph, commits: dict[int, int]) -> dict[Log, tuple[list[int], list[int]]]:
    """Offsets and points of all appends, those of a log in a row. What is there twice was in time at the first of its offsets."""
    found: dict[Log, tuple[list[int], list[int]]] = {}
    for log, places in known.logs.items():
        seen: set[int] = set()
        offsets, points = found[log] = ([], [])
        for offset in sorted(places):
            point = _append(known, graph, log, offset, places[offset], seen)
            if point is None:
                continue
            if points:
                graph.edge(points[-1], point)
            offsets.append(offset)
            points.append(point)
            send = known.send_of(log, places[offset])
            if send is not None and send.event.transaction in commits:
                graph.edge(point, commits[send.event.transaction])
    return found


def _append(known: Evidence, graph: Graph, log: Log, offset: int, place: Place, seen: set[int]) -> int | None:
    topic, index, _ = log
    send = known.send_of(log, place)
    if send is None or send.event.id in seen:
        return None
    seen.add(send.event.id)
    is_timely = send.outcome == "acknowledged" and (send.offset == offset or send.event.acks == -1)
    what = f"the append of {place.value!r} at offset {offset} of {topic}-{index}"
    return graph.point(what, send.event, send.begun, send.ended if is_timely else NEVER)


def _found_late(graph: Graph, source: int, point: int, report: Report) -> None:
    rule = "read_write_cycle" if graph.is_read[point] else "write_cycle"
    sentence = f"{graph.names[source]} has to come before {graph.names[point]}, and began when that had ended"
    report.found(rule, sentence, graph.events[point], graph.events[source])


def _found_cycle(graph: Graph, left: set[int], report: Report) -> None:
    """Walks back from any point that waits, until one comes again: all that are left have one before them that is left."""
    before = {after: point for point in sorted(left) for after in graph.later[point]}
    path = [min(left)]
    while path[-1] not in path[:-1]:
        path.append(before[path[-1]])
    cycle = path[path.index(path[-1]) : -1]
    names = [graph.names[point] for point in reversed(cycle)][:POINTS_SHOWN_MAX]
    sentence = ", before ".join([*names, names[0]])
    report.found("read_write_cycle", sentence, *(graph.events[point] for point in reversed(cycle)))
