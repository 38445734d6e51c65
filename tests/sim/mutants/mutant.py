"""A rule of the code that can be switched off, to see whether anybody notices.

`switch_off` takes a rule out of the real code, by putting something else in the place of a function. Tests of a single machine
use the same switches as the simulator.

Invariants
 1. A switch replaces functions, methods and properties only, and only such as are there.
 2. Off, everything else is as before: what is replaced calls what was there wherever it can.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

MINUTE_SECONDS: Final = 60.0


class Patch(Protocol):
    """What is needed of `pytest.MonkeyPatch`."""

    def setattr(self, target: Any, name: str, value: Any) -> None: ...


class Mutant(msgspec.Struct, frozen=True):
    rule: str  # a sentence, of what holds while it is on
    switch_off: Callable[[Patch], None]
    faults: str = "all"  # the profile of faults that should find it
    clients: str = "mixed"  # and that of clients
    nodes: int = 3
    seconds: float = MINUTE_SECONDS

    @property
    def name(self) -> str:
        return self.switch_off.__name__
