"""What happens to a simulated cluster: faults of links, processes, machines, disks and clocks, each with a rate of its own.

A fault begins, lasts a while, and is ended; several go on at a time. Which, when, where and for how long is chance, of the seed.

What a cluster promises holds as long as not all copies of a record are lost at once: so a fault that may take away what was
written and not synced (`is_lossy`) comes only when every partition has all its replicas in sync, and the next one only when it
has again. Until then no other process ends without its clean mark (`is_unclean`): after that the controller cannot know which of
two logs is whole. All others come whenever they like. A cluster of one node has no other copy, and no lossy fault; nor has one
where a single replica is enough for an acknowledgement.

Invariants
 1. Every fault that was begun is ended, at the latest by `heal`.
 2. `counts` says how often each was begun: a fault that never comes proves nothing.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tests.log.disk import SYNCS
from tests.log.medium import Manner
from tests.sim import rot, voting
from tests.sim.cluster import SimCluster, SimNode
from tests.sim.disk import Ending
from tests.sim.loop import SimLoop

LOOK_SECONDS: Final = 0.5  # at whether a lossy fault may come
SYNC_SECONDS_MAX: Final = 0.002  # on a disk that is well
TRAP_OPERATIONS_MAX: Final = 200
CRASH_SECONDS: Final = (0.3, 3.0)  # from one crash of a loop to the next
HELD_SECONDS: Final = (0.0, 2.0)  # until the power is lost behind a cut: a follower is in sync for some time yet
RESET_SECONDS: Final = 0.5  # until a machine that was only reset is back
PAST_SECONDS: Final = (9.0, 14.0)  # until others lead what a node led that was cut off, and have told clients more than it knows
DAY_MS: Final = 24 * 3_600_000
MANNERS: Final[tuple[Manner, ...]] = ("strict", "mixed", "mixed", "torn")


logger = logging.getLogger("sim.faults")


class Kind(NamedTuple):
    """`begin` gives what ends it, or nothing where it could not begin."""

    begin: Callable[["Faults"], Ending | None]
    seconds_min: float
    seconds_max: float
    is_lossy: bool = False
    is_unclean: bool = False


class Slowness(NamedTuple):
    """Of a disk: how long an operation takes at most, and how many have to wait for it, beside syncs. Most of it is in memory."""

    seconds_max: float
    share: float


BUSY: Final = Slowness(2.0, 0.0)
BUSY_SECONDS: Final = (1.0, 5.0)  # until the power goes


class Trap(NamedTuple):
    """What happens after so many operations of a node's disks, on paths with this part."""

    left: int
    spring: Callable[[], None]
    part: str


class Faults:
    def __init__(self, cluster: SimCluster, rates: Mapping[str, float]) -> None:
        """`rates` are faults per minute, by their names."""
        self.cluster = cluster
        self.rates = dict(rates)
        self.chance = cluster.world.chance("faults")
        self.counts: Counter[str] = Counter()
        self.endings: dict[int, Ending] = {}
        self.is_over = False
        self.may_be_lossy = len(cluster.members) > 1
        self.lossy: SimNode | None = None  # the node that may have lost something
        self.losing: int | None = None  # the lossy fault that goes on
        self.slow: dict[SimNode, Slowness] = {}
        self.traps: dict[SimNode, Trap] = {}
        self._count = 0
        cluster.disk_cost = self._disk_cost
        cluster.thread_seconds = self._thread_seconds

    def start(self) -> None:
        for name, rate in self.rates.items():
            if rate:
                self._later(name)
        self.cluster.world.after(LOOK_SECONDS, self._look)

    def _later(self, name: str) -> None:
        self.cluster.world.after(self.chance.expovariate(self.rates[name] / 60), lambda: self._come(name))

    def _come(self, name: str) -> None:
        if self.is_over:
            return
        self.begin(name)
        self._later(name)

    def begin(self, name: str) -> bool:
        """One fault of this kind, now; whether it could begin."""
        kind = KINDS[name]
        if (kind.is_lossy and not self.may_lose()) or (kind.is_unclean and self.lossy is not None):
            return False
        ending = kind.begin(self)
        if ending is None:
            return False
        self.counts[name] += 1
        self._count += 1
        number = self._count
        seconds = self.chance.uniform(kind.seconds_min, kind.seconds_max)
        logger.info("%s, for %.1f s", name, seconds)
        self.endings[number] = ending
        if kind.is_lossy:
            self.losing = number
        self.cluster.world.after(seconds, lambda: self._end(number))
        return True

    def _end(self, number: int) -> None:
        ending = self.endings.pop(number, None)
        if ending is not None:
            ending()
        if number == self.losing:
            self.losing = None

    def heal(self) -> None:
        """No more faults; those that go on are ended."""
        self.is_over = True
        self.slow.clear()
        self.traps.clear()
        for member in self.cluster.members.values():
            if member.loop is not None:
                member.loop.busy_until_s = self.cluster.world.now_s
        for number in list(self.endings):
            self._end(number)
        self.cluster.heal()

    # -- who

    def pick(self) -> SimNode:
        """Any node; more often the one that leads the quorum, of whose faults there is more to fear."""
        members = list(self.cluster.members.values())
        leading = [each for each in members if each.node is not None and each.node.controller.is_active]
        return self.chance.choice([*members, *leading])

    def pick_up(self) -> SimNode | None:
        """One that is up and not paused."""
        found = self.pick()
        return found if found.loop is not None and not found.loop.is_paused else None

    # -- what may be lost

    def may_lose(self) -> bool:
        return self.may_be_lossy and self.lossy is None and self.is_whole()

    def is_whole(self) -> bool:
        nodes = self.cluster.nodes
        if len(nodes) < len(self.cluster.members) or any(
            each.loop is None or each.loop.is_paused for each in self.cluster.members.values()
        ):
            return False
        active = [node for node in nodes.values() if node.controller.is_active]
        image = max(active, key=lambda node: node.quorum.epoch).image if active else None
        return image is not None and all(
            len(partition.isr) == len(partition.replicas)
            for topic in image.topics.values()
            for partition in topic.partitions.values()
        )

    def _look(self) -> None:
        if self.lossy is not None and self.losing is None and self.is_whole():
            self.lossy = None
        self.cluster.world.after(LOOK_SECONDS, self._look)

    # -- what several kinds have in common

    def part(self, some: list[str], others: list[str]) -> Ending:
        """Cuts all links between hosts of the one and of the other."""
        network = self.cluster.network
        links = [link for one in some for other in others for link in ((one, other), (other, one))]
        for link in links:
            network.cut(*link)

        def end() -> None:
            for link in links:
                network.heal(*link)

        return end

    def slow_down(self, links: list[tuple[str, str]], delay_s: float) -> Ending:
        delays_s = self.cluster.network.delays_s
        delays_s.update(dict.fromkeys(links, delay_s))

        def end() -> None:
            for link in links:
                delays_s.pop(link, None)

        return end

    def strike_later(self, seconds: tuple[float, float], strike: Callable[[], None], ending: Ending) -> Ending:
        """Has a blow come after a while, unless the fault is ended before."""
        is_over = False

        def come() -> None:
            if not is_over:
                strike()

        def end() -> None:
            nonlocal is_over
            is_over = True
            ending()

        self.cluster.world.after(self.chance.uniform(*seconds), come)
        return end

    def trap(
        self, member: SimNode, spring: Callable[[], None], operations_max: int = TRAP_OPERATIONS_MAX, part: str = ""
    ) -> Ending:
        self.traps[member] = Trap(self.chance.randrange(operations_max), spring, part)

        def end() -> None:
            self.traps.pop(member, None)
            start(member)

        return end

    # -- disks

    def _thread_seconds(self, member: SimNode) -> float:
        """What threads do is disk work."""
        return self.chance.random() * (self.slow[member].seconds_max if member in self.slow else SYNC_SECONDS_MAX)

    def _disk_cost(self, member: SimNode, loop: SimLoop, kind: str, path: str, size: int) -> None:
        del size
        if member in self.traps and self.traps[member].part in path:
            trap = self.traps.pop(member)
            if not trap.left and self.lossy in (None, member):  # another may have lost something since it was laid
                trap.spring()
                return
            if trap.left:
                self.traps[member] = trap._replace(left=trap.left - 1)
        is_sync, slow = kind in SYNCS, self.slow.get(member)
        if loop.is_threaded:
            return  # it has taken its time already
        if slow is None or loop.time() - self.cluster.world.now_s > KINDS["slow disk"].seconds_max:  # it is over meanwhile
            loop.stall(self.chance.random() * SYNC_SECONDS_MAX if is_sync else 0.0)
        elif is_sync or self.chance.random() < slow.share:
            loop.stall(self.chance.random() * slow.seconds_max)


# -- links


def slow_links(faults: Faults) -> Ending:
    names = list(faults.cluster.network.hosts)
    delay_s = faults.chance.choice((0.02, 0.2, 2.0))
    links = [(source, target) for source in names for target in names if source != target and faults.chance.random() < 0.3]
    return faults.slow_down(links, delay_s)


def break_connections(faults: Faults) -> Ending | None:
    network = faults.cluster.network
    found = network.connections()
    share = faults.chance.choice((0.1, 0.5, 1.0))
    for end in found:
        if faults.chance.random() < share:
            network.break_connection(end)
    return (lambda: None) if found else None


def cut_one_way(faults: Faults) -> Ending | None:
    network = faults.cluster.network
    source = faults.pick().host
    others = [name for name in network.hosts if name != source]
    if not others:
        return None
    target = faults.chance.choice(others)
    if faults.chance.random() < 0.5:
        source, target = target, source
    network.cut(source, target)
    return lambda: network.heal(source, target)


def deafen(faults: Faults) -> Ending:
    """A node hears nothing of the clients for a while, and then all at once, when most have given up on it."""
    network, here = faults.cluster.network, faults.pick().host
    nodes = {member.host for member in faults.cluster.members.values()}
    clients = [name for name in network.hosts if name not in nodes]
    for client in clients:
        network.cut(client, here)

    def end() -> None:
        for client in clients:
            network.heal(client, here)

    return end


def isolate(faults: Faults) -> Ending:
    """One node from the others, or from everybody."""
    here = faults.pick().host
    nodes = {member.host for member in faults.cluster.members.values()}
    is_from_all = faults.chance.random() < 0.5
    return faults.part([here], [name for name in faults.cluster.network.hosts if name != here and (is_from_all or name in nodes)])


def split(faults: Faults) -> Ending | None:
    """The machines in two halves, clients too."""
    names = list(faults.cluster.network.hosts)
    if len(names) == 1:
        return None
    faults.chance.shuffle(names)
    at = faults.chance.randint(1, len(names) - 1)
    return faults.part(names[:at], names[at:])


# -- processes and machines


def kill(faults: Faults) -> Ending | None:
    member = faults.pick()
    if not member.is_up:
        return None
    member.kill()
    return lambda: start(member)


def kill_all(faults: Faults) -> Ending:
    members = list(faults.cluster.members.values())
    for member in members:
        member.kill()

    def end() -> None:
        for member in members:
            start(member)

    return end


def kill_the_others(faults: Faults) -> Ending | None:
    """A node is cut off from the others until they lead what it led; then they end, and clients find none but the one that knows
    nothing of what they have read and committed since. It takes a cluster that is whole, and a while."""
    member = faults.pick_up()
    others = [each for each in faults.cluster.members.values() if each is not member]
    if member is None or not others or not faults.is_whole():
        return None
    rejoin = faults.part([member.host], [each.host for each in others])

    def strike() -> None:
        if faults.lossy is None:
            for each in others:
                each.kill()

    def end() -> None:
        rejoin()
        for each in others:
            start(each)

    return faults.strike_later(PAST_SECONDS, strike, end)


def start(member: SimNode) -> None:
    if member.is_up:
        member.is_wanted = True  # one that is still about to stop starts again when it has
    else:
        member.start_soon(0)


def pause(faults: Faults) -> Ending | None:
    member = faults.pick_up()
    if member is None:
        return None
    member.pause()
    return member.resume


def stop(faults: Faults) -> Ending | None:
    member = faults.pick_up()
    if member is None or member.node is None:
        return None
    member.stop()
    return lambda: start(member)


def lose_power(faults: Faults) -> Ending | None:
    member = faults.lossy = faults.pick()
    member.lose_power(faults.chance.choice(MANNERS))
    return lambda: start(member)


def lose_power_nothing_lost(faults: Faults) -> Ending | None:
    """As above, but all reaches the disk: then it may come at any time, and to several."""
    member = faults.pick()
    member.lose_power("kept")
    return lambda: start(member)


def kill_at_a_write(faults: Faults) -> Ending | None:
    """Between two operations of its disk, of which one step may have many."""
    member = faults.pick_up()
    if member is None:
        return None
    return faults.trap(member, member.kill)


def lose_power_at_a_write(faults: Faults) -> Ending | None:
    member = faults.pick_up()
    if member is None:
        return None
    faults.lossy = member
    manner = faults.chance.choice(MANNERS)
    return faults.trap(member, lambda: member.lose_power(manner))


def lose_power_when_busy(faults: Faults) -> Ending | None:
    """The disk is busy, and syncs take long: when the power goes, much is written that is not synced, in many files."""
    member = faults.pick_up()
    if member is None:
        return None
    faults.lossy = member
    faults.slow[member] = BUSY
    manner = faults.chance.choice(MANNERS)

    def lose() -> None:
        faults.slow.pop(member, None)
        member.lose_power(manner)

    def end() -> None:
        faults.slow.pop(member, None)
        start(member)

    return faults.strike_later(BUSY_SECONDS, lose, end)


def crash_loop(faults: Faults) -> Ending | None:
    """A process that crashes again and again, a little after it was started: what others have heard of it is never true for long.
    It does not while another may have lost something."""
    member, world = faults.pick_up(), faults.cluster.world
    if member is None:
        return None
    is_over = False

    def crash() -> None:
        if is_over:
            return
        if faults.lossy is None:
            member.kill()
        start(member)
        world.after(faults.chance.uniform(*CRASH_SECONDS), crash)

    def end() -> None:
        nonlocal is_over
        is_over = True
        start(member)

    crash()
    return end


def lose_power_behind_a_cut(faults: Faults) -> Ending | None:
    """What a machine has sent to another is held up; it loses power then, and is back before the other hears what it said."""
    member, other = faults.pick_up(), faults.pick()
    if member is None or member is other:
        return None
    faults.lossy = member
    network, world, manner = faults.cluster.network, faults.cluster.world, faults.chance.choice(MANNERS)

    def lose() -> None:
        member.lose_power(manner)
        world.after(RESET_SECONDS, lambda: start(member))

    def end() -> None:
        network.heal(member.host, other.host)
        start(member)

    network.cut(member.host, other.host)
    return faults.strike_later(HELD_SECONDS, lose, end)


# -- disks


def fill_disk(faults: Faults) -> Ending | None:
    """That of a node that serves, and once at a time: one that has no room kept for its metadata does not go on."""
    member = faults.pick_up()
    if member is None or member.node is None or not member.node.reserve.is_there:
        return None
    disks = member.disks
    folder = faults.chance.choice(disks.folders)
    if disks.medium.volumes[folder].room is not None:
        return None
    disks.fill(folder, faults.chance.choice((0, 1000, 20_000)))
    return lambda: disks.make_room(folder)


def fail_sync(faults: Faults) -> Ending | None:
    """The node ends, or goes on without the folder; what it had not synced is lost when it is started again. Of a disk that is
    bad in one place, it is one log."""
    member = faults.pick_up()
    if member is None:
        return None
    faults.lossy = member
    bad = faults.chance.choice(member.disks.folders)
    segments = member.disks.paths(lambda path: path.startswith(bad + "/") and path.endswith(".log"))
    if segments and faults.chance.random() < 0.7:
        bad = faults.chance.choice(segments).rsplit("/", 1)[0]
    member.disks.fail(("sync",), lambda path: path.startswith(bad + "/"), times=faults.chance.choice((1, 3)))

    def end() -> None:
        member.disks.heal()
        if member.is_up:  # a folder of several is used again after the next start only
            member.kill()
        start(member)

    return end


def slow_disk(faults: Faults) -> Ending:
    member = faults.pick()
    faults.slow[member] = Slowness(faults.chance.choice((0.01, 0.1, 1.0)), faults.chance.choice((0.05, 0.3)))

    def end() -> None:
        faults.slow.pop(member, None)

    return end


def slow_disks(faults: Faults) -> Ending:
    """About half of them, and not so slow that no election can be won: it takes several syncs."""
    members = [member for member in faults.cluster.members.values() if faults.chance.random() < 0.5]
    faults.slow.update(dict.fromkeys(members, Slowness(faults.chance.choice((0.05, 0.3)), 0.05)))

    def end() -> None:
        for member in members:
            faults.slow.pop(member, None)

    return end


def cold_disk(faults: Faults) -> Ending:
    """Nothing is in memory any more."""
    faults.pick().disks.chill()
    return lambda: None


# -- clocks


def jump(faults: Faults) -> Ending:
    """The wall clock of a machine is set, and stays so."""
    member = faults.pick()
    member.clock.ahead_ms += int(faults.chance.choice((-DAY_MS, -60_000, 5_000, 60_000)) * faults.chance.random())
    return lambda: None


KINDS: Final[dict[str, Kind]] = {
    "slow links": Kind(slow_links, 1, 15),
    "connections lost": Kind(break_connections, 0, 0),
    "link cut one way": Kind(cut_one_way, 1, 20),
    "deaf node": Kind(deafen, 8.5, 13),
    "node cut off": Kind(isolate, 1, 25),
    "network split": Kind(split, 1, 20),
    "leader cut off": Kind(voting.isolate_leader, 0.5, 6),
    "nodes far apart": Kind(voting.slow_nodes, 2, 15),
    "kill": Kind(kill, 0.01, 15, is_unclean=True),
    "kill of all": Kind(kill_all, 0.1, 5, is_unclean=True),
    "kill of the others": Kind(kill_the_others, 20, 30, is_unclean=True),
    "pause": Kind(pause, 0.05, 15),
    "clean stop": Kind(stop, 0.1, 10),
    "power loss": Kind(lose_power, 0.5, 15, is_lossy=True),
    "kill at a write": Kind(kill_at_a_write, 2, 10, is_unclean=True),
    "power loss at a write": Kind(lose_power_at_a_write, 2, 10, is_lossy=True),
    "crash loop": Kind(crash_loop, 3, 15, is_unclean=True),
    "power loss behind a cut": Kind(lose_power_behind_a_cut, 6, 15, is_lossy=True),
    "power loss of a busy disk": Kind(lose_power_when_busy, 6, 15, is_lossy=True),
    "kill at metadata": Kind(voting.kill_at_metadata, 2, 10, is_unclean=True),
    "kill after a vote": Kind(voting.kill_after_a_vote, 5, 20, is_unclean=True),
    "power loss at metadata": Kind(voting.lose_power_at_metadata, 2, 10, is_lossy=True),
    "power loss, all kept": Kind(lose_power_nothing_lost, 0.5, 15, is_unclean=True),
    "disk full": Kind(fill_disk, 1, 20),
    "failed sync": Kind(fail_sync, 1, 10, is_lossy=True),
    "slow disk": Kind(slow_disk, 1, 20),
    "slow disks": Kind(slow_disks, 1, 10),
    "cold disk": Kind(cold_disk, 0, 0),
    "rot": Kind(rot.rot, 1, 20, is_lossy=True),
    "rot at a start": Kind(rot.rot_at_a_start, 0.1, 5, is_lossy=True),
    "wrong reads": Kind(rot.wrong_reads, 1, 20, is_lossy=True),
    "rot of indexes": Kind(rot.rot_of_indexes, 0.1, 5, is_unclean=True),
    "rot of snapshots": Kind(rot.rot_of_snapshots, 0.1, 5, is_unclean=True),
    "rot of a checkpoint": Kind(rot.rot_of_a_checkpoint, 0.1, 5, is_lossy=True),
    "rot of the metadata": Kind(rot.rot_of_the_metadata, 2, 10, is_unclean=True),
    "disk replaced": Kind(rot.replace_disk, 0.5, 10, is_lossy=True),
    "clock jump": Kind(jump, 0, 0),
}
