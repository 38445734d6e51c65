"""A consumer by assignment: it says itself what it reads, and from where."""

from tests.checker.history import Assigned, MemberEnded, Position
from tests.sim.clients.fetcher import UNKNOWN, Fetcher, Taste
from tests.sim.clients.program import Place, Program
from tests.sim.clients.view import View


class Reader:
    def __init__(self, program: Program, taste: Taste) -> None:
        self.program = program
        self.view = View(program)
        self.fetcher = Fetcher(program, self.view, taste)

    def assign(self, *places: Place, offset: int = UNKNOWN) -> None:
        """From now on these; where it does not read yet, from the offset on, or from where it resets to."""
        program, fetcher = self.program, self.fetcher
        kept = [place for place in places if place in fetcher.positions]
        for place in [place for place in fetcher.positions if place not in places]:
            fetcher.forget(place)
        fresh = [place for place in places if place not in kept]
        for place in fresh:
            fetcher.begin(place, offset)
        program.tell(
            Assigned(
                program.at_ms,
                program.name,
                fresh=[Position(place.topic, place.index, offset) for place in fresh],
                kept=[Position(place.topic, place.index, fetcher.positions[place].offset) for place in kept],
                ids=fetcher.told_ids(kept),
            )
        )

    async def poll(self) -> int:
        return await self.fetcher.poll()

    def close(self) -> None:
        self.program.tell(MemberEnded(self.program.at_ms, self.program.name))
        self.view.close()
