"""As whom batches are sent: a producer id and an epoch, by which a broker knows what it has written already.

Invariants
 1. An epoch is used for one count of a partition's batches: whoever counts anew takes the next one, or another id.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from odradek.client.cluster import Cluster, forget_failure
from odradek.client.errors import KafkaError, refused
from odradek.client.records import TopicPartition
from odradek.wire.messages import InitProducerIdRequest, InitProducerIdResponse

NAMES_UNTIL: Final = 12  # versions of Produce: later ones know topics by id alone
EPOCH_MAX: Final = 2**15 - 2


class Identity(Protocol):
    """As whom batches are sent."""

    @property
    def owner(self) -> tuple[int, int] | None:
        """Producer id and epoch; None when they are not known yet, and are being asked for."""
        ...

    @property
    def transactional_id(self) -> str | None: ...

    @property
    def produce_version_max(self) -> int: ...

    def admits(self, place: TopicPartition) -> bool:
        """Whether a batch for the partition may leave now; if not, `Sender.wake` is called when it may."""
        ...

    def next_epoch(self) -> tuple[int, int] | None:
        """As whom a partition goes on whose numbers have to begin anew; None when that is not known yet."""
        ...

    def judged(self, error: KafkaError) -> KafkaError:
        """What a refusal for good means to who is this."""
        ...

    def failed(self, place: TopicPartition, error: KafkaError) -> None:
        """A batch was given up."""
        ...


class Idempotent:
    """A producer without transactions. Its id is asked for when the first batch is to leave, for as long as it takes."""

    transactional_id: Final = None
    produce_version_max: Final = NAMES_UNTIL

    def __init__(self, cluster: Cluster, wake: Callable[[], None], give_up: Callable[[KafkaError], None]) -> None:
        """`give_up` is told when there will be no id."""
        self.cluster = cluster
        self.wake = wake
        self.give_up = give_up
        self.producer_id = self.epoch = -1
        self._asking: asyncio.Task[Any] | None = None

    @property
    def owner(self) -> tuple[int, int] | None:
        if self.producer_id >= 0:
            return self.producer_id, self.epoch
        if self._asking is None:
            self._asking = self.cluster.loop.create_task(self._ask())
            self._asking.add_done_callback(forget_failure)
        return None

    async def _ask(self) -> None:
        async def attempt() -> InitProducerIdResponse:
            request = InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
            answer = await self.cluster.ask_any(request, InitProducerIdResponse)
            if answer.error_code:
                raise refused(answer.error_code)
            return answer

        try:
            answer = await self.cluster.insist("to get a producer id", attempt)
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        except KafkaError as error:
            if not error.is_retriable:
                self.give_up(error)
        finally:
            self._asking = None
            self.wake()

    def admits(self, place: TopicPartition) -> bool:
        del place
        return True

    def next_epoch(self) -> tuple[int, int] | None:
        if self.epoch >= EPOCH_MAX:
            self.producer_id = -1
        if self.owner is None:
            return None
        self.epoch += 1
        return self.producer_id, self.epoch

    def judged(self, error: KafkaError) -> KafkaError:
        return error

    def failed(self, place: TopicPartition, error: KafkaError) -> None:
        """The lane of the partition counts anew by itself."""

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
