"""Programs that have leaders change places, often at once and back again, in the middle of everything."""

from contextlib import suppress
from typing import Final

from tests.sim.clients.administrator import Administrator
from tests.sim.clients.connection import Lost
from tests.sim.clients.program import Place, Program
from tests.sim.workloads.plan import TopicPlan
from tests.sim.workloads.stage import Stage

ELECTIONS_MAX: Final = 5  # of one partition at a time
PAUSES_SECONDS: Final = (0.0, 0.0, 0.3)  # before one: none has heard of the last, or some have, and have written by it
INTERNAL: Final = tuple(TopicPlan(name, "compacted", 2, 3, {}) for name in ("__transaction_state", "__consumer_offsets"))


async def elect(program: Program, stage: Stage) -> None:
    await stage.set_up()
    administrator = Administrator(program)
    while not stage.is_finishing:
        await stage.pause(program.chance.expovariate(1 / stage.profile.election_seconds))
        with suppress(Lost):
            await swap(program, stage, administrator)
    stage.count("elections", administrator.answered.get("elections", 0))
    administrator.close()


async def swap(program: Program, stage: Stage, administrator: Administrator) -> None:
    """One after the other of the replicas in sync is preferred, and leads, before all have heard of the last."""
    chance, view = program.chance, administrator.view
    topic = chance.choice(INTERNAL if stage.profile.elects_coordinators else list(stage.topics.values()))
    place = Place(topic.name, chance.randrange(topic.partitions))
    await view.refresh([place.topic])
    led = view.known(place)
    if (
        led is None or len(led.replicas) != topic.replicas or len(led.in_sync) < 2
    ):  # being moved: nobody is added for good by this
        return
    leader = led.leader
    for _ in range(chance.randint(1, ELECTIONS_MAX)):
        leader = chance.choice([broker for broker in led.in_sync if broker != leader])
        await stage.pause(chance.choice(PAUSES_SECONDS))
        await administrator.reassign(place, [leader, *(broker for broker in led.replicas if broker != leader)])
        await administrator.elect(place)
