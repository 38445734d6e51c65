"""The node as its APIs see it: what each part offers, without saying how.

`node/` has the classes that fit; nothing here runs.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence, Sized
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from odradek.api.context import Context
from odradek.core.config.broker import BrokerConfig
from odradek.core.config.topic import TopicConfig
from odradek.core.controller.controller import Controller
from odradek.core.controller.decision import Decision
from odradek.core.controller.quorum import QuorumStatus
from odradek.core.metadata.image import MetadataImage
from odradek.core.partition.admission import Admission
from odradek.core.partition.fetch_sessions import Sessions
from odradek.core.partition.replica import Replica as FollowerState
from odradek.core.transactions.transaction import TopicIndex
from odradek.wire.batch import BatchHeader
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message

Answer = TypeVar("Answer", bound=Message)
Result = TypeVar("Result")


class Appended(Protocol):
    """What became of an append."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def is_duplicate(self) -> bool: ...
    @property
    def timestamp(self) -> int:
        """Of a duplicate: what its batch has."""
        ...


class Aborted(Protocol):
    """A transaction whose records a reader must pass over."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class Found(NamedTuple):
    """An offset that was looked for by time."""

    timestamp: int
    offset: int
    leader_epoch: int


class Producer(Protocol):
    """An idempotent producer as a partition knows it."""

    producer_id: int
    epoch: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int

    @property
    def last_sequence(self) -> int: ...


class Replica(NamedTuple):
    size: int
    lag: int  # offsets behind the high watermark


class LogDir(NamedTuple):
    """One of log.dirs."""

    path: str
    is_offline: bool
    replicas: Mapping[tuple[str, int], Replica]
    total_bytes: int
    usable_bytes: int


class Reader(Protocol):
    """Somebody who waits for a partition to grow."""

    def partition_changed(self, partition: Any) -> None:
        """The one that it waits for has grown, or is no longer led here."""
        ...


class Readable(Protocol):
    """A replica that this node has, as those see it who fetch from it."""

    topic: str
    topic_id: bytes
    index: int
    leader_epoch: int
    is_closed: bool  # no longer led, or followed, here
    is_followed: ClassVar[bool]  # another node leads it
    readers: dict[Reader, None]  # told when the high watermark has moved
    followers: dict[Reader, None]  # told when the log has grown

    @property
    def log_start(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_end(self) -> int: ...

    def follower(self, broker_id: int, leader_epoch: int) -> FollowerState:
        """Who fetches as a replica. Refused when it is none of the partition's."""
        ...

    def fetched(self, replica: FollowerState, offset: int, log_start: int, broker_epoch: int) -> None:
        """A follower has everything below an offset. Refused when it is not who is registered."""
        ...

    def holds_back(self, replica: FollowerState) -> bool:
        """Whether a follower is throttled and gets nothing now."""
        ...

    def sent(self, size: int) -> None:
        """A follower was sent so many bytes."""
        ...

    def is_in_sync(self, broker_id: int) -> bool: ...

    def read_replica(self, rack: str, listener: str, offset: int) -> int:
        """The broker that a consumer in a rack should read from; -1 for this one."""
        ...

    def read(self, offset: int, bytes_max: int, upper_offset: int, *, at_least_one: bool) -> Sized:
        """Batches from an offset up to another, to be put into an answer. Refused when the offset is not there."""
        ...

    def aborted(self, offset: int, found: Any) -> Sequence[Aborted]:
        """The aborted transactions of what was read from an offset."""
        ...

    def check_certain(self) -> None:
        """To be asked before a reader is told that something is not in the log. Refused when others may have it: the leader of
        what is followed here, or whoever has taken this one's place."""
        ...

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one that the log has, and where it ends; (-1, -1) when there is none."""
        ...


class Partition(Readable, Protocol):
    """A partition that this node leads."""

    admission: Admission
    is_plain: bool  # what is produced is appended at once, and needs no more than its header to be looked at
    deletions: dict[Reader, None]  # told when a log, this or a follower's, has noted where it starts

    @property
    def is_behind(self) -> bool:
        """Whether what is known to be committed ends before this leader's epoch begins."""
        ...

    @property
    def low_watermark(self) -> int:
        """Below it no replica that can be reached has anything; -1 while one of them has not fetched."""
        ...

    def knows_producer(self, producer_id: int) -> bool:
        """Whether anything of a producer is here, so that its sequences can be counted along."""
        ...

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has an open transaction here."""
        ...

    def verify(self, producer_id: int, epoch: int, sequence: int, *, is_adding: bool) -> object:
        """What has to come with the first batch of a transaction; None when its coordinator need not be asked before. Refused
        when the producer is fenced."""
        ...

    async def append_marker(self, marker: bytearray, now_ms: int, transaction_version: int) -> Appended:
        """The end of a transaction. Refused when it cannot be."""
        ...

    def append(self, records: bytearray | memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Appends a produced batch; its bytes may be used again afterwards. Refused or ProtocolError when it cannot be."""
        ...

    async def append_later(
        self, records: bytearray | memoryview, header: BatchHeader, now_ms: int, *, verification: object
    ) -> Appended:
        """The same, where it may have to wait for others, or for a slow disk. The bytes are not used again until then. With what
        `verify` gave."""
        ...

    def check_acks(self, acks: int) -> None:
        """Refuses a batch that could not be acknowledged."""
        ...

    def outcome(self, end_offset: int) -> ErrorCode | None:
        """What to answer who waits for all replicas to have what ends at an offset; None as long as it has to wait."""
        ...

    async def sync(self) -> None:
        """Until what was appended is on disk, where flush.messages asks for it."""
        ...

    async def offset_for_timestamp(self, timestamp: int) -> Found | None: ...

    async def offset_of_max_timestamp(self) -> Found | None: ...

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at an offset, -1 when none is known."""
        ...

    def move_start(self, offset: int) -> None:
        """Forgets what is below an offset. Refused when it is past the high watermark."""
        ...


class Partitions(Protocol):
    """Those that this node leads."""

    @property
    def by_name(self) -> Mapping[str, Mapping[int, Partition]]: ...
    @property
    def by_id(self) -> Mapping[bytes, Mapping[int, Partition]]: ...

    def followed(self, topic_id: bytes, index: int) -> Readable | None:
        """A partition that this node follows, for consumers that want to read it here."""
        ...

    def producers(self, topic: str, index: int) -> Iterable[Producer] | None:
        """Those that a replica knows, whoever leads the partition; None when there is no replica here."""
        ...

    def why_not(self, topic: str, index: int) -> ErrorCode:
        """Why a partition is not among those led here."""
        ...


class QuorumSeam(Protocol):
    def receive(self, request: Message, ctx: Context) -> None:
        """A request that is for the metadata quorum; it answers `ctx` at some time."""
        ...


class ControllerSeam(Protocol):
    @property
    def is_active(self) -> bool:
        """Whether the active controller is on this node."""
        ...

    async def submit(self, decide: Callable[[Controller], Decision[Answer]]) -> Answer:
        """Has the active controller decide; the answer comes when its records are committed and in `Services.image`."""
        ...

    def status(self) -> QuorumStatus:
        """Where the quorum stands."""
        ...

    def monotonic_ms(self) -> int:
        """The clock that sessions of brokers are measured with."""
        ...


class Coordinators(Protocol):
    """The coordinators of groups, or of transactions, on this node."""

    def submit(self, name: str, request: Message, ctx: Context, failed: Callable[[ErrorCode], Message]) -> None:
        """Hands a request to the coordinator of a name, which answers `ctx` at some time; `failed` makes the answer when
        the coordinator is not here, or is being loaded."""
        ...

    def begin(
        self,
        name: str,
        request: Message,
        ctx: Context,
        given: Callable[[Message | ErrorCode], None],
        version: int | None = None,
    ) -> None:
        """The same for a part of a request that concerns several names: the coordinator's answer, or why there is none. With the
        version of `request`, where it is another one than the client's."""
        ...

    async def ask(self, name: str, request: Message, ctx: Context) -> Message | ErrorCode:
        """The same, for what only somebody can answer who is sure to be the coordinator, and knows what is committed."""
        ...

    async def ask_all(self, request: Message, ctx: Context) -> tuple[list[Message], ErrorCode]:
        """The answers of all coordinators that are loaded, and an error when some are not."""
        ...


class Groups(Coordinators, Protocol):
    def place_of(self, group_id: str) -> tuple[Partition, TopicIndex] | ErrorCode:
        """The partition that the offsets of a group are in, if it is coordinated here."""
        ...

    async def ask_verified(self, group_id: str, request: Message, ctx: Context, verification: object) -> Message | ErrorCode:
        """A request that writes within a transaction."""
        ...

    def marked(self, index: int, offset: int, producer_id: int, is_commit: bool) -> None:
        """The end of a transaction was appended to a partition of the groups."""
        ...


class Loggers(Protocol):
    """The loggers of the process."""

    def levels(self) -> Mapping[str, str]:
        """Every logger there is, and the level from which on it writes."""
        ...

    def set_level(self, name: str, level: str | None) -> None:
        """None leaves it to the parent."""
        ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    def now_ms(self) -> int:
        """By a clock that nobody sets."""

    def after(self, delay_ms: float, callback: Callable[[], None]) -> Timer: ...


class Services(Protocol):
    """Everything that a handler may use."""

    node_id: int
    cluster_id: str
    config: BrokerConfig  # with what was changed while running
    image: MetadataImage  # committed metadata
    fetch_sessions: Sessions

    @property
    def partitions(self) -> Partitions: ...
    @property
    def controller(self) -> ControllerSeam: ...
    @property
    def quorum(self) -> QuorumSeam: ...
    @property
    def groups(self) -> Groups: ...
    @property
    def transactions(self) -> Coordinators: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def loggers(self) -> Loggers: ...

    def now_ms(self) -> int:
        """Wall clock."""
        ...

    def work(self, function: Callable[[], Result]) -> Awaitable[Result]:
        """Runs what takes long where it holds nobody up."""
        ...

    def look_into(self, function: Callable[[], Result]) -> Awaitable[Result]:
        """The same for what decompresses a client's batch: few at a time, because each may become large."""
        ...

    def topic_config(self, topic: str) -> TopicConfig: ...

    def broker_lost(self, broker_id: int, broker_epoch: int) -> None:
        """The connection by which a broker said that it lives is closed."""
        ...

    async def forward(self, request: Message, response: type[Answer], ctx: Context) -> Answer:
        """Hands a client's request to the active controller; gives its answer. Refused when there is none in time."""
        ...

    async def create_topics_on_demand(self, topics: Sequence[str]) -> None:
        """Makes topics when they are first needed: those that clients name, or __consumer_offsets and the like. They are there
        then, or cannot be made now."""
        ...

    async def followed(self) -> None:
        """Until partitions and groups are what the image says now, or for as long as a client should wait for that."""
        ...

    def log_dirs(self) -> list[LogDir]: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs what nobody waits for."""
        ...

    async def enlist(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicIndex], *, is_adding: bool
    ) -> Mapping[TopicIndex, ErrorCode]:
        """Has the coordinator of a transaction, wherever it is, add partitions, or say whether they were added."""
        ...

    async def new_producer_id(self) -> int:
        """Refused when the controller gives none."""
        ...
