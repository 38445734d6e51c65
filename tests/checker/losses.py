"""When something happened after which even what was acknowledged may be gone.

Between two losses a topic has logs of their own: what was seen in one is not held against what is seen in the next, and what
overlaps a loss may be of either, and shows nothing.
"""

from bisect import bisect_right
from collections.abc import Sequence

from tests.checker.facts import NEVER
from tests.checker.history import AnyEvent, LossAllowed


class Losses:
    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self._all = [(at, event) for at, event in enumerate(events) if isinstance(event, LossAllowed)]
        self._of_topic: dict[str, list[int]] = {}

    def count(self, topic: str, at: int = NEVER) -> int:
        """How many there were of this topic by then."""
        if not self._all:
            return 0
        if topic not in self._of_topic:
            self._of_topic[topic] = [when for when, loss in self._all if not loss.topics or topic in loss.topics]
        return bisect_right(self._of_topic[topic], at)

    def overlap(self, begun: int, ended: int) -> bool:
        """Whether there was any, of any topic, meanwhile."""
        return any(begun < at < ended for at, _ in self._all)
