"""How long to wait before something is tried again: twice as long each time, up to a limit, and a little more or less by chance.

So many clients who lost one broker do not come back in step.
"""

from random import Random
from typing import Final

SPREAD: Final = 0.2  # of the wait, up and down
DOUBLINGS_MAX: Final = 30


class Backoff:
    def __init__(self, first_ms: float, longest_ms: float, chance: Random) -> None:
        self.first_ms = first_ms
        self.longest_ms = max(longest_ms, first_ms)
        self.chance = chance
        self.tries = 0

    def next_ms(self) -> float:
        """To be waited now, after one more try has failed."""
        wait_ms = min(self.first_ms * 2 ** min(self.tries, DOUBLINGS_MAX), self.longest_ms)
        self.tries += 1
        return float(wait_ms * self.chance.uniform(1 - SPREAD, 1 + SPREAD))

    def reset(self) -> None:
        self.tries = 0
