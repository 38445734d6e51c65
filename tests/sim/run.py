"""One run: a cluster, its clients and its faults, from one seed; then everything is healed, and looked at.

    starting   until every node serves
    working    clients work while faults come and go
    healing    no more faults: the cluster must come to rest, and everybody must get an answer, within HEAL_SECONDS_MAX
    judging    the checker reads the history, the structure of the nodes is looked at as a whole

Invariants
 1. A run depends on its seed, its number of nodes and its profiles, and on nothing else: `digest` is the same every time.
 2. Whatever is found wrong is in `wrong`, in sentences.
"""

import asyncio
import gc
import hashlib
import time
from typing import Final

import msgspec

from tests.checker.check import check
from tests.checker.history import History
from tests.log.disk import SimDisk
from tests.sim.cluster import SimCluster
from tests.sim.faults import Faults
from tests.sim.loop import SimLoop, World
from tests.sim.machine import SimMachine, WallClock
from tests.sim.profiles import FAULTS
from tests.sim.structural.findings import Violated
from tests.sim.structure import Structure, unsettled
from tests.sim.workloads.profile import PROFILES
from tests.sim.workloads.workload import Main, Workload

START_SECONDS_MAX: Final = 30.0
HEAL_SECONDS_MAX: Final = 600.0
STRUCTURE_SECONDS: Final = 2.0  # between two looks at the structure
WRONG_MAX: Final = 20  # sentences that are kept


class Setting(msgspec.Struct, frozen=True):
    """What a run is made of."""

    seed: int
    nodes: int = 3
    profile: str = "mixed"  # of the clients
    faults: str = "all"
    seconds: float = 120.0  # in which faults come

    def __str__(self) -> str:
        return f"SEED={self.seed} NODES={self.nodes} PROFILE={self.profile} FAULTS={self.faults} SECONDS={self.seconds:g}"


class Result(msgspec.Struct):
    setting: Setting
    wrong: list[str] = []
    faults: dict[str, int] = {}
    done: dict[str, int] = {}  # by the clients
    checked: dict[str, int] = {}  # by the checker
    looks: int = 0  # at the structure
    simulated_s: float = 0.0
    real_s: float = 0.0  # of one core
    digest: str = ""


class Run:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        profile = PROFILES[setting.profile]
        self.world = World(f"{setting.seed}/{setting.nodes}/{setting.profile}/{setting.faults}")
        self.cluster = SimCluster(self.world, setting.nodes, profile.node_settings, profile.folders, profile.controllers)
        self.slowness = profile.slowness
        self.faults = Faults(self.cluster, {name: rate / self.slowness for name, rate in FAULTS[setting.faults].items()})
        self.structure = Structure(self.cluster)
        self.history = History()
        self.workload = Workload(self.world.seed, profile, self.cluster.bootstrap, self.history, self._start_program)
        self.faults.may_be_lossy &= not self.workload.stage.plan.is_fragile
        self.programs: list[SimLoop] = []
        self.checked: dict[str, int] = {}
        self.wrong: list[str] = []

    @property
    def loops(self) -> list[SimLoop]:
        """Of all processes, in all their lives."""
        return [*self.cluster.loops, *self.programs]

    def _start_program(self, name: str, main: Main) -> None:
        loop = SimLoop(self.world, name)
        self.programs.append(loop)
        host = f"10.1.0.{len(self.programs)}"
        machine = SimMachine(self.cluster.network, loop, host, WallClock(), SimDisk)
        self.cluster.network.host(host)
        loop.run_soon(main(machine))

    # -- the stages

    def whole(self) -> Result:
        began_s, is_collected = time.process_time(), gc.isenabled()
        gc.disable()  # of what was abandoned nothing is finalized while time passes
        try:
            self._start()
            if not self.wrong:
                self._work()
                self._heal()
            self._judge()
        except Violated as violated:
            self.wrong.append(f"structure, at {self.world.now_s:.3f} s: {violated}")
        finally:
            asyncio._set_running_loop(None)
            for loop in self.loops:
                loop.forget()
            if is_collected:
                gc.enable()
        return Result(
            setting=self.setting,
            wrong=self.wrong[:WRONG_MAX],
            faults=dict(self.faults.counts),
            done=dict(self.workload.counts),
            checked=self.checked,
            looks=self.structure.checks,
            simulated_s=self.world.now_s,
            real_s=time.process_time() - began_s,
            digest=self.digest(),
        )

    def _start(self) -> None:
        self.cluster.start()
        self.world.run(START_SECONDS_MAX, lambda: len(self.cluster.nodes) == self.setting.nodes)
        if len(self.cluster.nodes) < self.setting.nodes:
            self.wrong.append(f"only nodes {list(self.cluster.nodes)} serve after {START_SECONDS_MAX:g} s")

    def _work(self) -> None:
        self.workload.start()
        self.faults.start()
        end_s = self.world.now_s + self.setting.seconds
        while self.world.now_s < end_s:
            self.world.run(min(self.world.now_s + self.slowness * STRUCTURE_SECONDS, end_s))
            self.structure.check()

    def _heal(self) -> None:
        """Liveness: after healing everything is answered, and every replica is in sync."""
        self.faults.heal()
        self.workload.finish()
        end_s = self.world.now_s + HEAL_SECONDS_MAX
        while self.world.now_s < end_s and not (self.workload.is_over and not unsettled(self.cluster)):
            self.world.run(min(self.world.now_s + STRUCTURE_SECONDS, end_s))
            self.structure.check()
        self.wrong += [f"stuck: {each}" for each in self.workload.stuck]
        if not self.workload.is_over:
            self.wrong.append(f"stuck: clients are not done {HEAL_SECONDS_MAX:g} s after everything was healed")
        elif why := unsettled(self.cluster):
            self.wrong.append(f"stuck: {HEAL_SECONDS_MAX:g} s after everything was healed, {why}")

    def _judge(self) -> None:
        self.structure.check_whole()
        self.wrong[:0] = [f"client: {error!r}" for error in self.workload.failures]  # which may be why others are stuck
        for loop in self.loops:
            self.wrong += [f"complaint of {loop.name}: {each}" for each in loop.complaints]
        for member in self.cluster.members.values():
            self.wrong += [f"node {member.number} ended, and its disk had not failed: {each}" for each in member.breakdowns]
        report = check(self.history)
        self.checked = report.checked
        if self.workload.is_over:  # or there is no final reading
            self.wrong += [str(each) for each in report.violations]

    def digest(self) -> str:
        """Of all that was told and of all that is on the disks."""
        found = hashlib.sha256(self.history.to_bytes())
        for member in self.cluster.members.values():
            for path, content in member.disks.contents():
                found.update(path.encode())
                found.update(content)
        return found.hexdigest()


def run(setting: Setting) -> Result:
    return Run(setting).whole()
