"""Hunts mutants: runs the simulator with a rule switched off until something is found wrong. `python -m tests.sim.hunt`

hunt(mutant, seeds)     the first run that finds it, or None
main                    all of them, or those that are named; prints a table, with the first thing that was found wrong
"""

import argparse
import logging
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import msgspec
import pytest

from tests.sim import run as runs
from tests.sim.mutants import disk, quorum, renewal, replicas, transactions
from tests.sim.mutants.mutant import Mutant
from tests.sim.run import Setting

SEEDS_MAX: Final = 50
STRUCTURE_SECONDS: Final = 0.25  # it is looked at more often than in a campaign,
HEAL_SECONDS_MAX: Final = 120.0  # and waited for less long
FAMILIES: Final = (replicas, quorum, disk, transactions, renewal)
MUTANTS: Final[dict[str, Mutant]] = {mutant.name: mutant for family in FAMILIES for mutant in family.MUTANTS}


class Found(msgspec.Struct, frozen=True):
    seeds: int  # that were run, the last of them found it
    seed: int
    wrong: str  # the first thing


def hunt(mutant: Mutant, seeds: Iterable[int]) -> Found | None:
    """What finds a mutant; None when all seeds do without the rule. What is wrong with the rule too finds nothing."""
    for count, seed in enumerate(seeds, start=1):
        wrong = wrong_in(mutant, seed, is_off=True)
        if wrong and not wrong_in(mutant, seed, is_off=False):
            return Found(count, seed, wrong[0])
    return None


def wrong_in(mutant: Mutant, seed: int, *, is_off: bool) -> list[str]:
    """What is found wrong in the run for a mutant, with its rule switched off or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "STRUCTURE_SECONDS", STRUCTURE_SECONDS)
        patch.setattr(runs, "HEAL_SECONDS_MAX", HEAL_SECONDS_MAX)
        if is_off:
            mutant.switch_off(patch)
        try:
            return runs.run(Setting(seed, mutant.nodes, mutant.clients, mutant.faults, mutant.seconds)).wrong
        except Exception as error:  # noqa: BLE001 - whatever a broken rule leads to is found
            return [f"the run ended: {error!r}"]


def hunt_by_name(name: str, seeds: range) -> tuple[str, Found | None]:
    logging.disable(logging.CRITICAL)
    return name, hunt(MUTANTS[name], seeds)


def hunted(names: list[str], seeds: range, processes: int) -> Iterator[tuple[str, Found | None]]:
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(partial(hunt_by_name, seeds=seeds), names)


def row(name: str, found: Found | None, seeds: range) -> str:
    mutant = MUTANTS[name]
    by = "not found" if found is None else found.wrong.replace("|", "/")
    count = f"> {len(seeds)}" if found is None else str(found.seeds)
    return f"| {mutant.rule} | {name} | {mutant.faults} | {mutant.clients} | {mutant.nodes} | {count} | {by} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the simulator with rules switched off.")
    parser.add_argument("names", nargs="*", help="mutants; all unless told")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    print("| rule | switch | faults | clients | nodes | seeds | found as |\n|---|---|---|---|---|---|---|")
    for name, found in hunted(given.names or list(MUTANTS), seeds, given.processes):
        print(row(name, found, seeds), flush=True)


if __name__ == "__main__":
    main()
