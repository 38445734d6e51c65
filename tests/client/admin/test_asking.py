"""How many things are asked for at once: what is asked again, what is raised, and what a cancelled call leaves behind."""

import asyncio
from collections.abc import Sequence

import pytest

from odradek.client.admin import Admin
from odradek.client.admin.asking import Outcomes
from odradek.client.admin.ways import ANYWHERE
from odradek.client.cluster import Cluster
from odradek.client.connection import Connection
from odradek.client.errors import InvalidOption, KafkaError, Refused, SomeFailed, TimedOut, refused
from odradek.wire.errors import ErrorCode
from tests.client.admin.scenario import administer
from tests.kafka.broker import Broker

STEPS_MAX = 60  # of the loop, until a call has its answer


class Once:
    """Everything belongs anywhere; what is refused with NOT_CONTROLLER passes."""

    async def find(self, cluster: Cluster, keys: Sequence[str]) -> Sequence[int | KafkaError]:
        return [ANYWHERE] * len(keys)

    def passes(self, error: KafkaError) -> bool:
        return error.code == ErrorCode.NOT_CONTROLLER


def test_what_has_its_answer_is_not_asked_again(node: Broker) -> None:
    asked: list[list[str]] = []

    async def ask(_: Connection, keys: list[str]) -> Outcomes[str, int]:
        asked.append(keys)
        later = {"b"} if len(asked) == 1 else set()
        return {key: refused(ErrorCode.NOT_CONTROLLER) if key in later else len(asked) for key in keys}

    async def scenario(admin: Admin) -> None:
        assert await admin._each("to try", ["a", "b", "a"], Once(), ask) == {"a": 1, "b": 2}
        assert asked == [["a", "b"], ["b"]]

    administer(node, scenario, retry_backoff_ms=1)


def test_what_never_passes_is_told_by_key_when_time_is_over(node: Broker) -> None:
    async def ask(_: Connection, keys: list[str]) -> Outcomes[str, int]:
        said: dict[str, int | KafkaError] = {
            "a": 1,
            "b": refused(ErrorCode.NOT_CONTROLLER),
            "c": refused(ErrorCode.INVALID_REQUEST),
        }
        return {key: said[key] for key in keys if key in said}

    async def scenario(admin: Admin) -> None:
        with pytest.raises(SomeFailed) as caught:
            await admin._each("to try", "abcd", Once(), ask, timeout_ms=20)
        assert caught.value.done == {"a": 1}
        kinds = {key: (type(error), error.code) for key, error in caught.value.errors.items()}
        assert kinds == {
            "b": (TimedOut, ErrorCode.REQUEST_TIMED_OUT),
            "c": (Refused, ErrorCode.INVALID_REQUEST),
            "d": (Refused, ErrorCode.UNKNOWN_SERVER_ERROR),
        }

    administer(node, scenario, retry_backoff_ms=1)


def test_a_call_that_is_cancelled_at_any_step_leaves_the_admin_usable(node: Broker) -> None:
    async def scenario(admin: Admin) -> None:
        ended = 0
        for steps in range(STEPS_MAX):
            async with Admin(node.bootstrap) as other:
                for each in (admin, other):  # one that is connected, and one that is about to be
                    call = asyncio.create_task(each.describe_log_dirs())
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    call.cancel()
                    (outcome,) = await asyncio.gather(call, return_exceptions=True)
                    ended += isinstance(outcome, asyncio.CancelledError)
                    assert isinstance(outcome, dict | asyncio.CancelledError)
                    assert set(await each.describe_log_dirs()) == {1}
        assert ended

    administer(node, scenario)


def test_options_go_by_the_names_of_other_clients_too(node: Broker) -> None:
    async def run() -> None:
        async with Admin.of({"bootstrap.servers": node.bootstrap, "request.timeout.ms": "7000", "client.id": "me"}) as admin:
            assert (admin.cluster.timing.request_timeout_ms, admin.cluster.client_id) == (7000, "me")
            assert (await admin.describe_cluster()).controller == 1
        with pytest.raises(InvalidOption, match=r"client\.id"):
            Admin.of({"client_id": "me"})

    asyncio.run(run())
