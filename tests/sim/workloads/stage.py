"""What the programs of a workload know of each other: the topics there are, what is left to do, and how far the run is.

Invariants
 1. A run is set up, then works, then finishes, then is over; never back.
 2. What did not happen in time is in `stuck`, in sentences; what only a bug in a client can bring about is in `failures`.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from tests.sim.workloads.plan import Plan, TopicPlan
from tests.sim.workloads.profile import Profile

LOOK_SECONDS: Final = 0.2
TO_THE_RENEWED: Final = 0.8  # of batches, while a topic is being made anew
HASTE: Final = 5.0  # times as many of them


class Stage:
    def __init__(self, profile: Profile, plan: Plan) -> None:
        self.profile = profile
        self.plan = plan
        self.topics: dict[str, TopicPlan] = {}  # that were made, and not deleted
        self.renewing = ""  # the name of a topic that is about to be deleted and made anew
        self.writing: dict[str, bool] = {}  # by writer: whether it has something left to send
        self.counts: dict[str, int] = {}  # of what was done, by kind
        self.stuck: list[str] = []
        self.failures: list[BaseException] = []
        self.is_set_up = False
        self.is_finishing = False  # nothing new is begun
        self.is_settled = False  # nothing is administered any more
        self.is_known = False  # and all nodes know what has become of it
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

    def topic_to_write(self, chance: random.Random) -> TopicPlan:
        """Any; most often the one that is being deleted and made anew, so that something is on its way to it then."""
        if self.renewing in self.topics and chance.random() < TO_THE_RENEWED:
            return self.topics[self.renewing]
        return chance.choice(list(self.topics.values()))

    async def pause_to_write(self, chance: random.Random, per_second: float) -> None:
        await self.pause(chance.expovariate(per_second * (HASTE if self.renewing else 1.0)))

    async def set_up(self) -> None:
        await self.until(lambda: self.is_set_up or self.is_over)
