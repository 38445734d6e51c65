"""`odradek produce`: records from lines.

Invariants
 1. Whatever was read before something went wrong is written, and what went wrong names its line.
 2. Nothing is made by a slip of the hand: a topic that is not there is not created.
"""

import os
import sys
from typing import TYPE_CHECKING

from odradek.cli.parser import Commands, Given, count, fail, setting
from odradek.cli.reach import CLIENT, Failed, add_bootstrap, admin_of, run, unknown_topics
from odradek.cli.screen import Progress
from odradek.cli.texts import many

if TYPE_CHECKING:
    from odradek.cli.json_records import Given as Line
    from odradek.client.producer import Producer

CODECS = ("auto", "none", "gzip", "snappy", "lz4", "zstd")
TYPED_LINGER_MS = 0
PIPED_LINGER_MS = 20


def add(commands: Commands) -> None:
    parser = commands.add("produce", produce)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("file", metavar="FILE", nargs="?", help="one record a line (what is piped in, or typed)")
    parser.add_argument("--json", action="store_true", help="lines are JSON objects, as `odradek consume --json` writes them")
    parser.add_argument("--key-separator", metavar="TEXT", help="what stands between key and value in a line; \\t is a tab")
    parser.add_argument("--key", metavar="TEXT", help="the key of all records")
    parser.add_argument(
        "--header", metavar="NAME=VALUE", dest="headers", type=setting, action="append", default=[], help="of all records"
    )
    parser.add_argument("--partition", metavar="N", type=count, help="where all records go (by key, or anywhere)")
    parser.add_argument("--compression", choices=CODECS, default="auto", help="(auto: lz4 where that is smaller)")
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all", help="who has to have a record (all in sync)")
    add_bootstrap(parser)
    parser.set_defaults(refuse=parser.error)


def produce(given: Given) -> None:
    """Send records to a topic, from a file or a pipe.

    Each line is a record: its value, with --key-separator its key and its value, with --json all of it.
    """
    if given.json and (given.key_separator or given.key is not None):
        given.refuse("--json: a line has its key in it; leave --key and --key-separator out")
    if given.key_separator and given.key is not None:
        given.refuse("--key: with --key-separator each line has its own")
    try:
        descriptor = os.open(given.file, os.O_RDONLY) if given.file else sys.stdin.fileno()
    except OSError as error:
        fail(f"{given.file}: cannot be read, {error.strerror}; name a file of lines, or pipe them in")
    is_typed = os.isatty(descriptor)
    if is_typed:
        print(f"Each line is a record of {given.topic}; Ctrl-D ends.", file=sys.stderr)

    async def work() -> int:
        from odradek.client.producer import Producer

        async with admin_of(given) as admin:
            await unknown_topics(admin, [given.topic])
            topic = (await admin.describe_topics([given.topic]))[given.topic]
            if given.partition is not None and given.partition >= len(topic.partitions):
                raise Failed(f"topic {given.topic} has no partition {given.partition}: it has {len(topic.partitions)}, from 0 on")
        async with Producer(
            given.bootstrap,
            client_id=CLIENT,
            compression=given.compression,
            acks="all" if given.acks == "all" else int(given.acks),
            linger_ms=TYPED_LINGER_MS if is_typed else PIPED_LINGER_MS,
        ) as producer:
            return await send_lines(producer, given, descriptor)

    sent = run(work)
    print(f"{many(sent, 'record')} in {given.topic}", file=sys.stderr)


async def send_lines(producer: "Producer", given: Given, descriptor: int) -> int:
    """Sends all there are; gives their number."""
    from odradek.cli.json_records import NoRecord
    from odradek.cli.lines import lines_of

    headers = tuple((name, value.encode()) for name, value in given.headers)
    separator = given.key_separator.replace("\\t", "\t").encode() if given.key_separator else b""
    progress, number, sent = Progress(), 0, 0
    try:
        async for lines in lines_of(descriptor):
            last = None
            for line in lines:
                number += 1
                if given.json and not line.strip():
                    continue
                record = understood(line, given, separator)
                last = await producer.send(
                    given.topic,
                    record.value,
                    key=record.key,
                    headers=(*headers, *record.headers),
                    partition=given.partition if given.partition is not None else record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                sent += 1
            if last is not None and last.is_done:
                last.result()  # raises early what would be raised at the end
            progress.show(f"{many(sent, 'record')} …")
        await producer.flush()
    except NoRecord as error:
        await producer.flush()
        step = f"{many(sent, 'record')} before it are written: correct it, and go on with it"
        raise Failed(f"line {number}: {error}; {step}") from error
    finally:
        progress.clear()
    return sent


def understood(line: bytes, given: Given, separator: bytes) -> "Line":
    from odradek.cli.json_records import Given as Line
    from odradek.cli.json_records import NoRecord, read_json

    if given.json:
        return read_json(line)
    key = None if given.key is None else given.key.encode()
    if separator:
        key, found, line = line.partition(separator)
        if not found:
            raise NoRecord(f"it has no {given.key_separator!r} in it")
    return Line(key, line, (), None, None)
