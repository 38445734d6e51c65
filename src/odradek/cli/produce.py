"""`odradek produce`: records from lines.

Invariants
 1. Whatever was read before something went wrong is written, and what went wrong names its line.
 2. Nothing is made by a slip of the hand: a topic that is not there is not created.
"""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from typer import Argument, Option

from odradek.cli.commands import Setting, fail, refuse, setting, verb
from odradek.cli.names import Topic
from odradek.cli.reach import BOOTSTRAP, CLIENT, Bootstrap, Failed, admin_of, run, unknown_topics
from odradek.cli.screen import Progress
from odradek.cli.texts import many

if TYPE_CHECKING:
    from odradek.cli.json_records import Given as Line
    from odradek.client.admin import Admin
    from odradek.client.producer import Producer
    from odradek.client.records import Headers

Codec = Literal["auto", "none", "gzip", "snappy", "lz4", "zstd"]
TYPED_LINGER_MS = 0
PIPED_LINGER_MS = 20

app = verb()


class Form(NamedTuple):
    """How a line is a record."""

    is_json: bool
    key: bytes | None
    separator: bytes


@app.command()
def produce(
    topic: Topic,
    file: Annotated[
        str | None, Argument(metavar="FILE", help="One record a line.", show_default="what is piped in, or typed")
    ] = None,
    json: Annotated[bool, Option("--json", help="Lines are JSON objects, as `odradek consume --json` writes them.")] = False,
    key_separator: Annotated[
        str | None, Option(metavar="TEXT", help="What stands between key and value in a line; \\t is a tab.")
    ] = None,
    key: Annotated[str | None, Option(metavar="TEXT", help="The key of all records.")] = None,
    headers: Annotated[list[Setting], Option("--header", metavar="NAME=VALUE", parser=setting, help="Of all records.")] = [],
    partition: Annotated[
        int | None, Option(metavar="N", min=0, help="Where all records go.", show_default="by key, or anywhere")
    ] = None,
    compression: Annotated[Codec, Option(help="With auto, lz4 where that is smaller.")] = "auto",
    acks: Annotated[Literal["all", "1", "0"], Option(help="Who has to have a record; all are those in sync.")] = "all",
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Send records to a topic, from a file or a pipe.

    Each line is a record: its value, with --key-separator its key and its value, with --json all of it.
    """
    if json and (key_separator or key is not None):
        refuse("--json: a line has its key in it; leave --key and --key-separator out")
    if key_separator and key is not None:
        refuse("--key: with --key-separator each line has its own; leave one of them out")
    separator = key_separator.replace("\\t", "\t").encode() if key_separator else b""
    form = Form(json, None if key is None else key.encode(), separator)
    lines = opened(file)
    is_typed = os.isatty(lines)
    if is_typed:
        print(f"Each line is a record of {topic}; Ctrl-D ends.", file=sys.stderr)

    async def work() -> int:
        from odradek.client.producer import Producer

        async with admin_of(bootstrap) as admin:
            await check_place(admin, topic, partition)
        async with Producer(
            bootstrap,
            client_id=CLIENT,
            compression=compression,
            acks="all" if acks == "all" else int(acks),
            linger_ms=TYPED_LINGER_MS if is_typed else PIPED_LINGER_MS,
        ) as producer:
            of_all = tuple((name, value.encode()) for name, value in headers)
            return await send_lines(producer, lines, form, topic, partition, of_all)

    sent = run(work)
    print(f"{many(sent, 'record')} in {topic}", file=sys.stderr)


def opened(file: str | None) -> int:
    """The descriptor of what is read."""
    try:
        return os.open(file, os.O_RDONLY) if file else sys.stdin.fileno()
    except OSError as error:
        fail(f"{file}: cannot be read, {error.strerror}; name a file of lines, or pipe them in")


async def check_place(admin: "Admin", topic: str, partition: int | None) -> None:
    """Failed where it is not."""
    await unknown_topics(admin, [topic])
    there = len((await admin.describe_topics([topic]))[topic].partitions)
    if partition is not None and partition >= there:
        raise Failed(f"topic {topic} has no partition {partition}: it has {there}, from 0 on")


async def send_lines(
    producer: "Producer", descriptor: int, form: Form, topic: str, partition: int | None, headers: "Headers"
) -> int:
    """Sends all there are; gives their number."""
    from odradek.cli.json_records import NoRecord
    from odradek.cli.lines import lines_of

    progress, number, sent = Progress(), 0, 0
    try:
        async for lines in lines_of(descriptor):
            last = None
            for line in lines:
                number += 1
                if form.is_json and not line.strip():
                    continue
                record = understood(line, form)
                last = await producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=(*headers, *record.headers),
                    partition=partition if partition is not None else record.partition,
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


def understood(line: bytes, form: Form) -> "Line":
    from odradek.cli.json_records import Given as Line
    from odradek.cli.json_records import NoRecord, read_json

    if form.is_json:
        return read_json(line)
    key = form.key
    if form.separator:
        key, found, line = line.partition(form.separator)
        if not found:
            raise NoRecord(f"it has no {form.separator.decode()!r} in it")
    return Line(key, line, (), None, None)
