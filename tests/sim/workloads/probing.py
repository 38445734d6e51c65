"""Programs that ask in leader epochs that are over, or that there are not yet: each time they have to be refused.

What a node has answered in one epoch it has heard of: it refuses whoever asks in an older one from then on, as long as it lives.
In a topic that is made anew epochs begin anew: such a name is not asked for.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.sim.clients.connection import Connection, Lost
from tests.sim.clients.offsets import CONSUMER, LATEST
from tests.sim.clients.program import Place, Program
from tests.sim.clients.view import View
from tests.sim.workloads.stage import Stage

PROBE_SECONDS: Final = 0.5
ANSWER_SECONDS_MAX: Final = 4.0
AHEAD: Final = 1000  # epochs: so many there never are
FETCH_BY_NAME: Final = 12  # versions that carry the epoch
LIST_OFFSETS: Final = 4
END_OF_EPOCH: Final = 3

Ask = Callable[[Connection, Place, int], Awaitable[int]]


async def probe(program: Program, stage: Stage) -> None:
    await stage.set_up()
    view = View(program)
    while not stage.is_finishing:
        await stage.pause(program.chance.expovariate(1 / PROBE_SECONDS))
        topic = program.chance.choice([topic for topic in stage.topics.values() if topic.kind not in ("passing", "renewed")])
        place = Place(topic.name, program.chance.randrange(topic.partitions))
        with suppress(Lost):
            led = await view.led(place)
            connection = await view.connection(led.leader, "probe")
            await look(stage, connection, place, led.epoch, program.chance.choice(ASKS))
    view.close()


async def look(stage: Stage, connection: Connection, place: Place, epoch: int, ask: Ask) -> None:
    """Asks in an epoch that is served, and then in others."""
    wrong = [epoch + AHEAD]
    if await ask(connection, place, epoch) == ErrorCode.NONE and epoch > 0:
        wrong.append(epoch - 1)
    for other in wrong:
        code = ErrorCode(await ask(connection, place, other))
        stage.count("epochs probed")
        assert code != ErrorCode.NONE, f"{place.topic}-{place.index} is served in leader epoch {other}, where {epoch} was told"


async def fetch(connection: Connection, place: Place, epoch: int) -> int:
    kind = FetchRequest
    partition = kind.FetchPartition(partition=place.index, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1)
    request = kind(max_bytes=1, topics=[kind.FetchTopic(topic=place.topic, partitions=[partition])])
    answer = await connection.ask(request, FETCH_BY_NAME, FetchResponse, ANSWER_SECONDS_MAX)
    return answer.responses[0].partitions[0].error_code


async def list_offsets(connection: Connection, place: Place, epoch: int) -> int:
    kind = ListOffsetsRequest
    partition = kind.ListOffsetsPartition(partition_index=place.index, current_leader_epoch=epoch, timestamp=LATEST)
    request = kind(replica_id=CONSUMER, topics=[kind.ListOffsetsTopic(name=place.topic, partitions=[partition])])
    answer = await connection.ask(request, LIST_OFFSETS, ListOffsetsResponse, ANSWER_SECONDS_MAX)
    return answer.topics[0].partitions[0].error_code


async def end_of_epoch(connection: Connection, place: Place, epoch: int) -> int:
    kind = OffsetForLeaderEpochRequest
    partition = kind.OffsetForLeaderPartition(partition=place.index, current_leader_epoch=epoch, leader_epoch=0)
    request = kind(replica_id=CONSUMER, topics=[kind.OffsetForLeaderTopic(topic=place.topic, partitions=[partition])])
    answer = await connection.ask(request, END_OF_EPOCH, OffsetForLeaderEpochResponse, ANSWER_SECONDS_MAX)
    return answer.topics[0].partitions[0].error_code


ASKS: Final[tuple[Ask, ...]] = (fetch, list_offsets, end_of_epoch)
