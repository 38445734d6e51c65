"""A workload: the clients of a run, each a program on a machine of its own.

They work until `finish` is called; then no more is begun: producers flush, groups catch up, everything is read once more, and
it is over. Whoever runs it lets time pass until `is_over`.

Invariants
 1. Every program ends by itself once the workload is over; where it uses the library, the workload is over when all have.
 2. One seed makes the same programs, which make the same decisions as long as they are told the same.
"""

import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from tests.checker.history import History
from tests.sim.clients.connection import Machine
from tests.sim.clients.eras import Era
from tests.sim.clients.program import Address, Program
from tests.sim.workloads.administering import administer, change_voters
from tests.sim.workloads.electing import elect
from tests.sim.workloads.finishing import finish
from tests.sim.workloads.grouping import belong, witness
from tests.sim.workloads.plan import make_plan
from tests.sim.workloads.probing import probe
from tests.sim.workloads.profile import Profile
from tests.sim.workloads.reading import read, read_by_library
from tests.sim.workloads.stage import Stage
from tests.sim.workloads.transacting import transact
from tests.sim.workloads.writing import write

Main = Callable[[Machine], Coroutine[Any, Any, None]]
Work = Callable[[Program, Stage], Coroutine[Any, Any, None]]
Run = Callable[[str, Main], None]  # a program of this name, on a machine of its own


class Workload:
    def __init__(self, seed: str, profile: Profile, bootstrap: Sequence[Address], history: History, run: Run) -> None:
        self.seed = seed
        self.bootstrap = list(bootstrap)
        self.history = history
        self.stage = Stage(profile, make_plan(seed, profile, len(self.bootstrap)))
        self._run = run
        self._running: list[str] = []  # programs

    def start(self) -> None:
        stage, profile = self.stage, self.stage.profile
        self._start("administrator", administer)
        if profile.changes_voters:
            self._start("voters", change_voters)
        for number in range(1, profile.writers + 1):
            stage.writing[f"writer-{number}"] = True
            self._start(f"writer-{number}", write)
        for number in range(1, profile.transactors + 1):
            stage.writing[f"transactor-{number}"] = True
            self._start(f"transactor-{number}", transact, Era.chosen(random.Random(0), profile.era) if profile.era else None)
        for number in range(1, profile.readers + 1):
            self._start(f"reader-{number}", read_by_library if profile.uses_library else read)
        for number in range(1, profile.electors + 1):
            self._start(f"elector-{number}", elect)
        for number in range(1, profile.probers + 1):
            self._start(f"prober-{number}", probe)
        for group in stage.plan.groups:
            for number in range(1, profile.members + 1):
                self._start(f"{group.name}-member-{number}", partial(belong, group=group))
            self._start(f"{group.name}-witness", partial(witness, group=group))
        self._start("finisher", finish, Era.chosen(random.Random(0), "newest"))

    def finish(self) -> None:
        """No new work: it is over when all that was begun has ended and was looked at."""
        self.stage.is_finishing = True

    @property
    def is_set_up(self) -> bool:
        return self.stage.is_set_up

    @property
    def is_over(self) -> bool:
        return self.stage.is_over and not (self.stage.profile.uses_library and self._running)

    @property
    def stuck(self) -> list[str]:
        return self.stage.stuck

    @property
    def failures(self) -> list[BaseException]:
        return self.stage.failures

    @property
    def counts(self) -> dict[str, int]:
        return self.stage.counts

    def _start(self, name: str, work: Work, era: Era | None = None) -> None:
        async def main(machine: Machine) -> None:
            chance = random.Random(f"{self.seed}/{name}")
            program = Program(name, machine, self.bootstrap, self.history, chance, era)
            program.failures = self.stage.failures
            try:
                await work(program, self.stage)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run must not go on without it in silence
                self.stage.failures.append(error)
            self._running.remove(name)

        self._running.append(name)
        self._run(name, main)
