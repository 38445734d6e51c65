"""A campaign: many runs, one after the other on every core, and what came of them. `make sim`.

make sim SEEDS=2000                   seeds 1 to 2000, or SEEDS=500-900; each seed chooses nodes, clients and faults
make sim SEED=17                      one of them again, with a trace of everything that happened
NODES= PROFILE= FAULTS= SECONDS=      instead of what the seed chooses
KEPT=file                             keeps every result there, and runs no seed again that has one of the same code
"""

import argparse
import asyncio
import gc
import logging
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.checker.history import AnyEvent
from tests.sim.kept import Kept
from tests.sim.profiles import FAULTS
from tests.sim.run import Result, Run, Setting, run
from tests.sim.workloads.profile import PROFILES

SECONDS: Final = 120.0  # times the slowness of the clients
NODES: Final = (1, 3, 3, 3, 5)
USUAL_SHARE: Final = 0.3  # of seeds has the mixed clients, and as large a one all faults; others have any profile
PROGRESS_SECONDS: Final = 20.0
TOP: Final = 12


class Given(msgspec.Struct, frozen=True):
    """What was said, and is not left to the seed."""

    nodes: int | None = None
    profile: str | None = None
    faults: str | None = None
    seconds: float | None = None


def chosen(seed: int, given: Given) -> Setting:
    """What a seed is made of, unless it was said."""
    chance = random.Random(f"setting of {seed}")
    nodes = chance.choice(NODES)
    profile = "mixed" if chance.random() < USUAL_SHARE else chance.choice(list(PROFILES))
    faults = "all" if chance.random() < USUAL_SHARE else chance.choice(list(FAULTS))
    profile = given.profile or profile
    seconds = given.seconds or SECONDS * PROFILES[profile].slowness
    return Setting(seed, given.nodes or nodes, profile, given.faults or faults, seconds)


class Trace(logging.Handler):
    """Prints what nodes say and what clients do, each line with the time and whose it is."""

    def __init__(self, traced: Run) -> None:
        super().__init__()
        self.traced = traced
        traced.history.add = self.event  # type: ignore[method-assign]

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()
        who = getattr(loop, "name", "world")
        error = f": {record.exc_info[1]!r}" if record.exc_info else ""
        self._print(who, f"{record.levelname.lower()} {record.name.removeprefix('odradek.')}: {record.getMessage()}{error}")

    def event(self, event: AnyEvent) -> None:
        self.traced.history.events.append(event)
        fields = ", ".join(
            f"{name}={getattr(event, name)!r}" for name in event.__struct_fields__ if name not in ("at_ms", "client")
        )
        self._print(event.client, f"{type(event).__name__} {fields}")

    def _print(self, who: str, what: str) -> None:
        print(f"{self.traced.world.now_s:12.6f}  {who:22} {what}")


def replay(setting: Setting) -> Result:
    """One run, told as it happens."""
    traced = Run(setting)
    logger = logging.getLogger()
    logger.addHandler(Trace(traced))
    logger.setLevel(logging.INFO)
    result = traced.whole()
    print(f"\n{setting}: {result.simulated_s:.0f} s, digest {result.digest}")
    for sentence in result.wrong or ["nothing is wrong"]:
        print(f"  {sentence}")
    return result


def results(settings: list[Setting], processes: int) -> Iterator[Result]:
    """Each run has a process of its own, which takes along what it left: to look for garbage there takes a tenth of the time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.sim.run"])
    with context.Pool(processes, gc.disable, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(quietly, settings)


def quietly(setting: Setting) -> Result:
    logging.disable(logging.CRITICAL)
    try:
        return run(setting)
    except Exception as error:  # noqa: BLE001 - one broken run must not end a campaign
        return Result(setting, [f"the simulator itself failed: {error!r}"])
    finally:
        logging.disable(logging.NOTSET)


class Figures:
    """What all runs together have seen."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.runs = self.looks = 0
        self.simulated_s = self.real_s = self.simulated_now_s = 0.0
        self.wrong: list[Result] = []
        self.faults, self.done, self.checked, self.kinds = Counter[str](), Counter[str](), Counter[str](), Counter[str]()

    def add(self, result: Result, *, is_kept: bool = False) -> None:
        """One that was run now, or that was kept."""
        self.runs += 1
        self.simulated_now_s += 0 if is_kept else result.simulated_s
        self.looks += result.looks
        self.simulated_s += result.simulated_s
        self.real_s += result.real_s
        self.faults.update(result.faults)
        self.done.update(result.done)
        self.checked.update(result.checked)
        setting = result.setting
        self.kinds.update([f"{setting.nodes} nodes", f"clients: {setting.profile}", f"faults: {setting.faults}"])
        if result.wrong:
            self.wrong.append(result)

    def line(self) -> str:
        hours = self.simulated_s / 3600
        speed = self.simulated_now_s / max(time.monotonic() - self.began_s, 1e-9)
        operations = sum(self.checked.get(what, 0) for what in ("sends", "polls", "commits acknowledged", "topics changed"))
        return (
            f"{self.runs} seeds, {hours:.2f} simulated hours, {speed:.1f} times real time, {sum(self.faults.values())} faults, "
            f"{operations} client operations checked, {len(self.wrong)} with violations"
        )

    def __str__(self) -> str:
        lines = [
            self.line(),
            f"looks at the structure: {self.looks}; speed of one core: {self.simulated_s / max(self.real_s, 1e-9):.1f}",
        ]
        for name, counted in (("runs", self.kinds), ("faults", self.faults), ("clients", self.done), ("checked", self.checked)):
            lines.append(f"{name}: " + ", ".join(f"{what} {count}" for what, count in sorted(counted.items())))
        return "\n".join(lines)


def campaign(settings: list[Setting], processes: int, kept: Kept | None = None) -> Figures:
    figures, told_s = Figures(), time.monotonic()
    known = {result.setting: result for result in kept.results} if kept is not None else {}
    for setting in settings:
        if setting in known:
            figures.add(known[setting], is_kept=True)
            tell_violations(known[setting])
    for result in results([setting for setting in settings if setting not in known], processes):
        figures.add(result)
        tell_violations(result)
        if kept is not None:
            kept.add(result)
        if time.monotonic() - told_s > PROGRESS_SECONDS:
            told_s = time.monotonic()
            print(figures.line(), flush=True)
    return figures


def tell_violations(result: Result) -> None:
    if result.wrong:
        print(f"VIOLATION  make sim {result.setting}", *(f"\n    {each}" for each in result.wrong[:TOP]), sep="", flush=True)


def seeds(text: str) -> range:
    """`n` are the seeds 1 to n, `a-b` those from a to b."""
    first, _, last = text.rpartition("-")
    return range(int(first or 1), int(last) + 1)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=seeds, default=seeds("100"))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--profile", choices=PROFILES)
    parser.add_argument("--faults", choices=FAULTS)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--digest", action="store_true", help="of one seed, and nothing else")
    said = parser.parse_args()
    given = Given(said.nodes, said.profile, said.faults, said.seconds)
    if said.digest:
        print(quietly(chosen(said.seed, given)).digest)
        return 0
    if said.seed is not None:
        return 1 if replay(chosen(said.seed, given)).wrong else 0
    kept = Kept(said.kept) if said.kept else None
    figures = campaign([chosen(seed, given) for seed in said.seeds], said.processes, kept)
    print(f"\n{figures}")
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
