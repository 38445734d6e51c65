"""Transactions with `odradek.Producer` in the programs of a run: what a transactor of the simulator does, as far as it is public.

Invariants
 1. The end is told before it is asked for; a commit is told as it ended: committed when the call returns, unknown when it fails
    with anything but TransactionFailed, after which the transaction is aborted.
 2. Of a transaction that is committed every record was acknowledged.
 3. What was not taken by the producer when its transaction is aborted never is.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from odradek.client import errors
from odradek.client.errors import KafkaError, TransactionFailed
from odradek.wire.errors import ErrorCode
from tests.checker.history import TransactionBegun, TransactionEnded, TransactionEnding
from tests.sim.clients.library import LOOK_SECONDS, LibraryProducer
from tests.sim.clients.producer import Manner
from tests.sim.clients.program import Program
from tests.sim.clients.transactor import Abortable, Fenced, Terms

AGAIN_SECONDS: Final = 0.2


class LibraryTransactor(LibraryProducer):
    def __init__(self, program: Program, manner: Manner, terms: Terms, awake: Callable[[], Awaitable[None]]) -> None:
        super().__init__(
            program,
            manner,
            awake,
            transactional_id=terms.transactional_id,
            transaction_timeout_ms=terms.timeout_ms,
            delivery_timeout_ms=int(manner.delivery_seconds_max * 1000),
        )
        self.terms = terms
        self.ended = {"committed": 0, "aborted": 0, "unknown": 0}
        self._failed_before = 0  # sends, when it began

    # -- its life

    async def initialize(self) -> None:
        """Ends whatever a former life has left open."""
        await self.started.wait()
        await self._open()
        await self.producer.abort_transaction()

    async def _open(self) -> None:
        while True:
            await self.awake()
            try:
                await self.producer.begin_transaction()
            except errors.Fenced as error:
                raise Fenced(str(error)) from error
            except KafkaError as error:
                if not error.is_retriable:
                    raise
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    # -- a transaction

    async def begin(self) -> None:
        assert self.transaction is None
        await self._open()
        program = self.program
        self.transaction, self._failed_before = program.history.next_id(), self.failed
        name = self.terms.transactional_id
        program.tell(TransactionBegun(program.at_ms, program.name, self.transaction, name, program.name))

    async def flush(self) -> None:
        """Until all that was sent is acknowledged; Abortable when something never will be."""
        while self.unfinished and not self.has_failed:  # noqa: ASYNC110 - of many tasks
            await asyncio.sleep(LOOK_SECONDS)
        if self.has_failed:
            raise Abortable(ErrorCode.NETWORK_EXCEPTION, "a record was not delivered")

    @property
    def has_failed(self) -> bool:
        return self.failed > self._failed_before

    async def commit(self) -> None:
        """Whatever is under way is waited for by the producer."""
        while self.is_sending and not self.has_failed:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(LOOK_SECONDS)
        await self.awake()
        self._tell_ending(is_commit=True)
        try:
            await self.producer.commit_transaction()
        except TransactionFailed as error:
            raise Abortable(error.code, "a commit") from error
        except errors.Fenced as error:
            self._tell_ended("unknown")
            raise Fenced(str(error)) from error
        except KafkaError as error:
            if not error.is_retriable:
                raise
            self._tell_ended("unknown")
        else:
            self._tell_ended("committed")
            assert not self.has_failed, f"{self.program.name} has committed what was not delivered"

    async def abort(self) -> None:
        await self.stop_sending()
        await self.awake()
        self._tell_ending(is_commit=False)
        try:
            await self.producer.abort_transaction()
        except errors.Fenced as error:
            raise Fenced(str(error)) from error
        except KafkaError as error:
            if not error.is_retriable:
                raise
            self._tell_ended("unknown")
        else:
            self._tell_ended("aborted")
        await super().flush()

    def _tell_ending(self, *, is_commit: bool) -> None:
        program = self.program
        assert self.transaction is not None
        program.tell(TransactionEnding(program.at_ms, program.name, self.transaction, is_commit))

    def _tell_ended(self, outcome: str) -> None:
        program, transaction = self.program, self.transaction
        assert transaction is not None
        self.transaction = None
        self.ended[outcome] += 1
        program.tell(TransactionEnded(program.at_ms, program.name, transaction, outcome))  # type: ignore[arg-type]
