"""The switches of tests/sim/mutants take hold: what each replaces is there, and is called in runs of the simulator.

That each is found is the matter of `tests/sim/hunt.py`, which takes longer; one that is found at once is hunted here.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from odradek.log.disk import RealDisk, RealFile
from odradek.log.folder import METADATA_LOG
from odradek.node.machine import Machine
from tests.sim.faults import KINDS, Slowness
from tests.sim.hunt import FAMILIES, MUTANTS, Found, hunt
from tests.sim.mutants.mutant import Mutant
from tests.sim.run import Run, Setting, run

NOT_SIMULATED: Final = (RealDisk, RealFile, Machine)  # SimDisk and SimMachine stand in their place, and are switched off too
SECONDS: Final = 60.0
FIRST_FAULT_SECONDS: Final = 10.0
FAULT_SECONDS: Final = 1.0  # from one to the next
ROTS_MAX: Final = 8  # one of them damages a replica that somebody leads or follows
SLOW: Final = Slowness(1.0, 0.05)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Recorder:
    """Takes what a switch would replace, and replaces nothing."""

    def __init__(self) -> None:
        self.replaced: list[tuple[Any, str]] = []

    def setattr(self, target: Any, name: str, value: Any) -> None:
        assert callable(getattr(target, name)), f"{name} of {target} is no function"
        assert callable(value), f"{name} of {target} is replaced by {value!r}"
        self.replaced.append((target, name))


def replaced_by(mutant: Mutant) -> list[tuple[Any, str]]:
    recorder = Recorder()
    mutant.switch_off(recorder)
    return recorder.replaced


def count(place: tuple[Any, str], calls: Counter[tuple[Any, str]], patch: pytest.MonkeyPatch) -> None:
    """Has calls of a function counted."""
    known = getattr(*place)

    def call(*given: Any, **named: Any) -> Any:
        calls[place] += 1
        return known(*given, **named)

    patch.setattr(*place, call)


def run_with_rot(seed: int) -> None:
    run(Setting(seed, faults="rot", seconds=SECONDS))


def run_with_slow_disks() -> None:
    whole = Run(Setting(1, faults="none", seconds=SECONDS))
    members = whole.cluster.members.values()
    whole.world.after(SECONDS / 3, lambda: whole.faults.slow.update(dict.fromkeys(members, SLOW)))
    whole.whole()


def run_with_every_fault() -> None:
    """Each kind comes as soon as it can, one after the other. What has to come is seen to: nobody looks at what is lost by it."""
    whole = Run(Setting(1, faults="none", seconds=SECONDS))
    left, world, members = list(KINDS), whole.world, whole.cluster.members

    def come() -> None:
        name = left.pop(0)
        if not whole.faults.is_over and not whole.faults.begin(name):
            left.append(name)
        if left:
            world.after(FAULT_SECONDS, come)

    def fail_a_sync_and_fill_a_disk() -> None:
        members[1].disks.fail(("sync",), lambda path: METADATA_LOG not in path, times=1)
        members[2].disks.fill(members[2].disks.folders[0])

    world.after(FIRST_FAULT_SECONDS, come)
    world.after(FIRST_FAULT_SECONDS / 2, fail_a_sync_and_fill_a_disk)
    whole.whole()


def test_a_switch_replaces_what_is_there() -> None:
    for mutant in MUTANTS.values():
        assert replaced_by(mutant), mutant.name


def test_every_rule_is_said_once_and_every_switch_has_a_name_of_its_own() -> None:
    all_of_them = [mutant for family in FAMILIES for mutant in family.MUTANTS]
    assert len({mutant.rule for mutant in all_of_them}) == len(all_of_them) == len(MUTANTS)


def test_what_the_switches_replace_is_called_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {name: [place for place in replaced_by(mutant) if place[0] not in NOT_SIMULATED] for name, mutant in MUTANTS.items()}
    calls: Counter[tuple[Any, str]] = Counter()
    for place in dict.fromkeys(place for some in places.values() for place in some):
        count(place, calls, monkeypatch)
    uncalled = list(MUTANTS)
    rots: list[Callable[[], None]] = [partial(run_with_rot, seed) for seed in range(1, ROTS_MAX + 1)]
    for simulate in (run_with_every_fault, run_with_slow_disks, *rots):
        simulate()
        uncalled = [name for name in uncalled if not any(calls[place] for place in places[name])]
        if not uncalled:
            return
    raise AssertionError(f"nothing of them is ever called: {uncalled}")


def test_a_mutant_is_found_and_the_same_seed_finds_nothing_without_it() -> None:
    found = hunt(MUTANTS["pre_vote"], range(1, 6))
    assert isinstance(found, Found)
    assert "nobody has led the quorum" in found.wrong
