"""What a topic's settings ask of a batch that a client produced: keys, timestamps, compression.

Of nearly every batch the header alone says that it needs nothing. Its records are read only where the topic is compacted (keys),
`message.timestamp.before.max.ms` is set, the header's timestamps cannot be right, or the codec changes.

Invariants
 1. What was admitted has a max timestamp that retention may believe: that of its records, or the time of the append.
 2. A batch is refused as a whole; the answer names its records that broke a rule, by index.
 3. The records themselves never change: a batch is stamped in its header, or its payload is compressed anew.
"""

from typing import Final

from msgspec import Struct

from odradek.core.config.topic import TopicConfig
from odradek.wire.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    assemble,
    check,
    read_header,
    set_max_timestamp,
)
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.records import payload, scan

CODECS: Final = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
NO_LIMIT_MS: Final = 2**63 - 1
ERRORS_SHOWN_MAX: Final = 100  # of one batch


class RefusedRecords(Refused):
    """A batch of which some records broke a rule: their indexes, and why."""

    def __init__(self, code: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


class Admission(Struct, frozen=True):
    """The rules of one topic, ready to be asked."""

    codec: int | None  # None: as the producer sent it
    level: int | None
    stamps: bool  # with the time of the append
    wants_keys: bool
    before_max_ms: int
    after_max_ms: int

    @classmethod
    def of(cls, config: TopicConfig) -> "Admission":
        codec = CODECS.get(config.compression_type)
        levels: dict[int | None, int] = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        return cls(
            codec=codec,
            level=levels.get(codec),
            stamps=config.message_timestamp_type == "LogAppendTime",
            wants_keys="compact" in config.cleanup_policy,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
        )

    @property
    def is_plain(self) -> bool:
        """Whether the header alone says everything, as long as its timestamps are plausible."""
        return self.codec is None and not self.stamps and not self.wants_keys and self.before_max_ms == NO_LIMIT_MS

    def is_plausible(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the timestamps in a header can be right and are not too far ahead."""
        latest = NO_TIMESTAMP if header.is_log_append_time else header.max_timestamp
        return header.base_timestamp <= latest <= now_ms + self.after_max_ms and latest != NO_TIMESTAMP

    def recompresses(self, header: BatchHeader) -> bool:
        return self.codec is not None and self.codec != header.codec

    def admit(self, batch: bytearray | memoryview, now_ms: int) -> bytearray | memoryview:
        """The batch as it is to be appended: the same, changed in place, or a new one. Refused when the topic takes it not."""
        header = read_header(batch)
        check(batch, 0, header)  # before its records are believed
        if header.is_log_append_time and (self.stamps or header.max_timestamp == NO_TIMESTAMP):
            raise Refused(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
        content = None
        max_timestamp = header.max_timestamp
        if self.wants_keys or self.recompresses(header) or not self._trusts(header, now_ms):
            content = payload(batch, 0, header)
            max_timestamp = self._judge(content, header, now_ms)
        if self.stamps:
            max_timestamp = now_ms
        if self.recompresses(header):
            assert content is not None
            assert self.codec is not None
            attributes = (
                header.attributes & ~(CODEC_MASK | LOG_APPEND_TIME) | self.codec | (LOG_APPEND_TIME if self.stamps else 0)
            )
            return assemble(header._replace(attributes=attributes, max_timestamp=max_timestamp), content, self.level)
        if self.stamps or header.is_log_append_time or max_timestamp != header.max_timestamp:
            set_max_timestamp(batch, 0, max_timestamp, log_append_time=self.stamps)
        return batch

    def _trusts(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the timestamps need not be read."""
        return self.stamps or (self.before_max_ms == NO_LIMIT_MS and self.is_plausible(header, now_ms))

    def _judge(self, content: bytes | bytearray | memoryview, header: BatchHeader, now_ms: int) -> int:
        """Looks at every record; gives the greatest timestamp."""
        earliest, latest = now_ms - self.before_max_ms, now_ms + self.after_max_ms
        base, greatest = header.base_timestamp, NO_TIMESTAMP
        stamped = header.max_timestamp if header.is_log_append_time else None  # then it is the time of all records
        keyless: list[tuple[int, str]] = []
        untimely: list[tuple[int, str]] = []
        for index, (_, _, _, delta, _, key_end, _, _) in enumerate(scan(content, header)):
            timestamp = base + delta if stamped is None else stamped
            greatest = max(greatest, timestamp)
            if self.wants_keys and key_end < 0:
                keyless.append((index, "a compacted topic takes no record without a key"))
            elif not self.stamps and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
                untimely.append((index, f"timestamp {timestamp} is not within {earliest} to {latest}"))
        if refused := sorted(untimely + keyless):
            code = ErrorCode.INVALID_TIMESTAMP if untimely else ErrorCode.INVALID_RECORD
            message = f"{len(refused)} of {header.record_count} records were refused; the first, {refused[0][0]}: {refused[0][1]}"
            raise RefusedRecords(code, message, refused[:ERRORS_SHOWN_MAX])
        return greatest
