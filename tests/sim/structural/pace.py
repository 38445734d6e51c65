"""How long nodes wait for their disks, on the loop, where everybody waits.

Invariant that is checked: a folder that has kept the loop waiting is written by threads from then on, until it is fast again.
What coordinators and the quorum write for themselves stays on the loop, and is left out.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

from odradek.node.writing import SLOW_APPEND_SECONDS
from tests.sim.structural.findings import INTERNAL

if TYPE_CHECKING:
    from tests.sim.cluster import SimNode
    from tests.sim.loop import SimLoop

SLOW_APPENDS_MAX: Final = 2  # one is enough to know


class PaceChecks:
    def __init__(self) -> None:
        self._slow: Counter[tuple[int, int, str]] = Counter()  # by node, life and disk: appends since a thread has written

    def seen(self, member: "SimNode", loop: "SimLoop", kind: str, path: str, took_s: float) -> str:
        """What is wrong with how long an operation has kept its loop; nothing when it may."""
        if kind != "append" or not path.endswith(".log") or INTERNAL in path:
            return ""
        key = (member.number, member.life, path.split("/")[1])
        if loop.is_threaded:
            self._slow.pop(key, None)
        elif took_s > SLOW_APPEND_SECONDS:
            self._slow[key] += 1
            if self._slow[key] > SLOW_APPENDS_MAX:
                return f"node {member.number} has waited {self._slow[key]} times for its slow disk, and writes it on the loop"
        return ""
