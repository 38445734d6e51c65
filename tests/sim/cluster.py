"""A cluster of simulated nodes: the production classes, each on a loop, a machine and disks that can fail.

Invariants
 1. A node is one process at a time. What survives it is its medium and its wall clock.
 2. A process that ends by itself, because it could not start or go on, is started again a little later, as a supervisor would do.
"""

import errno
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from odradek.core.config.broker import BrokerConfig
from odradek.core.controller.bootstrap import new_features
from odradek.core.raft.voters import Voter, VoterSet
from odradek.log.checkpoint import CLEAN_SHUTDOWN
from odradek.log.disk import DiskFull
from odradek.log.folder import METADATA_LOG
from odradek.node.errors import StartFailed
from odradek.node.format import format_folders, new_id
from odradek.node.node import Node, serve
from odradek.wire.ids import id_text
from tests.log.medium import Manner
from tests.sim.disk import SimDisks
from tests.sim.loop import SimLoop, World
from tests.sim.machine import BEGIN_MS, SimMachine, WallClock
from tests.sim.network import Network

CLIENT_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
ROOT: Final = "/disk"
RESERVE_BYTES: Final = 64 * 1024
THREAD_SECONDS: Final = 0.000_5
RESTART_SECONDS: Final = 2.0
CONTROLLERS: Final = 3

logger = logging.getLogger("sim.cluster")


class SimNode:
    def __init__(self, cluster: "SimCluster", number: int, settings: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.number = number
        self.host = f"10.0.0.{number}"
        self.settings = dict(settings)
        self.folders = [f"{ROOT}{index}/node-{number}" for index in range(cluster.folders)]
        self.metadata_folder = f"{self.config.metadata_log_dir}/{METADATA_LOG}"
        volumes = [folder.rsplit("/", 1)[0] for folder in self.folders]
        self.disks = SimDisks(volumes, lambda: BEGIN_MS + int(cluster.world.now_s * 1000))
        self.clock = WallClock()
        self.life = 0
        self.loop: SimLoop | None = None
        self.node: Node | None = None  # that serves
        self.starting: Node  # since it has lived
        self.has_begun = False  # in this life
        self.went_on_s = 0.0  # when it was paused last, and that was over
        self.lives: list[bytes] = []  # the incarnations of all that have begun
        self.is_wanted = True  # up, whenever it can be
        self.ends: list[str] = []  # why its lives ended by themselves
        self.breakdowns: list[str] = []  # why those did whose disk had not failed: a full one ends nobody who has served

    @property
    def is_up(self) -> bool:
        return self.loop is not None

    @property
    def config(self) -> BrokerConfig:
        return BrokerConfig({**self.settings, "log.dirs": ",".join(self.folders)})

    @property
    def address(self) -> tuple[str, int]:
        return (self.host, CLIENT_PORT)

    # -- its lives

    def start(self) -> None:
        assert self.loop is None
        world, network = self.cluster.world, self.cluster.network
        self.is_wanted = True
        self.life += 1
        self.loop = loop = SimLoop(world, f"node-{self.number}.{self.life}")
        self.cluster.loops.append(loop)
        loop.thread_seconds = lambda: self.cluster.thread_seconds(self)
        self.disks.faults.on_cost = lambda kind, path, size: self.cluster.disk_cost(self, loop, kind, path, size)
        network.power_on(self.host)
        machine = SimMachine(network, loop, self.host, self.clock, self.disks.new_disk)
        logger.info("node %d starts", self.number)
        loop.run_soon(self._live(loop, machine))

    async def _live(self, loop: SimLoop, machine: SimMachine) -> None:
        node = Node(self.config, machine.new_disk, RESERVE_BYTES, machine)
        reason = "stopped"

        def ready() -> None:
            self.node = node
            logger.info("node %d serves", self.number)
            for told in self.cluster.on_ready:
                told(node)

        try:
            self.starting, self.has_begun = node, True
            self.lives.append(node.incarnation_id)
            await serve(node, ready)
            if len(self.disks.paths(lambda path: path.endswith(CLEAN_SHUTDOWN))) < len(self.folders):
                self._note_unclean(is_sure=False)  # on a full disk there was no room for the mark
        except StartFailed as failed:
            reason = str(failed)
            self.ends.append(reason)
            self._note_unclean(is_sure=node.stopped.done() and node.stopped.result() is not None)
            failure = node.stopped.result() if node.stopped.done() else None
            is_full = isinstance(failure, DiskFull) and self.node is node
            is_missing = isinstance(failure, OSError) and failure.errno == errno.ENOENT  # which no fault of a disk is
            if is_full or is_missing or not isinstance(failure, OSError | StartFailed | None):
                self.breakdowns.append(reason)
            logger.warning("node %d ended: %s", self.number, reason)
        except Exception as error:  # noqa: BLE001 - of which there must be none, in a process that lives
            reason = repr(error)
            if not loop.is_dead:
                loop.call_exception_handler({"message": f"node {self.number} ended", "exception": error})
        finally:
            self.cluster.world.after(0, lambda: self._exited(loop, reason))

    def _exited(self, loop: SimLoop, reason: str) -> None:
        if self.loop is loop:
            logger.info("node %d is down: %s", self.number, reason)
            self._end(loop)
            self.cluster.network.process_ended(loop)
            if self.is_wanted:
                self.start_soon()

    def start_soon(self, seconds: float = RESTART_SECONDS) -> None:
        def start() -> None:
            if self.is_wanted and not self.is_up:
                self.start()

        self.is_wanted = True
        self.cluster.world.after(seconds, start)

    def _note_crash(self) -> None:
        """That this life ends without a clean stop; one that was about to stop may have left its mark already."""
        if self.has_begun:
            self._note_unclean(is_sure=not self.starting.stopped.done())

    def _note_unclean(self, *, is_sure: bool) -> None:
        """Where this life has not come to register, the one before it is what the cluster knows, and its clean mark is gone."""
        for earlier in self.lives:
            self.cluster.unclean.setdefault(earlier, False)
        self.cluster.unclean[self.starting.incarnation_id] = is_sure

    def _end(self, loop: SimLoop) -> None:
        loop.kill()
        self.disks.kill()
        self.has_begun = False
        self.loop = self.node = None

    # -- what can be done to it

    def kill(self) -> None:
        """kill -9: what was written stays."""
        if self.loop is not None:
            logger.info("node %d is killed", self.number)
            self._note_crash()
            loop, self.is_wanted = self.loop, False
            self._end(loop)
            self.cluster.network.process_ended(loop)

    def lose_power(self, manner: Manner) -> None:
        """What was not synced may be lost, and nobody is told."""
        if self.loop is not None:
            logger.info("node %d loses power (%s)", self.number, manner)
            self._note_crash()
            self.is_wanted = False
            self._end(self.loop)
        self.cluster.network.power_off(self.host)
        self.disks.lose_power(manner, self.cluster.world.chance(f"crash {self.number}.{self.life}"))

    def stop(self) -> None:
        """A clean stop, when it serves."""
        if self.loop is not None and self.node is not None:
            logger.info("node %d is stopped", self.number)
            self.is_wanted = False
            self.loop.call_soon(self.node.stop)

    def pause(self) -> None:
        if self.loop is not None:
            logger.info("node %d is paused", self.number)
            self.loop.pause()

    def resume(self) -> None:
        if self.loop is not None and self.loop.is_paused:
            logger.info("node %d goes on", self.number)
            self.went_on_s = self.cluster.world.now_s
            self.loop.resume()


class SimCluster:
    """`disk_cost` and `thread_seconds` may be set, to say how long disks and threads take."""

    def __init__(
        self, world: World, count: int, settings: Mapping[str, str], folders: int = 1, controllers: int = CONTROLLERS
    ) -> None:
        self.world = world
        self.controllers = controllers  # at most
        self.network = Network(world)
        self.folders = folders
        self.loops: list[SimLoop] = []  # of all lives
        self.unclean: dict[bytes, bool] = {}  # incarnations that ended without a clean stop, and whether that is sure
        self.thread_seconds: Callable[[SimNode], float] = lambda _: THREAD_SECONDS
        self.disk_cost: Callable[[SimNode, SimLoop, str, str, int], None] = lambda *_: None
        self.on_ready: list[Callable[[Node], None]] = []  # told of a node that serves
        self.members = {number: SimNode(self, number, self._settings(number, count, settings)) for number in range(1, count + 1)}
        self._format()

    @property
    def nodes(self) -> dict[int, Node]:
        """Those that serve."""
        return {number: member.node for number, member in self.members.items() if member.node is not None}

    @property
    def living(self) -> dict[int, Node]:
        """Those that serve, and those that will."""
        return {number: member.starting for number, member in self.members.items() if member.is_up and member.has_begun}

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [member.address for member in self.members.values()]

    def _settings(self, number: int, count: int, settings: Mapping[str, str]) -> dict[str, str]:
        voters = range(1, min(count, self.controllers) + 1)
        here = f"10.0.0.{number}"
        listeners = f"PLAINTEXT://{here}:{CLIENT_PORT}"
        is_voter = number in voters
        return {
            "node.id": str(number),
            "process.roles": "broker,controller" if is_voter else "broker",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://{here}:{CONTROLLER_PORT}" if is_voter else listeners,
            "controller.quorum.bootstrap.servers": ",".join(f"10.0.0.{each}:{CONTROLLER_PORT}" for each in voters),
            "broker.rack": f"rack-{number % 3}",
            "offsets.topic.replication.factor": str(min(count, 3)),
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": str(min(count, 3)),
            "transaction.state.log.min.isr": str(min(count, 2)),
            "transaction.state.log.num.partitions": "2",
            "default.replication.factor": str(min(count, 3)),
            "min.insync.replicas": "1" if count == 1 else "2",
            "group.initial.rebalance.delay.ms": "0",
            **settings,
        }

    def _format(self) -> None:
        chance = self.world.chance("format")
        machine = SimMachine(self.network, SimLoop(self.world, "format"), "", WallClock(), self.members[1].disks.new_disk)
        machine.random = chance
        configs = [member.config for member in self.members.values()]
        voters = VoterSet(
            tuple(
                Voter(config.node_id, new_id(machine.unique_id), ((listener.name, listener.host, listener.port),))
                for config in configs
                for listener in config.advertised_controller_listeners[: config.is_controller]
            )
        )
        self.cluster_id = id_text(new_id(machine.unique_id))
        for member in self.members.values():
            format_folders(
                member.config,
                cluster_id=self.cluster_id,
                features=new_features(),
                voters=voters,
                now_ms=BEGIN_MS,
                new_disk=member.disks.new_disk,
                unique_id=machine.unique_id,
            )
            member.disks.kill()  # the process that has formatted it

    def format_again(self, member: SimNode, chance: random.Random) -> None:
        """What is new of the folders of a node, and has no vote in it."""
        format_folders(
            member.config,
            cluster_id=self.cluster_id,
            features=new_features(),
            voters=None,
            now_ms=BEGIN_MS,
            ignore_formatted=True,
            new_disk=member.disks.new_disk,
            unique_id=lambda: UUID(int=chance.getrandbits(128), version=4),
        )
        member.disks.kill()

    def start(self) -> None:
        for member in self.members.values():
            member.start()

    def heal(self) -> None:
        """Ends all faults but those of what is lost: every link is whole, every node is up or about to be."""
        self.network.heal()
        for member in self.members.values():
            member.disks.heal()
            for volume in member.disks.folders:
                member.disks.make_room(volume)
            member.resume()
            member.is_wanted = True
            if not member.is_up:
                member.start_soon(0)
