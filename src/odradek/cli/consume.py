"""`odradek consume`: the records of a topic, as a table, as JSON, or as they are.

Without a group, every partition is read from where one says; with one, from where the group is.

Invariants
 1. Without --follow it ends when it has come to where the topic ended when it began, whatever is written meanwhile.
 2. What a group commits has been shown.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.cli.columns import Columns
from odradek.cli.parser import Commands, Given, count, moment, whole
from odradek.cli.reach import CLIENT, Failed, add_bootstrap, admin_of, run, unknown_topics
from odradek.cli.screen import Progress
from odradek.cli.texts import escaped, many, time

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.consumer import Consumer
    from odradek.client.records import Record, TopicPartition

POLL_MS = 200
HEADINGS = ("partition", "offset", "time", "key", "headers", "value")


def add(commands: Commands) -> None:
    parser = commands.add("consume", consume)
    parser.add_argument("topic", metavar="TOPIC")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--from-beginning", action="store_true", help="from the first record; with --group, of a new one")
    where.add_argument("--from-offset", metavar="N", type=whole, help="from an offset; with -, so many before the end")
    where.add_argument("--from-time", metavar="TIME", type=moment, help="from the first record since 2024-05-17T09:30, in UTC")
    parser.add_argument(
        "--partition", metavar="N", dest="partitions", type=count, action="append", default=[], help="only these (all)"
    )
    parser.add_argument("--group", metavar="GROUP", help="go on where a group is, and commit how far it comes")
    parser.add_argument("--limit", metavar="N", type=count, help="end after so many records")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with records that come, until Ctrl-C")
    parser.add_argument("--format", choices=("table", "json", "raw"), default="table", help="raw: values, one a line (table)")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="one JSON object a line")
    add_bootstrap(parser)
    parser.set_defaults(refuse=parser.error)


def consume(given: Given) -> None:
    """Show the records of a topic.

    It ends where the topic ends, or with --follow goes on. Where nothing says from where, it waits for what comes.
    """
    if given.group and (given.partitions or given.from_offset is not None or given.from_time is not None):
        step = "set where it goes on with `odradek group reset`"
        given.refuse(f"--group: which partitions are read, and from where, is the group's matter; {step}")
    begins = given.from_beginning or given.from_offset is not None or given.from_time is not None or given.group
    given.follow = given.follow or not begins

    async def work() -> None:
        from odradek.client.consumer import Consumer

        async with admin_of(given) as admin:
            await unknown_topics(admin, [given.topic])
            starts, ends = await span(admin, given)
        topics = [given.topic] if given.group else []
        async with Consumer(
            *topics,
            bootstrap=given.bootstrap,
            client_id=CLIENT,
            group=given.group,
            auto_offset_reset="earliest" if given.from_beginning else "latest",
        ) as consumer:
            if not given.group:
                await consumer.assign(starts)
            await show_records(consumer, given, {} if given.follow else ends)

    run(work, interrupted="")


async def span(admin: "Admin", given: Given) -> "tuple[dict[TopicPartition, int], dict[TopicPartition, int]]":
    """Where each partition is to be read from, and where it ends for now."""
    from odradek.client.admin import Isolation, Offset
    from odradek.client.records import TopicPartition

    there = [part.index for part in (await admin.describe_topics([given.topic]))[given.topic].partitions]
    for index in given.partitions:
        if index not in there:
            raise Failed(f"topic {given.topic} has no partition {index}: it has {len(there)}, from 0 on")
    places = [TopicPartition(given.topic, index) for index in sorted(set(given.partitions)) or there]

    async def offsets(at: int) -> "dict[TopicPartition, int]":
        found = await admin.list_offsets(dict.fromkeys(places, at), isolation=Isolation.READ_COMMITTED)
        return {place: each.offset for place, each in found.items()}

    first, end = await offsets(Offset.EARLIEST), await offsets(Offset.LATEST)
    starts = end
    if given.from_beginning:
        starts = first
    elif given.from_offset is not None:
        wanted = {place: given.from_offset + (end[place] if given.from_offset < 0 else 0) for place in places}
        starts = {place: min(max(wanted[place], first[place]), end[place]) for place in places}
    elif given.from_time is not None:
        found = await offsets(given.from_time)
        starts = {place: found[place] if found[place] >= 0 else end[place] for place in places}
    return starts, end


async def show_records(consumer: "Consumer", given: Given, ends: "dict[TopicPartition, int]") -> None:
    """Until the ends are reached, or so many records were shown; without ends, for ever."""
    from odradek.client.records import TopicPartition

    show, progress, shown = printer(given.format), Progress(), 0
    is_watched = sys.stdout.isatty()
    while given.limit is None or shown < given.limit:
        left = None if given.limit is None else given.limit - shown
        records = await consumer.poll(max_records=left, timeout_ms=POLL_MS)
        if ends and not given.group:  # what a group was given is committed, and so it is shown
            records = [each for each in records if each.offset < ends[TopicPartition(each.topic, each.partition)]]
        if records:
            show(records)
            shown += len(records)
            if not is_watched:
                progress.show(f"{many(shown, 'record')} …")
        if ends and await is_at_end(consumer, ends):
            break
    progress.clear()


async def is_at_end(consumer: "Consumer", ends: "dict[TopicPartition, int]") -> bool:
    """All that is assigned has been read up to where it ended; in a group, others read the rest."""
    places = consumer.assignment()
    if not places:
        return False
    for place in places:
        if await consumer.position(place) < ends.get(place, 0):
            return False
    return True


def printer(form: str) -> "Callable[[list[Record]], None]":
    if form == "table":
        return table_printer()
    if form == "raw":
        return show_raw
    from odradek.cli.json_records import record_json

    def show_json(records: "list[Record]") -> None:
        sys.stdout.buffer.write(b"".join([record_json(record) + b"\n" for record in records]))
        sys.stdout.buffer.flush()

    return show_json


def show_raw(records: "list[Record]") -> None:
    sys.stdout.buffer.write(b"".join([bytes(record.value or b"") + b"\n" for record in records]))
    sys.stdout.buffer.flush()


def table_printer() -> "Callable[[list[Record]], None]":
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    columns = Columns(sys.stdout.write)
    columns.begin(HEADINGS)

    def show(records: "list[Record]") -> None:
        for record in records:
            headers = ", ".join(f"{escaped(name)}={text(value)}" for name, value in record.headers)
            moment_text = time(record.timestamp_ms)
            cells = (str(record.partition), str(record.offset), moment_text, text(record.key), headers, text(record.value))
            columns.add(cells)
        columns.flush()
        sys.stdout.flush()

    return show


def text(content: bytes | None) -> str:
    """Bytes as a person reads them: as text where they are, otherwise 0x and hexadecimal digits."""
    if content is None:
        return "null"
    try:
        return escaped(bytes(content).decode())
    except UnicodeDecodeError:
        return f"0x{bytes(content).hex()}"
