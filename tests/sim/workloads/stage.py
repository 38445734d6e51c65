"""What the programs of a workload know of each other: the topics there are, what is left to do, and how far the run is.

Invariants
 1. A run is set up, then works, then finishes, then is over; never back.
 2. What did not happen in time is in `stuck`, in sentences; what only a bug in a client can bring about is in `failures`.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from tests.sim.workloads.plan import Plan, TopicPlan
from tests.sim.workloads.profile import Profile

LOOK_SECONDS: Final = 0.2


class Stage:
    def __init__(self, profile: Profile, plan: Plan) -> None:
        self.profile = profile
        self.plan = plan
        self.topics: dict[str, TopicPlan] = {}  # that were made, and not deleted
        self.writing: dict[str, bool] = {}  # by writer: whether it has something left to send
        self.counts: dict[str, int] = {}  # of what was done, by kind
        self.stuck: list[str] = []
        self.failures: list[BaseException] = []
        self.is_set_up = False
        self.is_finishing = False  # nothing new is begun
        self.is_settled = False  # nothing is administered any more
        self.is_over = False

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    async def until(self, condition: Callable[[], bool], seconds_max: float | None = None) -> bool:
        """Whether it came true in time."""
        loop = asyncio.get_running_loop()
        end_s = None if seconds_max is None else loop.time() + seconds_max
        while not condition():
            left_s = LOOK_SECONDS if end_s is None else min(LOOK_SECONDS, end_s - loop.time())
            if left_s <= 0:
                return False
            await asyncio.sleep(left_s)
        return True

    async def pause(self, seconds: float) -> None:
        """For so long, or until it is time to finish."""
        await self.until(lambda: self.is_finishing, seconds)

    async def set_up(self) -> None:
        await self.until(lambda: self.is_set_up or self.is_over)
