"""Transactions as an administrator sees and ends them, of a node and of Apache Kafka."""

import pytest

from odradek.client.admin import Admin, Isolation, Offset
from odradek.client.errors import Refused
from odradek.wire.errors import ErrorCode
from tests.client.admin.scenario import administer, made, seen
from tests.clients.confluent_transactor import ConfluentClient
from tests.clients.test_transaction_tools import LONG_AGO_MS, UNKNOWN_PRODUCER, hang
from tests.clients.transactions import Fenced, transacting
from tests.kafka.broker import Broker

TIMEOUT_MS = 54_321


def test_an_open_transaction_is_listed_and_described(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        first, second = await made(admin, name, 2)
        with transacting(ConfluentClient(), server.bootstrap, name, transaction_timeout_ms=TIMEOUT_MS) as transactor:
            transactor.begin()
            transactor.send(name, 1, ["a", "b"])
            listed = (await admin.list_transactions(states=["Ongoing"], pattern=f"{name}.*"))[name]
            found = (await admin.describe_transactions([name]))[name]
            assert (found.state, found.timeout_ms, found.partitions) == ("Ongoing", TIMEOUT_MS, (second,))
            assert (found.producer_id, listed.coordinator) == (listed.producer_id, 1)
            assert found.started_ms is not None
            producers = await admin.describe_producers([first, second])
            assert producers[first] == ()
            (active,) = producers[second]
            assert (active.producer_id, active.producer_epoch) == (found.producer_id, found.producer_epoch)
            assert (active.last_sequence, active.transaction_start_offset) == (1, 0)
            assert name in await admin.list_transactions(producer_ids=[found.producer_id], duration_ms_min=0)
            assert await admin.list_transactions(duration_ms_min=3_600_000) == {}
            latest = {second: Offset.LATEST}
            assert (await admin.list_offsets(latest, isolation=Isolation.READ_COMMITTED))[second].offset == 0
            assert (await admin.list_offsets(latest))[second].offset == 2
            transactor.commit()
        with pytest.raises(Refused):
            await admin.list_transactions(states=["Lost"])
        with pytest.raises(Refused) as caught:
            await admin.describe_transactions([f"{name}-2"])
        assert caught.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    administer(server, scenario)


def test_a_hanging_transaction_is_aborted(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        (place,) = await made(admin, name)
        hang(server, name)
        with pytest.raises(Refused) as caught:
            await admin.abort_transaction(place, 1)
        assert caught.value.code == ErrorCode.INVALID_TXN_STATE
        aborted = await admin.abort_transaction(place, 0)
        assert (aborted.producer_id, aborted.last_timestamp_ms) == (UNKNOWN_PRODUCER, LONG_AGO_MS)
        stable = await seen(
            lambda: admin.list_offsets({place: Offset.LATEST}, isolation=Isolation.READ_COMMITTED),
            "the marker",
            as_wanted=lambda found: found[place].offset,
        )
        assert stable[place].offset == 4

    administer(server, scenario)


def test_a_producer_that_is_fenced_is_refused(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await made(admin, name)
        with transacting(ConfluentClient(), server.bootstrap, name) as transactor:
            transactor.begin()
            transactor.send(name, 0, ["a"])
            before = (await admin.describe_transactions([name]))[name]
            fenced = (await admin.fence_producers([name]))[name]
            assert (fenced.producer_id, fenced.producer_epoch > before.producer_epoch) == (before.producer_id, True)
            with pytest.raises(Fenced):
                transactor.commit()

    administer(server, scenario)
