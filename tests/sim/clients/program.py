"""A client program: its name, its chance, its versions, its clock, and the history that it tells everything to.

Invariants
 1. Chance is seeded by the run and the program's name alone, so that what one program does changes nothing that another decides.
"""

import asyncio
import random
from collections.abc import Sequence

import msgspec

from odradek.wire.message import NIL_UUID
from tests.checker.history import AnyEvent, History
from tests.sim.clients.connection import Machine
from tests.sim.clients.eras import Era

Address = tuple[str, int]


class Place(msgspec.Struct, frozen=True, order=True):
    """A partition of a topic."""

    topic: str
    index: int


class Program:
    def __init__(
        self,
        name: str,
        machine: Machine,
        bootstrap: Sequence[Address],
        history: History,
        chance: random.Random,
        era: Era | None = None,
    ) -> None:
        self.name = name
        self.machine = machine
        self.bootstrap = list(bootstrap)
        self.history = history
        self.chance = chance
        self.era = era or Era.chosen(chance)
        self.failures: list[BaseException] = []  # of its own, which nothing that a node does can bring about
        self.loop = asyncio.get_running_loop()

    @property
    def at_ms(self) -> float:
        return round(self.loop.time() * 1000, 3)

    def tell(self, event: AnyEvent) -> None:
        self.history.add(event)

    def renamed(self, name: str) -> "Program":
        """The same program, started again under another name."""
        reborn = Program(name, self.machine, self.bootstrap, self.history, self.chance, self.era)
        reborn.failures = self.failures
        return reborn

    def unique_id(self) -> bytes:
        found = self.chance.getrandbits(128).to_bytes(16, "big")
        return found if found != NIL_UUID else self.unique_id()
