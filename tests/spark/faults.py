"""What befalls the tasks that write exactly once. Workers of Spark import this: a fault that is to strike once leaves a file."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from odradek import sync
from odradek.client.producer import Producer
from odradek.client.records import SharedTransaction
from odradek.spark.exactly_once import Writing
from tests.clients.waiting import until

if TYPE_CHECKING:
    import pyarrow as pa

Encoded = Iterable[tuple[str, int, int, bytearray]]


class Faulty(Writing):
    """Takes the place of what tasks do: `exactly_once.Writing` is set to one of these, in the driver."""

    folder: ClassVar[str] = ""
    shared_last: ClassVar[SharedTransaction | None] = None  # in the driver: that of the last batch

    def __init__(self, properties: dict[str, str], topic: str | None, shared: SharedTransaction) -> None:
        super().__init__(properties, topic, shared)
        self.mark = Path(self.folder) / type(self).__name__
        Faulty.shared_last = shared

    def strikes(self) -> bool:
        """Once."""
        try:
            self.mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class FailsAfterwards(Faulty):
    """A task fails when all that it had is written."""

    def _write(self, sender: Producer, encoded: Encoded) -> Iterator["pa.RecordBatch"]:
        yield from super()._write(sender, encoded)
        if self.strikes():
            raise RuntimeError("the task fails after it has written")


class LosesItsInput(Faulty):
    """What other tasks have shuffled is gone before it is read: Spark does their stage again, and this one."""

    shuffled: ClassVar[str] = ""

    def __init__(self, properties: dict[str, str], topic: str | None, shared: SharedTransaction) -> None:
        super().__init__(properties, topic, shared)
        self.shuffles = self.shuffled

    def _write(self, sender: Producer, encoded: Encoded) -> Iterator["pa.RecordBatch"]:
        if self.strikes():
            for path in Path(self.shuffles).rglob("shuffle_*.data"):
                path.unlink()
        return super()._write(sender, encoded)


class OutlivesItsTransaction(Faulty):
    """A task takes longer than the cluster keeps a transaction open."""

    def _write(self, sender: Producer, encoded: Encoded) -> Iterator["pa.RecordBatch"]:
        if self.strikes():
            encoded = [*encoded]
            yield from super()._write(sender, encoded[:1])
            with sync.Admin(self.properties["bootstrap.servers"]) as admin:
                name = self.shared.transactional_id
                until(lambda: admin.describe_transactions([name])[name].state == "CompleteAbort", "the end of the transaction")
            yield from super()._write(sender, encoded)
            return
        yield from super()._write(sender, encoded)
