"""What clients need and did not ask for in so many words: topics that they name, and ids for producers.

Where the controller cannot give it, they are told what has them come again.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import (
    AllocateProducerIdsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.node.inside import connected, new_node, running

STALE = AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
NOBODY = Refused(ErrorCode.REQUEST_TIMED_OUT, "no active controller has answered in time")


def fails_with(failure: object) -> Any:
    async def ask(*_: object) -> object:
        if isinstance(failure, Refused):
            raise failure
        return failure

    return ask


def test_a_topic_that_cannot_be_created_yet_is_none_and_hides_no_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(new_node(tmp_path, default_replication_factor="3")) as node, connected(node) as client:
            assert await client.create("there") == ErrorCode.NONE
            wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("there", "later", "not a name")]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
            answer = await client.ask(request, 12, MetadataResponse)
            assert {topic.name: topic.error_code for topic in answer.topics} == {
                "there": ErrorCode.NONE,
                "later": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "not a name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            }

    asyncio.run(run())


def test_nor_is_one_while_there_is_no_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            wanted = [MetadataRequest.MetadataRequestTopic(name="later")]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
            with monkeypatch.context() as patched:
                patched.setattr(node.link, "ask", fails_with(NOBODY))
                answer = await client.ask(request, 12, MetadataResponse)
            assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = await client.ask(request, 12, MetadataResponse)
            assert answer.topics[0].error_code == ErrorCode.NONE

    asyncio.run(run())


@pytest.mark.parametrize("failure", [NOBODY, STALE])
def test_a_producer_for_whom_there_is_no_id_now_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: object
) -> None:
    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            with monkeypatch.context() as patched:
                patched.setattr(node.link, "ask", fails_with(failure))
                answer = await client.ask(request, 4, InitProducerIdResponse)
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert not (await client.ask(request, 4, InitProducerIdResponse)).error_code

    asyncio.run(run())
