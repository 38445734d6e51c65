"""Where programs run: on simulated machines of their own, or all in one real process."""

import asyncio
from typing import Final

from odradek.log.disk import Disk
from odradek.node.machine import Machine
from tests.sim.loop import SimLoop
from tests.sim.machine import SimMachine, WallClock
from tests.sim.network import Network
from tests.sim.workloads.workload import Main

FIRST_HOST: Final = 1


class SimHosts:
    """`run` is what a Workload wants."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.loops: dict[str, SimLoop] = {}

    def run(self, name: str, main: Main) -> None:
        loop = self.loops[name] = SimLoop(self.network.world, name)
        host = f"10.0.1.{FIRST_HOST + len(self.loops)}"
        self.network.power_on(host)
        loop.run_soon(main(SimMachine(self.network, loop, host, WallClock(), no_disk)))


def no_disk() -> Disk:
    raise AssertionError("a client has no disk")


class RealHosts:
    """All of them on the loop that runs."""

    def __init__(self) -> None:
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def run(self, name: str, main: Main) -> None:
        self.tasks[name] = asyncio.get_running_loop().create_task(main(Machine()))
