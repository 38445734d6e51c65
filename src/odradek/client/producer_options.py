"""How a producer is configured, and the names that librdkafka and Java have for it.

Invariants
 1. What cannot be is refused when the producer is made, with the name of the option.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from odradek.client.cluster import Timing
from odradek.client.errors import InvalidOption
from odradek.client.machine import Machine
from odradek.client.properties import Table, boolean, number, text
from odradek.wire.compression import Codec

ALL: Final = -1
ACKS: Final = {"all": ALL, "-1": ALL, "0": 0, "1": 1}
CODECS: Final = {codec.name.lower(): codec for codec in Codec}
AUTO: Final = "auto"
MAY_BE_ZERO: Final = ("linger_ms", "retry_backoff_ms")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What `Producer` takes, by the same names; there are the defaults."""

    bootstrap: str | Sequence[str]
    client_id: str
    acks: Literal["all"] | int
    idempotent: bool | None
    transactional_id: str | None
    transaction_timeout_ms: int
    compression: str
    compression_level: int | None
    linger_ms: float
    batch_size: int
    buffer_memory: int
    request_bytes_max: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    default_timeout_ms: int
    connect_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    machine: Machine | None

    @property
    def acks_number(self) -> int:
        return ACKS[str(self.acks)]

    @property
    def is_idempotent(self) -> bool:
        is_wanted = self.acks_number == ALL if self.idempotent is None else self.idempotent
        return is_wanted or self.transactional_id is not None

    @property
    def codec(self) -> Codec | None:
        """None: lz4 where it pays."""
        return None if self.compression == AUTO else CODECS[self.compression]

    def timing(self) -> Timing:
        return Timing.of(self)

    def check(self) -> None:
        """InvalidOption where something cannot be."""
        if str(self.acks) not in ACKS:
            raise InvalidOption(f'acks={self.acks!r}: it is "all", 1 or 0')
        if self.is_idempotent and self.acks_number != ALL:
            raise InvalidOption(f'acks={self.acks!r}: idempotence and transactions need acks="all"')
        if self.compression != AUTO and self.compression not in CODECS:
            raise InvalidOption(f"compression={self.compression!r}: it is one of {AUTO}, {', '.join(CODECS)}")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            least = 0 if name in MAY_BE_ZERO else 1
            if name.endswith(("_ms", "_max", "_size", "_memory")) and value < least:
                raise InvalidOption(f"{name}={value}: it is {least} at least")


def acks_of(given: Any) -> Literal["all"] | int:
    return "all" if str(given) in ("all", "-1") else int(given)


PROPERTIES: Final[Table] = {
    "acks": ("acks", acks_of),
    "request.required.acks": ("acks", acks_of),
    "enable.idempotence": ("idempotent", boolean),
    "transactional.id": ("transactional_id", text),
    "transaction.timeout.ms": ("transaction_timeout_ms", number),
    "compression.type": ("compression", text),
    "compression.codec": ("compression", text),
    "compression.level": ("compression_level", number),
    "linger.ms": ("linger_ms", float),
    "queue.buffering.max.ms": ("linger_ms", float),
    "batch.size": ("batch_size", number),
    "buffer.memory": ("buffer_memory", number),
    "max.request.size": ("request_bytes_max", number),
    "delivery.timeout.ms": ("delivery_timeout_ms", number),
    "message.timeout.ms": ("delivery_timeout_ms", number),
}
