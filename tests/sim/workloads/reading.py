"""Programs that read by assignment: some partitions, from somewhere; now and then others, or from somewhere else."""

from contextlib import suppress
from typing import Final

from tests.sim.clients.connection import Lost
from tests.sim.clients.fetcher import UNKNOWN, Taste
from tests.sim.clients.library_reader import LibraryReader
from tests.sim.clients.offsets import EARLIEST, LATEST, list_offset
from tests.sim.clients.program import Place, Program
from tests.sim.clients.reader import Reader
from tests.sim.workloads.stage import Stage

PARTITIONS_MAX: Final = 4
RACKS: Final = 3
ASSIGNED_ANEW: Final = 0.03  # with a poll
SOUGHT: Final = 0.02
IDLE_SECONDS: Final = 0.5


async def read(program: Program, stage: Stage) -> None:
    await stage.set_up()
    chance = program.chance
    reader = Reader(program, Taste.chosen(chance, f"rack-{chance.randrange(RACKS)}"))
    while not stage.is_finishing:
        positions = reader.fetcher.positions
        if not positions or chance.random() < ASSIGNED_ANEW:
            places = [Place(topic.name, index) for topic in stage.topics.values() for index in range(topic.partitions)]
            reader.assign(*sorted(chance.sample(places, min(len(places), chance.randint(1, PARTITIONS_MAX)))))
        elif chance.random() < SOUGHT:
            place = chance.choice(sorted(positions))
            with suppress(Lost):
                await seek(reader, place)
        if not await reader.poll():
            await stage.pause(IDLE_SECONDS)
        stage.count("polls of readers")
    stage.count("records by readers", reader.fetcher.records_read)
    reader.close()


async def read_by_library(program: Program, stage: Stage) -> None:
    """The same with `odradek.Consumer`, from the begin of its partitions each time."""
    await stage.set_up()
    chance = program.chance
    reader = LibraryReader(program, chance, f"rack-{chance.randrange(RACKS)}")
    await reader.start()
    while not stage.is_finishing:
        if not reader.places or chance.random() < ASSIGNED_ANEW:
            places = [Place(topic.name, index) for topic in stage.topics.values() for index in range(topic.partitions)]
            await reader.assign(*sorted(chance.sample(places, min(len(places), chance.randint(1, PARTITIONS_MAX)))))
        if not reader.places or not await reader.poll():
            await stage.pause(IDLE_SECONDS)
        stage.count("polls of readers")
    stage.count("records by readers", reader.records_read)
    await reader.close()


async def seek(reader: Reader, place: Place) -> None:
    earliest = await list_offset(reader.view, place, EARLIEST)
    latest = await list_offset(reader.view, place, LATEST)
    if place in reader.fetcher.positions and reader.fetcher.positions[place].offset != UNKNOWN:
        reader.fetcher.seek(place, reader.program.chance.randint(earliest, max(earliest, latest)))
