"""What can happen to a cluster, by name. A fault lasts until clients have felt it, and is over when its function returns."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from tests.cluster.cluster import Cluster
from tests.cluster.settings import PARTITIONS
from tests.cluster.workload import Workload

SLOW_SECONDS: Final = 0.15
SESSION_SECONDS: Final = 12.0  # longer than brokers believe what they lead without a word of a controller
DEAF_SECONDS: Final = 15.0  # longer than followers stay in sync that do not fetch
STORM_BLOWS: Final = 12
STORM_SECONDS_MAX: Final = 3.0  # between two of them

Victims = Callable[[Cluster, Random, Workload], list[int]]
Fault = Callable[[Cluster, Random, Workload], None]


def leader(cluster: Cluster, random: Random, workload: Workload) -> list[int]:
    return [cluster.leader(workload.topic, random.randrange(PARTITIONS))]


def follower(cluster: Cluster, random: Random, workload: Workload) -> list[int]:
    (led_by,) = leader(cluster, random, workload)
    return [random.choice([number for number in cluster.brokers if number != led_by])]


def controller(cluster: Cluster, _: Random, __: Workload) -> list[int]:
    return [cluster.controller()]


def coordinator(cluster: Cluster, _: Random, workload: Workload) -> list[int]:
    return [cluster.coordinator(workload.topic)]


def two(cluster: Cluster, random: Random, _: Workload) -> list[int]:
    return random.sample(cluster.brokers, 2)


def most(cluster: Cluster, random: Random, _: Workload) -> list[int]:
    return random.sample(cluster.brokers, len(cluster.brokers) // 2 + 1)


def voters(cluster: Cluster, random: Random, _: Workload) -> list[int]:
    """So many that there is no controller."""
    numbers = cluster.layout.voter_numbers
    return random.sample(numbers, len(numbers) // 2 + 1)


def everybody(cluster: Cluster, _: Random, __: Workload) -> list[int]:
    return list(cluster.nodes)


def felt(cluster: Cluster, victims: list[int], workload: Workload) -> None:
    """Until writers go on without the victims; without most brokers they cannot. Without a controller that is no broker they go
    on for ever, because another follows it."""
    brokers = [number for number in victims if number in cluster.brokers]
    if not brokers and 2 * len(victims) < len(cluster.layout.voter_numbers):
        workload.goes_on_for(SESSION_SECONDS)
    if 2 * len(brokers) < len(cluster.brokers):
        workload.goes_on()
    else:
        workload.is_stuck()


def kill(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    victims = choose(cluster, random, workload)
    cluster.kill(*victims)
    felt(cluster, victims, workload)
    cluster.start(*victims)


def kill_and_restart(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    """At once, before anybody has felt it."""
    victims = choose(cluster, random, workload)
    cluster.kill(*victims)
    cluster.start(*victims)


def stop(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    victims = choose(cluster, random, workload)
    cluster.stop(*victims)
    felt(cluster, victims, workload)
    cluster.start(*victims)


def pause(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    """Of one: longer than its session lasts, for until then nobody goes on without it."""
    victims = choose(cluster, random, workload)
    cluster.pause(*victims)
    felt(cluster, victims, workload)
    cluster.go_on(*victims)


def pause_shortly(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    victims = choose(cluster, random, workload)
    cluster.pause(*victims)
    workload.is_stuck()
    cluster.go_on(*victims)


def cut_off(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    """From the other nodes, both ways; clients still reach it."""
    victims = choose(cluster, random, workload)
    cluster.links.cut(victims, cluster.nodes)
    cluster.links.cut(cluster.nodes, victims)
    felt(cluster, victims, workload)
    cluster.links.heal()


def mute(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    """It reaches nobody; the others reach it."""
    victims = choose(cluster, random, workload)
    cluster.links.cut(victims, cluster.nodes)
    if len(victims) == 1:
        felt(cluster, victims, workload)
    else:  # what one of them leads goes on if it is the controller too
        workload.goes_on_for(DEAF_SECONDS)
    cluster.links.heal()


def deaf(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    """Nobody reaches it, and it keeps what it leads as long as it is heard of: nobody goes on there. Brokers find the controller
    that follows a deaf one."""
    victims = choose(cluster, random, workload)
    cluster.links.cut(cluster.nodes, victims)
    workload.goes_on_for(DEAF_SECONDS)
    if len(victims) == 1 and victims[0] not in cluster.brokers:
        felt(cluster, victims, workload)
    cluster.links.heal()


def cut_from_each_other(cluster: Cluster, random: Random, workload: Workload) -> None:
    """Two of them; the others reach both."""
    one, other = random.sample(cluster.brokers, 2)
    cluster.links.cut([one], [other])
    cluster.links.cut([other], [one])
    workload.goes_on_for(DEAF_SECONDS)
    cluster.links.heal()


def slow_links(cluster: Cluster, _: Random, workload: Workload) -> None:
    cluster.links.slow(cluster.nodes, SLOW_SECONDS)
    workload.goes_on()
    cluster.links.heal()


def slow(choose: Victims, cluster: Cluster, random: Random, workload: Workload) -> None:
    """All links from and to the victims."""
    cluster.links.slow(choose(cluster, random, workload), SLOW_SECONDS * random.randint(1, 4))
    workload.goes_on()
    workload.goes_on()
    cluster.links.heal()


def reset_links(cluster: Cluster, _: Random, workload: Workload) -> None:
    cluster.links.reset()
    workload.goes_on()


def rolling_restart(cluster: Cluster, random: Random, workload: Workload) -> None:
    for number in random.sample(list(cluster.nodes), len(cluster.nodes)):
        cluster.stop(number)
        workload.goes_on()
        cluster.start(number)
        cluster.heal()
        cluster.all_in_sync(workload.topic)


def storm(cluster: Cluster, random: Random, workload: Workload) -> None:
    """One blow after the other, at whoever stands, while others have not recovered: each node may be down, paused or cut."""
    for _ in range(STORM_BLOWS):
        number = random.choice(list(cluster.nodes))
        if number in cluster.ended:
            cluster.start(number)
        elif number in cluster.paused:
            cluster.go_on(number)
        else:
            blows: list[Callable[[int], None]] = [cluster.kill, cluster.kill, cluster.pause]
            if cluster.layout.has_links:
                blows += [partial(strike_links, cluster, random)] * 3
            random.choice(blows)(number)
        workload.goes_on_for(random.random() * STORM_SECONDS_MAX)
    cluster.heal()


def strike_links(cluster: Cluster, random: Random, number: int) -> None:
    others = random.sample(list(cluster.nodes), random.randint(1, len(cluster.nodes)))
    match random.randrange(4):
        case 0:
            cluster.links.cut([number], others)
        case 1:
            cluster.links.cut(others, [number])
        case 2:
            cluster.links.slow([number], SLOW_SECONDS)
        case _:
            cluster.links.heal()


ONE: Final[dict[str, Victims]] = {"leader": leader, "follower": follower, "controller": controller, "coordinator": coordinator}
SOME: Final[dict[str, Victims]] = {**ONE, "two": two, "voters": voters}
ANY: Final[dict[str, Victims]] = {**SOME, "most": most, "all": everybody}

FAULTS: Final[dict[str, Fault]] = {
    **{f"{who} killed": partial(kill, victims) for who, victims in ANY.items()},
    **{f"{who} killed, started at once": partial(kill_and_restart, victims) for who, victims in ANY.items()},
    **{f"{who} stopped": partial(stop, victims) for who, victims in ANY.items()},
    **{f"{who} paused": partial(pause, victims) for who, victims in ANY.items()},
    **{f"{who} paused shortly": partial(pause_shortly, victims) for who, victims in (("leader", leader), ("follower", follower))},
    "rolling restart": rolling_restart,
    "storm": storm,
}
LINK_FAULTS: Final[dict[str, Fault]] = {
    **{f"{who} cut off": partial(cut_off, victims) for who, victims in SOME.items()},
    **{f"{who} reaches nobody": partial(mute, victims) for who, victims in SOME.items()},
    **{f"{who} reached by nobody": partial(deaf, victims) for who, victims in SOME.items()},
    **{f"{who} slow": partial(slow, victims) for who, victims in SOME.items()},
    "two cut from each other": cut_from_each_other,
    "links slow": slow_links,
    "links reset": reset_links,
    "storm on links": storm,
}
