"""What a simulated producer sends to a partition, and what it makes of the answers."""

import asyncio
import random
from collections.abc import Callable

from odradek.node.machine import Machine
from odradek.wire.errors import ErrorCode
from tests.checker.history import History, SendEnded
from tests.sim.clients.lane import Batch, Lane
from tests.sim.clients.program import Place, Program

LATER_S = 1e9


def on_a_loop(test: Callable[[Lane], None], *, is_idempotent: bool = True, is_known: bool = True) -> History:
    history = History()

    async def main() -> None:
        program = Program("writer", Machine(), [], history, random.Random(1))
        lane = Lane(program, Place("orders", 0), 5 if is_idempotent else 1, is_idempotent)
        lane.is_known = is_known
        lane.batches.extend(Batch([number], [(None, b"value")], LATER_S, 0) for number in range(6))
        test(lane)

    asyncio.run(main())
    return history


def sent(lane: Lane) -> list[int]:
    """Sends whatever may be sent, and says what."""
    found = []
    lane.retry_s = 0.0
    while (batch := lane.next()) is not None:
        lane.number(batch, 0 if not lane.is_bumped else lane.epoch + 1)
        batch.attempts += 1
        batch.is_under_way = True
        found.append(batch.ids[0])
    return found


def by_id(lane: Lane, number: int) -> Batch:
    return next(batch for batch in lane.batches if batch.ids == [number])


def outcomes(history: History) -> list[tuple[int, str]]:
    return [(event.id, event.outcome) for event in history.events if isinstance(event, SendEnded)]


def test_five_batches_are_under_way_at_most_in_the_order_of_their_sequences() -> None:
    def test(lane: Lane) -> None:
        assert sent(lane) == [0, 1, 2, 3, 4]
        assert [batch.sequence for batch in lane.batches] == [0, 1, 2, 3, 4, -1]
        lane.end(by_id(lane, 0), "acknowledged", base_offset=7)
        assert sent(lane) == [5]
        assert lane.log_end == 8

    assert outcomes(on_a_loop(test)) == [(0, "acknowledged")]


def test_until_the_first_batch_is_acknowledged_it_is_alone() -> None:
    """A leader that does not know the producer would take a later one before it."""

    def test(lane: Lane) -> None:
        assert sent(lane) == [0]
        lane.end(by_id(lane, 0), "acknowledged", base_offset=0)
        assert sent(lane) == [1, 2, 3, 4, 5]

    on_a_loop(test, is_known=False)


def test_what_is_sent_again_waits_until_it_is_the_first() -> None:
    def test(lane: Lane) -> None:
        sent(lane)
        lane.lost(by_id(lane, 0), "lost")
        lane.refused(by_id(lane, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert sent(lane) == [0]
        lane.end(by_id(lane, 0), "acknowledged", base_offset=0)
        assert sent(lane) == [1, 5]

    on_a_loop(test)


def test_what_may_be_in_the_log_never_gets_another_sequence() -> None:
    def test(lane: Lane) -> None:
        sent(lane)
        lane.lost(by_id(lane, 0), "lost")
        lane.lost(by_id(lane, 1), "lost")
        for number in (2, 3, 4):
            lane.refused(by_id(lane, number), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        by_id(lane, 0).deadline_s = 0.0
        assert sent(lane) == [1]  # the first has expired; whether it is there is seen by what becomes of the second
        lane.refused(by_id(lane, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert sent(lane) == [2, 3, 4, 5]
        assert [(batch.epoch, batch.sequence) for batch in lane.batches] == [(1, 0), (1, 1), (1, 2), (1, 3)]

    assert outcomes(on_a_loop(test)) == [(0, "unknown"), (1, "unknown")]


def test_what_every_attempt_was_refused_for_sure_is_refused() -> None:
    def test(lane: Lane) -> None:
        assert sent(lane) == [0]
        lane.refused(by_id(lane, 0), ErrorCode.NOT_ENOUGH_REPLICAS)
        assert sent(lane) == [0]
        lane.refused(by_id(lane, 0), ErrorCode.MESSAGE_TOO_LARGE)
        assert sent(lane) == [1]
        lane.lost(by_id(lane, 1), "lost")
        assert sent(lane) == [1]
        lane.refused(by_id(lane, 1), ErrorCode.MESSAGE_TOO_LARGE)

    assert outcomes(on_a_loop(test, is_idempotent=False)) == [(0, "refused"), (1, "unknown")]
