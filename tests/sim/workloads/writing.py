"""Programs that write: each with one kind of producer, to all topics there are; now and then one is killed and starts again."""

import random
from typing import Final

from tests.sim.clients.library import LibraryProducer
from tests.sim.clients.producer import Manner, Producer
from tests.sim.clients.program import Place, Program
from tests.sim.workloads.plan import KEYS, TopicPlan
from tests.sim.workloads.stage import Stage

RECORDS_MAX: Final = 4  # of a batch
UNFINISHED_MAX: Final = 40  # batches: more are not begun
TOMBSTONES: Final = 0.15  # of the records of a compacted topic
KILLED: Final = 0.004  # a writer, with a send


async def write(program: Program, stage: Stage) -> None:
    name, lives, number = program.name, 1, 0
    await stage.set_up()
    kind: type[Producer | LibraryProducer] = LibraryProducer if stage.profile.uses_library else Producer
    producer = kind(program, Manner.chosen(program.chance))
    while not stage.is_finishing:
        await stage.pause_to_write(program.chance, stage.plan.sends_per_second)
        if not stage.topics or producer.unfinished >= UNFINISHED_MAX:
            continue
        topic = stage.topic_to_write(program.chance)
        size = program.chance.randint(1, RECORDS_MAX)
        place = Place(topic.name, program.chance.randrange(topic.partitions))
        producer.send(place, entries(program.chance, topic, f"{program.name}.{number}", size))
        stage.count("sends", size)
        number += 1
        if program.chance.random() < KILLED:
            stage.count("writers killed")
            stage.count("acknowledged", producer.acknowledged)
            await producer.close()
            lives += 1
            program = program.renamed(f"{name}.{lives}")
            producer = kind(program, Manner.chosen(program.chance))
    await producer.flush()
    stage.count("acknowledged", producer.acknowledged)
    stage.writing[name] = False
    await producer.close()


def entries(chance: random.Random, topic: TopicPlan, name: str, size: int) -> list[tuple[bytes | None, bytes | None]]:
    """Records whose values are nobody else's."""
    found: list[tuple[bytes | None, bytes | None]] = []
    for index in range(size):
        value = f"{name}.{index}".encode()
        if topic.kind == "compacted":
            key = f"key-{chance.randrange(KEYS)}".encode()
            found.append((key, None if chance.random() < TOMBSTONES else value))
        else:
            found.append((None if chance.random() < 0.5 else value, value))
    return found
