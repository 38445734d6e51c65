"""Programs that administer: one makes the topics and then changes what it can, one takes voters away and brings them back."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

from tests.sim.clients.administrator import Administrator
from tests.sim.clients.connection import Lost
from tests.sim.clients.offsets import EARLIEST, LATEST, list_offset
from tests.sim.clients.program import Place, Program
from tests.sim.clients.voters import Voters
from tests.sim.workloads.plan import Kind, TopicPlan, topic_plan
from tests.sim.workloads.stage import Stage

SET_UP_ATTEMPTS_MAX: Final = 100
ATTEMPTS_MAX: Final = 3
PARTITIONS_MAX: Final = 5
PASSING_MAX: Final = 2  # topics at a time
USED_AGAIN: Final = 0.5  # of names
BUSY_SECONDS: Final = (0.0, 0.3, 1.0)  # while much is written to it, before it is deleted: one of them
GONE_SECONDS: Final = (0.0, 0.0, 0.3, 2.0)  # until another topic has the name: one of them
BY_ID: Final = {"CreateTopics": 7, "DeleteTopics": 6}
SETTLED_SECONDS_MAX: Final = 60.0
SETTINGS: Final = {
    "min.insync.replicas": ("1", "2"),
    "flush.messages": ("1", "10", "1000000"),
    "flush.ms": ("500", "1000000"),
    "internal.segment.bytes": ("2000", "20000", "1000000"),
    "segment.ms": ("2000", "10000"),
    "max.message.bytes": ("100000", "1000000"),
    "compression.type": ("producer", "producer", "zstd", "uncompressed"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
}


async def administer(program: Program, stage: Stage) -> None:
    administrator = Administrator(program)
    by_id = program.renamed(program.name)
    by_id.era = by_id.era.with_floor(**BY_ID)
    renewing = Administrator(by_id)
    for topic in stage.plan.topics:
        maker = renewing if topic.kind == "renewed" else administrator
        outcome = await maker.create(
            topic.name, topic.partitions, topic.replicas, topic.configs, SET_UP_ATTEMPTS_MAX, is_new=True
        )
        assert outcome == "acknowledged", f"{topic.name} cannot be made: the run cannot begin"
        stage.topics[topic.name] = topic
    stage.is_set_up = True
    crew = Crew(program, stage, administrator, renewing)
    while stage.profile.has_administrator and not stage.is_finishing:
        await stage.pause(program.chance.expovariate(1 / stage.profile.operation_seconds))
        with suppress(Lost):
            await crew.do_something()
    stage.is_settled = True
    for each in (administrator, renewing):
        for what, number in each.answered.items():
            stage.count(what, number)
        each.close()


class Crew:
    """What an administrator does, at random.

    Topics whose names may be used again are made and deleted by another that knows their ids: one request that comes late is
    then never about the next topic of the name. Where it is not known that a topic is gone, its name is left alone."""

    def __init__(self, program: Program, stage: Stage, administrator: Administrator, renewing: Administrator) -> None:
        self.program = program
        self.stage = stage
        self.administrator = administrator
        self.renewing = renewing
        self.free: list[str] = []  # names of topics that are gone for sure
        self.made = 0
        self.moving: dict[Place, bool] = {}
        self.round: list[Callable[[], Coroutine[object, object, None]]] = []

    async def do_something(self) -> None:
        """One thing after another, in rounds in which everything has its turn."""
        if not self.round:
            self.round = [self.make_topic, self.delete_topic, self.grow, self.configure, self.configure, self.delete_records]
            self.round += [self.move, self.move, self.take_back, self.elect, self.elect]
            self.round += [self.renew] * self.stage.profile.renewals
            self.program.chance.shuffle(self.round)
        await self.administrator.view.refresh(self.stage.topics)
        await self.round.pop()()

    def any_topic(self) -> TopicPlan:
        return self.program.chance.choice(list(self.stage.topics.values()))

    def any_place(self) -> Place:
        topic = self.any_topic()
        return Place(topic.name, self.program.chance.randrange(topic.partitions))

    async def make_topic(self) -> None:
        if sum(topic.kind == "passing" for topic in self.stage.topics.values()) >= PASSING_MAX:
            return
        chance = self.program.chance
        if self.free and chance.random() < USED_AGAIN:
            await self._make(self.free.pop(), "passing", self.renewing)
            return
        self.made += 1
        maker = self.renewing if chance.random() < USED_AGAIN else self.administrator
        await self._make(f"passing-{self.made}", "passing", maker)

    async def _make(self, name: str, kind: Kind, maker: Administrator) -> bool:
        nodes, is_fragile = len(self.program.bootstrap), self.stage.plan.is_fragile
        topic = topic_plan(self.program.chance, name, kind, nodes, is_fragile=is_fragile)
        is_made = await maker.create(topic.name, topic.partitions, topic.replicas, topic.configs) == "acknowledged"
        if is_made:
            self.stage.topics[name] = topic
        return is_made

    async def delete_topic(self) -> None:
        passing = [topic.name for topic in self.stage.topics.values() if topic.kind == "passing"]
        if passing:
            name = self.program.chance.choice(passing)
            del self.stage.topics[name]
            if name not in self.renewing.made:
                await self.administrator.delete(name, ATTEMPTS_MAX)
            elif await self._delete_for_another(name):
                self.free.append(name)

    async def _delete_for_another(self, name: str) -> bool:
        return await self.renewing.delete(name, ATTEMPTS_MAX, self.renewing.made[name]) == "acknowledged"

    async def renew(self) -> None:
        """Deletes a topic that everybody goes on using, and makes another one of its name, at once or soon."""
        topics = [topic for topic in self.stage.topics.values() if topic.name in self.renewing.made]
        if not topics:
            return
        topic, chance = self.program.chance.choice(topics), self.program.chance
        self.stage.renewing = topic.name
        await self.stage.pause(chance.choice(BUSY_SECONDS))
        is_gone = await self._delete_for_another(topic.name)
        if is_gone:
            await self.stage.pause(chance.choice(GONE_SECONDS))
        if not is_gone or not await self._make(topic.name, topic.kind, self.renewing):
            del self.stage.topics[topic.name]
        else:
            self.stage.count("topics made anew")
        self.stage.renewing = ""

    async def grow(self) -> None:
        topic = self.any_topic()
        if topic.partitions < PARTITIONS_MAX and not await self.administrator.add_partitions(topic.name, topic.partitions + 1):
            topic.partitions += 1

    async def configure(self) -> None:
        topic, chance = self.any_topic(), self.program.chance
        if topic.kind == "short" and chance.random() < 0.3:
            await self.administrator.configure(topic.name, {"retention.ms": chance.choice(("3000", "8000", "30000"))})
            return
        name = chance.choice(list(SETTINGS))
        value = chance.choice(SETTINGS[name])
        if name == "min.insync.replicas" and not (self.stage.plan.is_fragile and self._is_in_sync(topic)):
            return
        await self.administrator.configure(topic.name, {name: value})

    def _is_in_sync(self, topic: TopicPlan) -> bool:
        """A change of min.insync.replicas has Kafka forget who is eligible: a partition that nobody leads then stays so."""
        known = self.administrator.view.topics.get(topic.name)
        is_whole = known is not None and all(len(each.in_sync) == len(each.replicas) for each in known.partitions.values())
        return is_whole and topic.replicas > 1

    async def delete_records(self) -> None:
        view = self.administrator.view
        topics = [topic for topic in self.stage.topics.values() if topic.kind in ("short", "passing", "renewed")]
        topic = self.program.chance.choice(topics)
        place = Place(topic.name, self.program.chance.randrange(topic.partitions))
        earliest = await list_offset(view, place, EARLIEST)
        latest = await list_offset(view, place, LATEST)
        if latest > earliest:
            await self.administrator.delete_records(place, self.program.chance.randint(earliest + 1, latest))

    async def move(self) -> None:
        """To other nodes where there are more, else in another order: another one is preferred then. Never to fewer: what is on
        one node alone is lost with its power."""
        place, chance = self.any_place(), self.program.chance
        nodes, count = sorted(self.administrator.view.brokers), self.stage.topics[place.topic].replicas
        if len(nodes) >= count:
            self.moving[place] = True
            await self.administrator.reassign(place, chance.sample(nodes, count))

    async def take_back(self) -> None:
        if self.moving:
            place = self.program.chance.choice(sorted(self.moving))
            del self.moving[place]
            if place.topic in self.stage.topics:
                await self.administrator.reassign(place, None)

    async def elect(self) -> None:
        is_unclean = self.stage.profile.allows_unclean and self.program.chance.random() < 0.5
        await self.administrator.elect(self.any_place(), is_unclean=is_unclean)


async def change_voters(program: Program, stage: Stage) -> None:
    await stage.set_up()
    voters = Voters(program)
    while not stage.is_finishing:
        await stage.pause(program.chance.expovariate(1 / stage.profile.voter_seconds))
        await (voters.change_in_haste() if stage.profile.has_hasty_voters else voters.change())
    end_s = program.loop.time() + SETTLED_SECONDS_MAX
    while not await voters.bring_back():
        if program.loop.time() > end_s:
            stage.stuck.append(f"voters {[voter.id for voter in voters.away]} cannot be brought back")
            break
        await stage.until(lambda: stage.is_over, 1.0)
    stage.count("voter changes", voters.changes)
    stage.stuck += voters.wrong
    voters.close()
