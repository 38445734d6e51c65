"""A topic whose creation was acknowledged is there, one whose deletion was is gone, at every node that has caught up.

What was asked for and never answered may happen at any time: then nothing is known of the topic any more.
"""

import msgspec

from tests.checker.evidence import Evidence
from tests.checker.facts import NEVER
from tests.checker.history import Outcome, TopicBegun, TopicEnded, TopicsSeen
from tests.checker.report import Report


class Change(msgspec.Struct):
    event: TopicBegun
    begun: int
    ended: int = NEVER
    outcome: Outcome = "unknown"


def check(known: Evidence) -> Report:
    report = Report()
    changes: dict[int, Change] = {}
    by_topic: dict[str, list[Change]] = {}
    for at, event in enumerate(known.events):
        if isinstance(event, TopicBegun):
            changes[event.id] = Change(event, at)
            by_topic.setdefault(event.topic, []).append(changes[event.id])
        elif isinstance(event, TopicEnded) and event.outcome != "unknown":
            changes[event.id].ended, changes[event.id].outcome = at, event.outcome
        elif isinstance(event, TopicsSeen) and event.is_final:
            _check_node(by_topic, event, report)
    report.looked_at("topics changed", len(changes))
    return report


def _check_node(by_topic: dict[str, list[Change]], seen: TopicsSeen, report: Report) -> None:
    there = set(seen.topics)
    for topic, changes in by_topic.items():
        change = _last(changes)
        if change is None:
            continue
        report.looked_at("topics looked for")
        is_created = change.event.change == "create"
        if is_created != (topic in there):
            what = "is not there, its creation" if is_created else "is there, its deletion"
            sentence = f"node {seen.node}: {topic} {what} was acknowledged"
            report.found("topic", sentence, change.event, TopicsSeen(seen.at_ms, seen.client, seen.node, [], is_final=True))


def _last(changes: list[Change]) -> Change | None:
    """The acknowledged one that nothing can have followed."""
    real = [change for change in changes if change.outcome != "refused"]
    last = max(real, key=lambda change: change.begun, default=None)
    if last is None or last.outcome != "acknowledged":
        return None
    others = [change for change in real if change.event.change != last.event.change]
    return last if all(change.ended < last.begun for change in others) else None
