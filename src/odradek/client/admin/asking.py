"""How an administrator asks: many keys at once, each where it belongs, until each has its answer.

Invariants
 1. Keys that belong to one broker go there in one request, and all brokers are asked at once.
 2. A key that has its answer is not asked for again because others have none yet.
 3. One key that fails raises its own error. Of several, those that fail are raised together, as SomeFailed, with what became of
    the others. Nothing fails without being raised.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from odradek.client.admin.ways import ANYWHERE, Anywhere, Brokers, Way, look
from odradek.client.cluster import Cluster
from odradek.client.connection import Connection
from odradek.client.errors import InvalidOption, KafkaError, SomeFailed, TimedOut, refused
from odradek.client.records import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.ids import id_bytes
from odradek.wire.message import Message

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Answer = TypeVar("Answer", bound=Message)
Outcomes = Mapping[Key, Value | KafkaError]
Ask = Callable[[Connection, list[Key]], Awaitable[Outcomes[Key, Value]]]


class Asking:
    """What all the nouns of an Admin share."""

    cluster: Cluster

    @property
    def _patience_ms(self) -> int:
        """For one request, of us and of the broker that does it."""
        return self.cluster.timing.request_timeout_ms

    async def _each(
        self, what: str, keys: Iterable[Key], way: Way[Key], ask: Ask[Key, Value], timeout_ms: float | None = None
    ) -> dict[Key, Value]:
        """`ask` says for each key what became of it; `what` is wanted."""
        pending = wanted = list(dict.fromkeys(keys))
        done: dict[Key, Value] = {}
        failed: dict[Key, KafkaError] = {}

        async def attempt() -> None:
            nonlocal pending
            passing: dict[Key, KafkaError] = {}
            for key, outcome in (await self._ask_brokers(pending, way, ask)).items():
                if not isinstance(outcome, KafkaError):
                    done[key] = outcome
                elif outcome.is_retriable and way.passes(outcome):
                    passing[key] = outcome
                else:
                    failed[key] = outcome
            pending = [*passing]
            for error in passing.values():
                raise error

        try:
            if wanted:
                await self.cluster.insist(what, attempt, timeout_ms)
        except TimedOut as error:
            failed |= dict.fromkeys(pending, error)
        if failed and len(wanted) == 1:
            raise failed[wanted[0]]
        if failed:
            raise SomeFailed({key: failed[key] for key in wanted if key in failed}, done)
        return {key: done[key] for key in wanted}

    async def _ask_brokers(self, keys: list[Key], way: Way[Key], ask: Ask[Key, Value]) -> dict[Key, Value | KafkaError]:
        outcomes: dict[Key, Value | KafkaError] = {}
        by_broker: dict[int, list[Key]] = {}
        for key, place in zip(keys, await way.find(self.cluster, keys), strict=True):
            if isinstance(place, KafkaError):
                outcomes[key] = place
            else:
                by_broker.setdefault(place, []).append(key)

        async def ask_broker(broker: int, asked: list[Key]) -> None:
            try:
                connection = await self._connection(broker)
                answered = await ask(connection, asked)
            except KafkaError as error:
                outcomes.update(dict.fromkeys(asked, error))
                return
            silent = refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"{connection} says nothing of it")
            outcomes.update({key: answered.get(key, silent) for key in asked})

        async with asyncio.TaskGroup() as group:
            for broker, asked in by_broker.items():
                group.create_task(ask_broker(broker, asked))
        return outcomes

    async def _connection(self, broker: int) -> Connection:
        if broker == ANYWHERE:
            return await self.cluster.any_connection()
        return self.cluster.connected(broker) or await self.cluster.connection(broker)

    async def _each_broker(
        self, what: str, ask: Ask[int, Value], timeout_ms: float | None = None, brokers: Iterable[int] | None = None
    ) -> dict[int, Value]:
        """What each broker says for itself; None: each that is there now."""

        async def attempt() -> list[int]:
            return sorted(each.node_id for each in (await look(self.cluster, [])).brokers)

        wanted = await self.cluster.insist("to find the brokers", attempt, timeout_ms) if brokers is None else brokers
        return await self._each(what, wanted, Brokers(own_number), ask, timeout_ms)

    async def _one(self, what: str, request: Message, response: type[Answer], timeout_ms: float | None = None) -> Answer:
        """One request to any broker, whose answer has one error code."""

        async def ask(connection: Connection, keys: list[str]) -> Outcomes[str, Answer]:
            answer = await connection.post(request, response, self._patience_ms)
            return dict.fromkeys(keys, failure(answer) or answer)

        return (await self._each(what, [what], Anywhere(), ask, timeout_ms))[what]


def own_number(key: object) -> int:
    assert isinstance(key, int)
    return key


def failure(answer: Message) -> KafkaError | None:
    """Why a whole request was refused."""
    code: int = getattr(answer, "error_code", ErrorCode.NONE)
    return refused(code, getattr(answer, "error_message", None)) if code else None


def outcome(
    value: Value,
    code: int,
    reason: str | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
) -> Value | KafkaError:
    """The value, where the code is none of an error."""
    if not code:
        return value
    return refused(code, reason, topic=topic, partition=partition, group=group, transactional_id=transactional_id)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """As requests have them."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found


def given_id(text: str) -> bytes:
    """An id as people write it."""
    try:
        return id_bytes(text)
    except ValueError as error:
        raise InvalidOption(str(error)) from error
