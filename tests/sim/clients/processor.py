"""What a member of a group makes of what it reads: of every record another one, in a transaction that commits its offset too.

So the result is there exactly if the offset is committed, and every record has one result, whoever of the group reads it
(KIP-447). After a transaction that was aborted the same records go into the next one.

Invariants
 1. A transaction begins before what is processed in it is read, and all of that goes into it which is the member's in the end.
 2. When nobody can tell how a transaction ended, or it was interrupted, this life is over: the next one goes on from what is
    committed.
"""

from collections.abc import Callable

import msgspec

from odradek.wire.errors import ErrorCode
from tests.checker.history import Record, Source
from tests.sim.clients.commits import Committed, Identity
from tests.sim.clients.program import Place
from tests.sim.clients.transactor import Abortable, Fenced, Transactor


class Processor:
    def __init__(self, transactor: Transactor, group: str, outputs: Callable[[], list[Place]]) -> None:
        self.transactor = transactor
        self.group = group
        self.outputs = outputs
        self.is_over = False
        self.commits_late = False  # in an earlier generation, too: of a classic group
        self.processed = 0  # records, in transactions that were committed
        self._unprocessed: dict[Place, list[Record]] = {}
        self._results = 0
        self._is_busy = False

    async def ready(self) -> None:
        """A transaction is open, unless this life is over."""
        transactor = self.transactor
        try:
            if transactor.producer_id < 0:
                await transactor.initialize()
        except Fenced:
            self.is_over = True
        if not self.is_over and transactor.transaction is None:
            await transactor.begin()

    def transaction(self) -> int | None:
        """The one that is open, and not about to end."""
        return None if self._is_busy else self.transactor.transaction

    # -- what the member is given

    def take(self, place: Place) -> None:
        self._unprocessed[place] = []

    def polled(self, records: list[Record]) -> None:
        for record in records:
            self._unprocessed.setdefault(Place(record.topic, record.partition), []).append(record)

    # -- what it makes of it

    async def commit(self, who: Identity, offsets: dict[Place, Committed]) -> ErrorCode:
        """Everything below these offsets, and the offsets; the error, when it was aborted. Who is no member any more must not:
        as nobody's, a coordinator would take it, whoever goes on with the same records."""
        if not who.member:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self._is_busy or self.is_over:
            self.is_over = True
            return ErrorCode.PRODUCER_FENCED
        self._is_busy = True  # and stays so when it is interrupted
        try:
            await self.ready()
            code = ErrorCode.PRODUCER_FENCED if self.is_over else await self._transact(who, offsets)
        except Fenced:
            self.is_over = True
            code = ErrorCode.PRODUCER_FENCED
        self._is_busy = False
        return code

    async def _transact(self, who: Identity, offsets: dict[Place, Committed]) -> ErrorCode:
        transactor = self.transactor
        done = {
            place: [record for record in self._unprocessed.get(place, ()) if record.offset < each.offset]
            for place, each in offsets.items()
        }
        try:
            for records in done.values():
                for record in records:
                    self._send(record)
            if self.commits_late and who.generation > 0:
                before = msgspec.structs.replace(who, generation=who.generation - 1)
                await transactor.commit_late(before, offsets, is_added=True)
            await transactor.commit_offsets(who, offsets)
            await transactor.commit()
        except Abortable as error:
            await transactor.abort()
            return error.code
        for place, records in done.items():
            self.processed += len(records)
            left = self._unprocessed.get(place, [])
            self._unprocessed[place] = [record for record in left if record not in records]
        return ErrorCode.NONE

    def _send(self, record: Record) -> None:
        program = self.transactor.program
        place = program.chance.choice(self.outputs())
        value = f"{program.name}.{self._results} of {record.topic}-{record.partition} {record.offset}".encode()
        self._results += 1
        source = Source(self.group, record.topic, record.partition, record.offset)
        self.transactor.send(place, [(None, value)], [source])

    async def close(self) -> None:
        await self.transactor.close()
