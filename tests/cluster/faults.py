"""What can happen to a cluster, by name. A fault lasts until clients have felt it, and is over when its function returns."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from odradek.cli.up import Node
from tests.cluster.cluster import Cluster
from tests.cluster.workload import PARTITIONS, Workload

SLOW_SECONDS: Final = 0.15
DEAF_SECONDS: Final = 15.0  # longer than followers stay in sync that do not fetch

Victims = Callable[[Cluster, Random, Workload], list[Node]]
Fault = Callable[[Cluster, Random, Workload], None]


def leader(cluster: Cluster, random: Random, workload: Workload) -> list[Node]:
    return [cluster.leader(workload.topic, random.randrange(PARTITIONS))]


def follower(cluster: Cluster, random: Random, workload: Workload) -> list[Node]:
    (led_by,) = leader(cluster, random, workload)
    return [random.choice([node for node in cluster.nodes if node is not led_by])]


def controller(cluster: Cluster, _: Random, __: Workload) -> list[Node]:
    return [cluster.controller()]


def coordinator(cluster: Cluster, _: Random, workload: Workload) -> list[Node]:
    return [cluster.coordinator(workload.topic)]


def two(cluster: Cluster, random: Random, _: Workload) -> list[Node]:
    return random.sample(cluster.nodes, 2)


def everybody(cluster: Cluster, _: Random, __: Workload) -> list[Node]:
    return cluster.nodes


def felt(victims: list[Node], workload: Workload) -> None:
    """Until writers go on without the victim; without most nodes they cannot."""
    if len(victims) == 1:
        workload.goes_on()
    else:
        workload.is_stuck()


def kill(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    victims = choose(cluster, random, workload)
    cluster.kill(*victims)
    felt(victims, workload)
    cluster.start(*victims)


def kill_and_restart(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    """At once, before anybody has felt it."""
    victims = choose(cluster, random, workload)
    cluster.kill(*victims)
    cluster.start(*victims)


def stop(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    victims = choose(cluster, random, workload)
    cluster.stop(*victims)
    felt(victims, workload)
    cluster.start(*victims)


def pause(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    """Of one: longer than its session lasts, for until then nobody goes on without it."""
    victims = choose(cluster, random, workload)
    cluster.pause(*victims)
    felt(victims, workload)
    cluster.go_on(*victims)


def pause_shortly(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    victims = choose(cluster, random, workload)
    cluster.pause(*victims)
    workload.is_stuck()
    cluster.go_on(*victims)


def cut_off(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    """From the other nodes, both ways; clients still reach it."""
    (victim,) = choose(cluster, random, workload)
    numbers = [node.number for node in cluster.nodes]
    cluster.links.cut([victim.number], numbers)
    cluster.links.cut(numbers, [victim.number])
    workload.goes_on()
    cluster.links.heal()


def mute(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    """It reaches nobody; the others reach it."""
    (victim,) = choose(cluster, random, workload)
    cluster.links.cut([victim.number], [node.number for node in cluster.nodes])
    workload.goes_on()
    cluster.links.heal()


def deaf(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    """Nobody reaches it, and it keeps what it leads as long as it is heard of: nobody goes on there."""
    (victim,) = choose(cluster, random, workload)
    cluster.links.cut([node.number for node in cluster.nodes], [victim.number])
    workload.is_stuck(1, DEAF_SECONDS)
    cluster.links.heal()


def slow_links(cluster: Cluster, _: Random, workload: Workload) -> None:
    cluster.links.slow(SLOW_SECONDS)
    workload.goes_on()
    cluster.links.heal()


def reset_links(cluster: Cluster, _: Random, workload: Workload) -> None:
    cluster.links.reset()
    workload.goes_on()


def rolling_restart(cluster: Cluster, random: Random, workload: Workload) -> None:
    for node in random.sample(cluster.nodes, len(cluster.nodes)):
        cluster.stop(node)
        workload.goes_on()
        cluster.start(node)
        cluster.all_in_sync(workload.topic)


ONE: Final[dict[str, Victims]] = {"leader": leader, "follower": follower, "controller": controller, "coordinator": coordinator}
ANY: Final[dict[str, Victims]] = {**ONE, "two": two, "all": everybody}

FAULTS: Final[dict[str, Fault]] = {
    **{f"{who} killed": partial(kill, victims) for who, victims in ANY.items()},
    **{f"{who} killed, started at once": partial(kill_and_restart, victims) for who, victims in ANY.items()},
    **{f"{who} stopped": partial(stop, victims) for who, victims in ANY.items()},
    **{f"{who} paused": partial(pause, victims) for who, victims in ANY.items()},
    **{f"{who} paused shortly": partial(pause_shortly, victims) for who, victims in ONE.items()},
    "rolling restart": rolling_restart,
}
LINK_FAULTS: Final[dict[str, Fault]] = {
    **{f"{who} cut off": partial(cut_off, victims) for who, victims in ONE.items()},
    **{f"{who} reaches nobody": partial(mute, victims) for who, victims in ONE.items()},
    "leader reached by nobody": partial(deaf, leader),
    "links slow": slow_links,
    "links reset": reset_links,
}
