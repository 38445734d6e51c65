"""`odradek consume`: the records of a topic, as a table, as JSON, or as they are.

Without a group, every partition is read from where one says; with one, from where the group is.

Invariants
 1. Without --follow it ends when it has come to where the topic ended when it began, whatever is written meanwhile.
 2. What a group commits has been shown.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from typer import Option

from odradek.cli.columns import Columns
from odradek.cli.commands import check_one_of, moment, refuse, verb
from odradek.cli.names import GroupOption, Topic
from odradek.cli.reach import BOOTSTRAP, CLIENT, Bootstrap, Failed, admin_of, run, unknown_topics
from odradek.cli.screen import Progress
from odradek.cli.texts import escaped, many, time

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.consumer import Consumer
    from odradek.client.records import Record, TopicPartition

Form = Literal["table", "json", "raw"]
POLL_MS = 200
HEADINGS = ("partition", "offset", "time", "key", "headers", "value")

app = verb()


class Begin(NamedTuple):
    """From where; one of them is given, or none for what comes."""

    from_beginning: bool
    from_offset: int | None
    from_time: int | None


@app.command()
def consume(
    topic: Topic,
    from_beginning: Annotated[
        bool, Option("--from-beginning", help="From the first record; with --group, if it is new.")
    ] = False,
    from_offset: Annotated[int | None, Option(metavar="N", help="From an offset; with -, so many before the end.")] = None,
    from_time: Annotated[
        int | None, Option(metavar="TIME", parser=moment, help="From the first record since 2024-05-17T09:30, in UTC.")
    ] = None,
    partitions: Annotated[list[int], Option("--partition", metavar="N", min=0, help="Only these.", show_default="all")] = [],
    group: GroupOption = None,
    limit: Annotated[int | None, Option(metavar="N", min=0, help="End after so many records.")] = None,
    follow: Annotated[bool, Option("-f", "--follow", help="Go on with records that come, until Ctrl-C.")] = False,
    form: Annotated[Form, Option("--format", help="With raw, values, one a line.")] = "table",
    json: Annotated[bool, Option("--json", help="One JSON object a line, as --format json.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Show the records of a topic.

    It ends where the topic ends, or with --follow goes on. Where nothing says from where, it waits for what comes.
    """
    begin = Begin(from_beginning, from_offset, from_time)
    begins = check_one_of({"--from-beginning": from_beginning, "--from-offset": from_offset, "--from-time": from_time})
    if group and (partitions or from_offset is not None or from_time is not None):
        step = "set where it goes on with `odradek group reset`"
        refuse(f"--group: which partitions are read, and from where, is the group's matter; {step}")
    is_endless = follow or not (begins or group)

    async def work() -> None:
        from odradek.client.consumer import Consumer

        async with admin_of(bootstrap) as admin:
            await unknown_topics(admin, [topic])
            starts, ends = await span(admin, topic, partitions, begin)
        async with Consumer(
            *([topic] if group else []),
            bootstrap=bootstrap,
            client_id=CLIENT,
            group=group,
            auto_offset_reset="earliest" if from_beginning else "latest",
        ) as consumer:
            if not group:
                await consumer.assign(starts)
            chosen: Form = "json" if json else form
            await show_records(consumer, {} if is_endless else ends, form=chosen, limit=limit, is_group=bool(group))

    run(work, interrupted="")


async def span(
    admin: "Admin", topic: str, partitions: list[int], begin: Begin
) -> "tuple[dict[TopicPartition, int], dict[TopicPartition, int]]":
    """Where each partition is to be read from, and where it ends for now."""
    from odradek.client.admin import Isolation, Offset
    from odradek.client.records import TopicPartition

    there = [part.index for part in (await admin.describe_topics([topic]))[topic].partitions]
    for index in partitions:
        if index not in there:
            raise Failed(f"topic {topic} has no partition {index}: it has {len(there)}, from 0 on")
    places = [TopicPartition(topic, index) for index in sorted(set(partitions)) or there]

    async def offsets(at: int) -> "dict[TopicPartition, int]":
        found = await admin.list_offsets(dict.fromkeys(places, at), isolation=Isolation.READ_COMMITTED)
        return {place: each.offset for place, each in found.items()}

    first, end = await offsets(Offset.EARLIEST), await offsets(Offset.LATEST)
    starts = end
    if begin.from_beginning:
        starts = first
    elif begin.from_offset is not None:
        wanted = {place: begin.from_offset + (end[place] if begin.from_offset < 0 else 0) for place in places}
        starts = {place: min(max(wanted[place], first[place]), end[place]) for place in places}
    elif begin.from_time is not None:
        found = await offsets(begin.from_time)
        starts = {place: found[place] if found[place] >= 0 else end[place] for place in places}
    return starts, end


async def show_records(
    consumer: "Consumer", ends: "dict[TopicPartition, int]", *, form: Form, limit: int | None, is_group: bool
) -> None:
    """Until the ends are reached, or so many records were shown; without ends, for ever."""
    from odradek.client.records import TopicPartition

    show, progress, shown = printer(form), Progress(), 0
    is_watched = sys.stdout.isatty()
    while limit is None or shown < limit:
        left = None if limit is None else limit - shown
        records = await consumer.poll(max_records=left, timeout_ms=POLL_MS)
        if ends and not is_group:  # what a group was given is committed, and so it is shown
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


def printer(form: Form) -> "Callable[[list[Record]], None]":
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
