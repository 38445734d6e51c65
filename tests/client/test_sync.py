"""The client for programs with threads, on a node of ours and on Apache Kafka."""

import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.admin import NewTopic
from odradek.client.errors import Closed, InvalidOption, Refused, TimedOut, TransactionFailed
from odradek.client.records import Record, TopicPartition
from odradek.sync import Admin, Consumer, Producer
from odradek.wire.errors import ErrorCode
from tests.client.servers import Server
from tools.sync_stubs import STUBS, stubs


def test_the_stub_says_what_the_classes_for_asyncio_take_and_give() -> None:
    assert STUBS.read_text(encoding="utf-8") == stubs(), "run python -m tools.sync_stubs"


def test_what_several_threads_send_is_read_in_the_order_of_each(server: Server, name: str) -> None:
    with Admin(server.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])

    with Producer(server.bootstrap, batch_size=1_000) as producer:

        def send(writer: int) -> None:
            for number in range(500):
                producer.send(name, f"{writer} {number}")

        threads = [threading.Thread(target=send, args=(writer,)) for writer in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found: dict[str, list[int]] = {}
    with Consumer(name, bootstrap=server.bootstrap) as consumer:
        for count, record in enumerate(consumer, 1):
            assert record.value is not None
            writer, _, number = record.value.decode().partition(" ")
            found.setdefault(writer, []).append(int(number))
            if count == 2_000:
                break
    assert found == {str(writer): [*range(500)] for writer in range(4)}


def test_a_record_that_is_refused_is_told_to_who_asks(server: Server, name: str) -> None:
    with Admin(server.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1, configs={"max.message.bytes": "1000"})])
    with Producer(server.bootstrap, compression="none") as producer:
        assert producer.deliver(name, b"small").offset == 0
        with pytest.raises(Refused) as caught:
            producer.send(name, bytes(3_000)).result()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(TypeError):
            producer.send(name, b"", headers=[("name", 7)]).result()  # type: ignore[list-item]
    with pytest.raises(Closed):
        producer.send(name, b"late")


def test_transactions_are_seen_as_a_whole_or_never(server: Server, name: str) -> None:
    with Admin(server.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])
    with Producer(server.bootstrap, transactional_id=name) as producer:
        with producer.transaction():
            producer.send(name, b"kept")
            producer.send_offsets({TopicPartition(name, 0): 17}, f"{name}-group")
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send(name, b"dropped")
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(name, b"kept too")
        with pytest.raises(InvalidOption):
            producer.send(name, b"outside").result()
    with Consumer(name, bootstrap=server.bootstrap, group=f"{name}-other", auto_commit=False) as consumer:
        assert [next(consumer).value, next(consumer).value] == [b"kept", b"kept too"]
    with Admin(server.bootstrap) as admin:
        found = admin.list_group_offsets([f"{name}-group"])[f"{name}-group"]
        assert [each.offset for each in found.values()] == [17]


def test_what_an_iteration_has_not_given_is_not_committed(server: Server, name: str) -> None:
    with Admin(server.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])
    with Producer(server.bootstrap) as producer:
        for number in range(100):
            producer.send(name, str(number))
    with Consumer(name, bootstrap=server.bootstrap, group=name) as consumer:
        assert [next(consumer).value for _ in range(10)] == [str(number).encode() for number in range(10)]
        consumer.commit()
        assert [each.offset for each in consumer.committed().values()] == [10]
        assert [each.value for each in consumer.poll(5)] == [str(number).encode() for number in range(10, 15)]
        assert next(consumer).value == b"15"
    with Consumer(name, bootstrap=server.bootstrap, group=name) as consumer:
        assert next(consumer).value == b"16"


def test_what_an_iteration_has_taken_ahead_goes_back_when_the_program_goes_elsewhere(server: Server, name: str) -> None:
    place = TopicPartition(name, 0)
    with Admin(server.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])
    with Producer(server.bootstrap) as producer:
        for number in range(100):
            producer.send(name, str(number))

    def take(consumer: Consumer, count: int) -> list[int]:
        return [next(consumer).offset for _ in range(count)]

    with Consumer(name, bootstrap=server.bootstrap, group=name) as consumer:
        assert take(consumer, 10) == [*range(10)]
        assert (consumer.positions()[place].offset, consumer.position(place), consumer.lag(place)) == (10, 10, 90)
        assert next(consumer).offset == 10, "looking takes nothing back"
        consumer.seek(place, 50)
        assert take(consumer, 2) == [50, 51]
        consumer.seek_to_beginning()
        assert take(consumer, 20) == [*range(20)]
        assert consumer.poll_batches()[0].offset == 20
        consumer.seek(place, 30)
        assert take(consumer, 1) == [30]
        assert consumer.poll_arrow()["offset"][0].as_py() == 31
        consumer.seek(place, 10)
        assert take(consumer, 10) == [*range(10, 20)]
        consumer.pause()
        assert consumer.poll(timeout_ms=0) == []
        consumer.resume()
        assert take(consumer, 1) == [20]
        consumer.unsubscribe()
        with Consumer(name, bootstrap=server.bootstrap, group=name, auto_commit=False) as other:
            assert take(other, 1) == [21]
        consumer.assign({place: 70})
        assert take(consumer, 2) == [70, 71]
        consumer.assign([place])
        assert take(consumer, 1) == [72]


def test_an_error_in_the_program_leaves_its_last_records_to_be_read_again(server: Server, name: str) -> None:
    with Admin(server.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])
    with Producer(server.bootstrap) as producer:
        producer.send(name, "first")
    with suppress(ZeroDivisionError), Consumer(name, bootstrap=server.bootstrap, group=name) as consumer:
        assert next(consumer).value == b"first"
        raise ZeroDivisionError
    with Consumer(name, bootstrap=server.bootstrap, group=name) as consumer:
        assert next(consumer).value == b"first"


def test_nobody_there_is_said_where_the_client_is_made() -> None:
    with pytest.raises(TimedOut):
        Producer("127.0.0.1:1", default_timeout_ms=100)
    with pytest.raises(TimedOut):
        Consumer("t", bootstrap="127.0.0.1:1", default_timeout_ms=100)


class Taker:
    """A producer for asyncio that takes no record named "bad"."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def do(*given: Any, **more: Any) -> None:
            self.done.append(name)

        return do

    async def send(self, topic: str, value: bytes, **more: Any) -> Any:
        if topic == "bad":
            raise InvalidOption("it cannot be")
        return None


def producer_on(taker: Taker) -> Producer:
    made = Producer.__new__(Producer)
    made._producer = cast("Any", taker)
    made._begin()
    return made


@pytest.mark.parametrize("end", ["flush", "close"])
def test_a_record_that_could_not_be_taken_is_told_by_flush_or_by_the_end_to_who_does_not_ask(end: str) -> None:
    producer = producer_on(Taker())
    heard = producer.send("bad", b"value")
    with pytest.raises(InvalidOption):
        heard.result()
    producer.flush()
    producer.send("bad", b"value")
    with pytest.raises(InvalidOption):
        getattr(producer, end)()
    producer.close()
    assert not producer._background.is_open


def test_a_transaction_with_a_record_that_could_not_be_taken_is_not_committed() -> None:
    taker = Taker()
    producer = producer_on(taker)
    with pytest.raises(TransactionFailed, match="it cannot be"), producer.transaction():
        producer.send("bad", b"value")
    with producer.transaction(), pytest.raises(InvalidOption):
        producer.send("bad", b"value").result()  # the program knows, and goes on without
    producer.close()
    assert taker.done[1:] == [
        "begin_transaction",
        "abort_transaction",
        "begin_transaction",
        "commit_transaction",
        "close",
    ]


class Original:
    """A consumer for asyncio that has these records, one for each poll."""

    def __init__(self, *records: Record) -> None:
        self.records = [*records]
        self.heard: list[Any] = []
        self._running = SimpleNamespace(handing=SimpleNamespace(finish=self.heard.append, still_held=dict))

    async def start(self) -> None:
        """It is there."""

    async def poll(self, max_records: int | None, timeout_ms: float) -> list[Record]:
        return [self.records.pop(0)]

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.heard.append((place, offset))

    async def _close(self, *, is_done: bool) -> None:
        self.heard.append(is_done)


def interrupted(original: Original, poll: Callable[[Consumer], object]) -> Consumer:
    """Its program hears a signal while it waits for what has just come."""
    made = Consumer.__new__(Consumer)
    made._begin(cast("Any", original))
    background, run = made._background, made._background.run

    def be_interrupted(work: Any) -> Any:
        run(work)
        raise KeyboardInterrupt

    background.run = be_interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        poll(made)
    background.run = run  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("poll", [next, Consumer.poll])
def test_what_came_when_the_program_was_interrupted_is_given_or_read_again_and_not_done_with(
    poll: Callable[[Consumer], object],
) -> None:
    first, second = Record("t", 0, 7, 0, None, b"first"), Record("t", 0, 8, 0, None, b"second")
    consumer = interrupted(Original(first, second), poll)
    assert [next(consumer), next(consumer)] == [first, second]
    consumer.close()
    original = Original(first, second)
    consumer = interrupted(original, poll)
    assert consumer.poll() == [second], "which stands for what is read again"
    assert original.heard == [(TopicPartition("t", 0), 7)]
    consumer.close()
    original = Original(first)
    interrupted(original, poll).close()
    assert original.heard == [{TopicPartition("t", 0): 7}, False]
