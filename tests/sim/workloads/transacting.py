"""Programs that write in transactions, commit some and abort others. Now and then one is killed in the middle of one, and now and
then one is taken for dead: another life with the same transactional id begins, and the former goes on as a zombie.

Invariants
 1. In the end no life of a program goes on, and the last one has ended what all others had left open.
"""

import random
from contextlib import suppress
from typing import Final

from odradek.core.transactions.transaction import EPOCH_BUMPED_SINCE
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode
from tests.sim.clients.commits import Committed, Identity
from tests.sim.clients.connection import Lost
from tests.sim.clients.late_markers import come_late
from tests.sim.clients.library_transactor import LibraryTransactor
from tests.sim.clients.producer import IN_FLIGHT_MAX, Manner
from tests.sim.clients.program import Place, Program
from tests.sim.clients.tasks import Tasks
from tests.sim.clients.transactor import Abortable, Fenced, Terms, Transactor
from tests.sim.workloads.stage import Stage
from tests.sim.workloads.writing import RECORDS_MAX, entries

TIMEOUTS_MS: Final = (2000, 6000, 60_000)  # transaction.timeout.ms: one of them
DELIVERY_SECONDS_MAX: Final = 8.0
BATCHES_MAX: Final = 6  # of a transaction
ABORTED: Final = 0.3  # of transactions, because their program changes its mind
IN_HASTE: Final = 0.5  # of those, before all that was sent is acknowledged
THOUGHTFUL: Final = 0.15  # of batches: a while passes before the next one
THOUGHT_SECONDS: Final = (0.1, 0.5, 4.0)
STALL_SECONDS: Final = (0.1, 4.0)
ACCIDENTS: Final = ("kill", "zombie", "zombie")
OFFSETS: Final = 0.5  # of transactions commit offsets, of programs that do
OFFSETS_SECONDS_MAX: Final = 4.0
REPEATED: Final = 0.5  # of transactions hear again of the end of the last, and of its offsets
RENEWED: Final = 0.2  # of transactions have an epoch that was asked for
OPEN_FOR_GOOD: Final = 0.3  # of lives that are killed: none follows with the same transactional id


def chosen_manner(chance: random.Random) -> Manner:
    codec = chance.choice([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD])
    return Manner(codec=codec, in_flight_max=chance.randint(1, IN_FLIGHT_MAX), delivery_seconds_max=DELIVERY_SECONDS_MAX)


class Life:
    """One producer of a program: it ends by itself when it is fenced, or when the run finishes."""

    def __init__(self, program: Program, stage: Stage, terms: Terms) -> None:
        self.program = program
        self.stage = stage
        kind: type[Transactor | LibraryTransactor] = LibraryTransactor if stage.profile.uses_library else Transactor
        self.transactor = kind(program, chosen_manner(program.chance), terms, self.awake)
        self.is_over = False
        self.has_ended_well = False
        self._stalled_until_s = 0.0
        self._sent = 0
        self._places: dict[Place, None] = {}  # of the transaction that is open
        self._tasks = Tasks(program)
        self._tasks.start(self._live())

    def stall(self, seconds: float) -> None:
        self._stalled_until_s = self.program.loop.time() + seconds

    async def awake(self) -> None:
        await self.stage.until(lambda: self.program.loop.time() >= self._stalled_until_s)

    async def kill(self) -> None:
        await self._tasks.cancel()
        await self._close()

    async def _close(self) -> None:
        self.is_over = True
        await self.transactor.close()
        for outcome, count in self.transactor.ended.items():
            self.stage.count(f"transactions {outcome}", count)

    async def _live(self) -> None:
        try:
            await self.transactor.initialize()
            self.stage.count("lives of transactors")
            while not self.stage.is_finishing:
                await self.stage.pause(self.program.chance.expovariate(self.stage.plan.sends_per_second))
                transactor = self.transactor
                if isinstance(transactor, Transactor) and self._is_eager and self.program.chance.random() < RENEWED:
                    await transactor.renew()
                await self._transact()
            self.has_ended_well = True
        except Fenced:
            self.stage.count("transactors fenced")
        except AssertionError:  # a node has done what it must not: the others go on
            await self._close()
            raise
        await self._close()

    async def _transact(self) -> None:
        transactor, chance = self.transactor, self.program.chance
        await transactor.begin()
        self._places.clear()
        try:
            for _ in range(chance.randint(1, BATCHES_MAX)):
                self._send()
                if chance.random() < THOUGHTFUL:
                    await self.stage.pause(chance.choice(THOUGHT_SECONDS))
            if isinstance(transactor, Transactor) and self._is_eager:
                await self._be_eager(transactor)
            if chance.random() < ABORTED:
                if chance.random() >= IN_HASTE:
                    await transactor.flush()
                await transactor.abort()
            else:
                await transactor.commit()
        except Abortable:
            self.stage.count("transactions that could not be committed")
            await transactor.abort()

    @property
    def _is_eager(self) -> bool:
        return self.stage.profile.is_eager

    async def _be_eager(self, transactor: Transactor) -> None:
        """More of what may happen to a transaction."""
        chance = self.program.chance
        who = Identity(f"group-of-{transactor.terms.transactional_id}")
        offsets = {Place(name, 0): Committed(self._sent, 0) for name in self.stage.topics}
        if chance.random() < REPEATED:
            await transactor.flush()
            with suppress(Lost):
                for place in self._places:
                    await self._hear_again(transactor, place)
            if not transactor.is_second:  # of the same epoch
                await transactor.commit_late(who, offsets, is_added=False)
        if chance.random() < OFFSETS:
            await transactor.commit_offsets(who, offsets, OFFSETS_SECONDS_MAX)

    async def _hear_again(self, transactor: Transactor, place: Place) -> None:
        """Of the end of the last transaction there, while this one is open."""
        version = EPOCH_BUMPED_SINCE if transactor.is_second else 0
        code = await come_late(transactor.view, place, transactor.producer_id, transactor.epoch, version)
        assert code != ErrorCode.NONE, f"a late end is written to {place}, where a transaction of {self.program.name} is open"
        self.stage.count("ends that come late", code is not None)

    def _send(self) -> None:
        chance = self.program.chance
        topic = self.stage.topic_to_write(chance)
        place = Place(topic.name, chance.randrange(topic.partitions))
        self._places[place] = None
        size = chance.randint(1, RECORDS_MAX)
        self.transactor.send(place, entries(chance, topic, f"{self.program.name}.{self._sent}", size))
        self.stage.count("sends in transactions", size)
        self._sent += 1


async def transact(program: Program, stage: Stage) -> None:
    name, chance = program.name, program.chance
    terms = Terms(f"transactional-{name}", chance.choice(TIMEOUTS_MS))
    await stage.set_up()
    lives = [Life(program, stage, terms)]
    while not stage.is_finishing:
        last = lives[-1]
        seconds = chance.expovariate(1 / stage.profile.accident_seconds)
        await stage.until(lambda: stage.is_finishing or last.is_over, seconds)  # noqa: B023 - waited for here
        if stage.is_finishing:
            break
        if not last.is_over:
            accident = chance.choice(ACCIDENTS)
            stage.count(f"transactors, {accident}")
            if accident == "kill":
                await last.kill()
                if stage.profile.is_eager and terms.timeout_ms < TIMEOUTS_MS[-1] and chance.random() < OPEN_FOR_GOOD:
                    terms = Terms(f"{terms.transactional_id}-{len(lives)}", chance.choice(TIMEOUTS_MS[:-1]))
            else:
                last.stall(chance.uniform(*STALL_SECONDS))
        lives.append(Life(program.renamed(f"{name}.{len(lives) + 1}"), stage, terms))
    await stage.until(lambda: all(life.is_over for life in lives))
    if not lives[-1].has_ended_well:
        lives.append(Life(program.renamed(f"{name}.{len(lives) + 1}"), stage, terms))
        await stage.until(lambda: lives[-1].is_over)
    stage.writing[name] = False
