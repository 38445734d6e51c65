"""A bank under faults: orders are consumed from one topic and booked in two others, in transactions together with their offsets.

An order says which account pays which other one how much. A clerk books it as a pair in the journal, both in one partition, and
as an entry of each of the two accounts, which may be in different ones. Clerks share the orders as a group; now and then one
drops everything in the middle of a transaction. An auditor reads what is committed, all the time.

Invariants
 1. Whenever the auditor is at the end of a partition of the journal, its sum is zero.
 2. No order is booked twice, and none that nobody gave.
 3. In the end every order is booked in the journal and at both accounts: balances are those of the orders.
"""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.confluent_transactor import insisting
from tests.clients.transactions import Fenced, MustAbort
from tests.cluster.settings import EAGER, PARTITIONS, POLL_SECONDS, until

ACCOUNTS: Final = 7
CLERKS: Final = 2
ORDERS_MAX: Final = 20  # of one transaction
UNSENT_MAX: Final = 20
PACE_SECONDS: Final = 0.02
ANSWER_SECONDS_MAX: Final = 10.0
STUCK_SECONDS_MAX: Final = 6.0
DROPPED_EVERY: Final = 8  # transactions
TRANSACTION_TIMEOUT_MS: Final = 20_000
CUSTOMER: Final = {"enable.idempotence": True, "linger.ms": 2, "delivery.timeout.ms": 300_000, "request.timeout.ms": 5_000}
CLERK: Final = {"linger.ms": 0, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "request.timeout.ms": 5_000}
READER: Final = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "isolation.level": "read_committed"}

Failure = Fenced | MustAbort | KafkaException
Booked = Counter[tuple[int, int]]  # how often, by order and account


class Order:
    """As the text of a record: number, who pays, who is paid, how much."""

    __slots__ = ("amount", "number", "payee", "payer")

    def __init__(self, number: int, payer: int, payee: int, amount: int) -> None:
        self.number, self.payer, self.payee, self.amount = number, payer, payee, amount

    @property
    def text(self) -> bytes:
        return b"%d %d %d %d" % (self.number, self.payer, self.payee, self.amount)

    @property
    def entries(self) -> dict[int, int]:
        """What it adds to which account."""
        return {self.payer: -self.amount, self.payee: self.amount}


def numbers(message: Message) -> list[int]:
    return [int(word) for word in (message.value() or b"").split()]


class Stuck(Exception):
    """A call of the client does not come back."""


def in_time(ask: Callable[[], object]) -> None:
    """librdkafka 2.16 waits for ever for a coordinator that it has dismissed itself, when metadata did not name it for a moment.
    Whoever waits so is left alone: what it does later is a zombie's."""
    failures: list[Failure] = []

    def run() -> None:
        try:
            ask()
        except (Fenced, MustAbort, KafkaException) as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(STUCK_SECONDS_MAX)
    if thread.is_alive():
        raise Stuck
    if failures:
        raise failures[0]


class Customer:
    """Gives orders."""

    def __init__(self, bank: "Bank") -> None:
        self.bank = bank
        self.chance = Random(bank.topic)
        self.producer = Producer({"bootstrap.servers": bank.bootstrap, **EAGER, **CUSTOMER})

    def go_on(self) -> None:
        if len(self.producer) < UNSENT_MAX:
            payer, payee = self.chance.sample(range(ACCOUNTS), 2)
            order = Order(len(self.bank.given), payer, payee, self.chance.randint(1, 100))
            self.bank.given.append(order)
            self.producer.produce(self.bank.orders, order.text, partition=order.number % PARTITIONS, on_delivery=self._report)
        self.producer.poll(0)
        self.bank.is_written.wait(PACE_SECONDS)

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.bank.wrong.append(f"order {message.value()!r} was not taken: {error}")


class Clerk:
    """Consumes, transforms and produces; what did not go well is begun anew where the group is by what is committed."""

    def __init__(self, bank: "Bank", number: int) -> None:
        self.bank = bank
        self.id = f"{bank.topic}-clerk-{number}"
        self.producer: Producer | None = None
        self.consumer = Consumer({"bootstrap.servers": bank.bootstrap, "group.id": bank.orders, **EAGER, **READER})
        self.consumer.subscribe([bank.orders], on_assign=self._changed, on_revoke=self._changed, on_lost=self._changed)
        self.has_to_rewind = False
        self.transactions = 0
        self.last_error = ""

    def _changed(self, _: Consumer, __: list[TopicPartition]) -> None:
        """What was consumed before belongs to somebody else now, perhaps."""
        self.has_to_rewind = True

    def go_on(self) -> None:
        try:
            if self.producer is None:
                self._open()
            messages = [each for each in self.consumer.consume(ORDERS_MAX, POLL_SECONDS) if each.error() is None]
            if self.has_to_rewind:
                self._rewind()
            elif messages:
                self._book(messages)
        except MustAbort as error:
            self._give_up(str(error))
        except (Fenced, KafkaException, Stuck) as error:
            self._drop(repr(error))

    def _open(self) -> None:
        producer = Producer({"bootstrap.servers": self.bank.bootstrap, "transactional.id": self.id, **EAGER, **CLERK})
        insisting(lambda: producer.init_transactions(ANSWER_SECONDS_MAX))
        self.producer = producer

    def _book(self, messages: list[Message]) -> None:
        producer = self.producer
        assert producer is not None
        self.transactions += 1
        self.has_to_rewind = True  # unless all goes well
        offsets: dict[int, int] = {}
        insisting(producer.begin_transaction)
        for message in messages:
            order = Order(*numbers(message))
            index, offset = message.partition() or 0, message.offset() or 0
            for account, amount in order.entries.items():
                entry = b"%d %d %d" % (order.number, account, amount)
                insisting(lambda entry=entry, index=index: producer.produce(self.bank.journal, entry, partition=index))  # type: ignore[misc]
                at = account % PARTITIONS
                insisting(lambda entry=entry, at=at: producer.produce(self.bank.accounts, entry, partition=at))  # type: ignore[misc]
            offsets[index] = offset + 1
        if self.transactions % DROPPED_EVERY == 0:
            producer.flush(ANSWER_SECONDS_MAX)
            self._drop("dropped on purpose")
            return
        done = [TopicPartition(self.bank.orders, index, offset) for index, offset in offsets.items()]
        group = self.consumer.consumer_group_metadata()
        in_time(lambda: insisting(lambda: producer.send_offsets_to_transaction(done, group, ANSWER_SECONDS_MAX)))
        insisting(lambda: producer.commit_transaction(ANSWER_SECONDS_MAX))
        self.has_to_rewind = False
        self.bank.committed += 1

    def _give_up(self, why: str) -> None:
        """The transaction, and goes on with the next."""
        self.last_error = why
        producer = self.producer
        assert producer is not None
        try:
            insisting(lambda: producer.abort_transaction(ANSWER_SECONDS_MAX))
        except (Fenced, MustAbort, KafkaException) as error:
            self._drop(str(error))

    def _drop(self, why: str) -> None:
        """The producer as it is, with whatever it had begun: the next one of its id ends that."""
        self.last_error = why
        self.producer = None
        self.has_to_rewind = True

    def _rewind(self) -> None:
        """To what is committed, once no transaction is to decide about it."""
        assigned = self.consumer.assignment()
        for each in self.consumer.committed(assigned, timeout=ANSWER_SECONDS_MAX):
            if each.error is not None:
                raise KafkaException(each.error)
            self.consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))
        self.has_to_rewind = False


class Auditor:
    """Reads what is committed of journal and accounts."""

    def __init__(self, bank: "Bank") -> None:
        self.bank = bank
        own = {"bootstrap.servers": bank.bootstrap, "group.id": f"{bank.topic}-auditor", "enable.partition.eof": True}
        self.consumer = Consumer({**own, **EAGER, **READER})
        topics = (bank.journal, bank.accounts)
        self.consumer.assign([TopicPartition(topic, index, 0) for topic in topics for index in range(PARTITIONS)])
        self.booked: dict[str, Booked] = {topic: Counter() for topic in topics}
        self.sums: Counter[int] = Counter()  # of each partition of the journal
        self.balances: Counter[int] = Counter()
        self.audits = 0

    def go_on(self) -> None:
        for message in self.consumer.consume(500, POLL_SECONDS):
            self._take(message)

    def _take(self, message: Message) -> None:
        topic, index, error = message.topic() or "", message.partition() or 0, message.error()
        if error is None:
            number, account, amount = numbers(message)
            booked = self.booked[topic]
            booked[number, account] += 1
            if booked[number, account] > 1 or account not in self.bank.given[number].entries:
                self.bank.wrong.append(
                    f"order {number} at account {account} in {topic}-{index}, offset {message.offset()}, again"
                )
            if topic == self.bank.journal:
                self.sums[index] += amount
            else:
                self.balances[account] += amount
        elif error.code() == KafkaError._PARTITION_EOF and topic == self.bank.journal:
            self.audits += 1
            if self.sums[index]:
                self.bank.wrong.append(f"the sum of {topic}-{index} is {self.sums[index]} at its end, offset {message.offset()}")

    @property
    def has_all(self) -> bool:
        return all(len(booked) >= 2 * len(self.bank.given) for booked in self.booked.values())


class Bank:
    """All of them, and what was found wrong."""

    def __init__(self, bootstrap: str, topic: str, is_written: threading.Event, is_over: threading.Event) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.is_written = is_written
        self.is_over = is_over
        self.orders, self.journal, self.accounts = self.topics = [f"{topic}-{what}" for what in ("orders", "journal", "accounts")]
        client = AdminClient({"bootstrap.servers": bootstrap, **EAGER})
        for created in client.create_topics([NewTopic(each, PARTITIONS) for each in self.topics]).values():
            created.result()
        self.given: list[Order] = []
        self.committed = 0  # transactions
        self.wrong: list[str] = []
        self.customer = Customer(self)
        self.clerks = [Clerk(self, number) for number in range(CLERKS)]
        self.auditor = Auditor(self)

    @property
    def readers(self) -> list[Clerk | Auditor]:
        return [*self.clerks, self.auditor]

    def __str__(self) -> str:
        booked = {topic: len(booked) for topic, booked in self.auditor.booked.items()}
        errors = [clerk.last_error for clerk in self.clerks]
        return f"bank: {len(self.given)} orders, {self.committed} transactions, {booked} booked, {errors}"

    def begins(self) -> None:
        until(lambda: self.committed and self.auditor.audits, "the first transaction of the bank")

    def finish(self) -> None:
        """Until all orders are booked; then the balances have to be right."""
        assert self.customer.producer.flush(ANSWER_SECONDS_MAX) == 0
        until(lambda: self.auditor.has_all or self.wrong, "all orders booked")
        wanted: Counter[int] = Counter()
        for order in self.given:
            wanted.update(order.entries)
        if not self.wrong and wanted != self.auditor.balances:
            self.wrong.append(f"the balances are {self.auditor.balances}, and not {wanted}")

    def close(self) -> None:
        for reader in self.readers:
            reader.consumer.close()
        for clerk in self.clerks:
            if clerk.producer is not None:
                with suppress(KafkaException):
                    clerk.producer.close()
        with suppress(KafkaException):
            self.customer.producer.close()
