"""`odradek group`: how far groups are, where they go on, and groups that are not needed any more."""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Option

from odradek.cli.commands import Place, check_one_of, complain, moment, noun, place, refuse
from odradek.cli.names import Group, Groups
from odradek.cli.reach import BOOTSTRAP, Bootstrap, Failed, administer, nearest, unknown_topics
from odradek.cli.screen import BAD, GOOD, PLAIN, WARNING, Cell, Json, Yes, confirm, show_json, show_table
from odradek.cli.texts import many

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.admin import Group as GroupDescription
    from odradek.client.records import Committed, TopicPartition

NOT_ACTIVE = ("Empty", "Dead")
TOPICS = "A topic, or some of its partitions."
ALL = "all that the group has committed"

app = noun()


@app.command("list")
def list_groups(
    states: Annotated[list[str], Option("--state", metavar="STATE", help="Only those in this state: Stable, Empty, …")] = [],
    types: Annotated[list[str], Option("--type", metavar="TYPE", help="Only those of this type: consumer, classic, …")] = [],
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the groups of a cluster."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        found = await admin.list_groups(states=states, types=types)
        return [
            {"group": each.name, "type": each.type, "state": each.state, "coordinator": each.coordinator}
            for each in found.values()
        ]

    rows = administer(bootstrap, work)
    if json:
        show_json(rows)
    elif not rows:
        print("There are no groups; `odradek consume TOPIC --group NAME` makes one.")
    else:
        table = [(row["group"], row["type"], state_cell(row["state"]), row["coordinator"]) for row in rows]
        show_table(("group", "type", "state", "coordinator"), table, right=("coordinator",))


@app.command()
def describe(names: Groups, bootstrap: Bootstrap = BOOTSTRAP, json: Json = False) -> None:
    """Show groups, their members, and how far behind they are."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        await unknown_groups(admin, names)
        groups = await admin.describe_groups(names)
        committed = await admin.list_group_offsets([name for name, group in groups.items() if group.type != "share"])
        return [await described(admin, group, committed.get(name, {})) for name, group in groups.items()]

    found = administer(bootstrap, work)
    if json:
        show_json(found)
        return
    for number, group in enumerate(found):
        lag = f", {many(group['lag'], 'record')} behind" if group["partitions"] else ""
        print("\n" * (number > 0) + f"group {group['group']}: {group['state']}, {group['type']}{lag}\n")
        show_members(group["members"])
        if group["partitions"]:
            headings = ("topic", "partition", "committed", "end", "lag", "member")
            show_table(headings, [partition_row(each) for each in group["partitions"]], right=headings[1:5])
        else:
            print("It has committed nothing.")


def show_members(members: list[dict[str, Any]]) -> None:
    if members:
        rows = [
            (each["member"], each["instance"] or "", each["client"], each["host"], len(each["partitions"])) for each in members
        ]
        show_table(("member", "instance", "client", "host", "partitions"), rows, right=("partitions",))
        print()


def partition_row(part: dict[str, Any]) -> tuple[object, ...]:
    lag = part["lag"]
    return (
        part["topic"],
        part["partition"],
        "none" if part["committed"] is None else part["committed"],
        "" if part["end"] is None else part["end"],
        "" if lag is None else Cell(lag, WARNING if lag else GOOD),
        part["member"] or "",
    )


async def described(admin: "Admin", group: "GroupDescription", committed: "dict[TopicPartition, Committed]") -> dict[str, Any]:
    owners = {place: member for member in group.members for place in member.assignment}
    ends = await ends_of(admin, sorted({*committed, *owners}))
    partitions = []
    for each in sorted({*committed, *owners}):
        at, end = committed.get(each), ends.get(each)
        owner = owners.get(each)
        partitions.append(
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": at.offset if at else None,
                "end": end,
                "lag": None if at is None or end is None else max(end - at.offset, 0),
                "member": owner.id if owner else None,
            }
        )
    return {
        "group": group.name,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor,
        "lag": sum(each["lag"] or 0 for each in partitions),
        "members": [
            {
                "member": member.id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [str(each) for each in member.assignment],
            }
            for member in group.members
        ],
        "partitions": partitions,
    }


async def ends_of(admin: "Admin", places: "list[TopicPartition]") -> "dict[TopicPartition, int]":
    """Where partitions end; what is not there any more, or led by nobody, is left out."""
    from odradek.client.admin import Offset
    from odradek.client.errors import KafkaError

    topics = await admin.list_topics(include_internal=True)
    there = {(name, part.index) for name, topic in topics.items() for part in topic.partitions if part.leader is not None}
    led = [each for each in places if each in there]
    try:
        found = await admin.list_offsets(dict.fromkeys(led, Offset.LATEST))
    except KafkaError as error:
        found = getattr(error, "done", {})
    return {each: answer.offset for each, answer in found.items()}


@app.command()
def delete(names: Groups, bootstrap: Bootstrap = BOOTSTRAP, yes: Yes = False) -> None:
    """Delete groups with their offsets. None of them may have members."""

    async def look(admin: "Admin") -> None:
        await unknown_groups(admin, names)

    async def work(admin: "Admin") -> None:
        await admin.delete_groups(names)
        for name in names:
            print(f"group {name} is deleted")

    administer(bootstrap, look)
    confirm(f"Delete {', '.join(names)} with all offsets, for good?", yes=yes)
    administer(bootstrap, work)


class Target(NamedTuple):
    """Where a group is to go on; one of them is given."""

    to_earliest: bool
    to_latest: bool
    to_offset: int | None
    to_time: int | None
    shift_by: int | None


@app.command()
def reset(
    name: Group,
    topics: Annotated[list[Place], Option("--topic", metavar="TOPIC[:N,...]", parser=place, help=TOPICS, show_default=ALL)] = [],
    to_earliest: Annotated[bool, Option("--to-earliest", help="To where partitions begin.")] = False,
    to_latest: Annotated[bool, Option("--to-latest", help="To where they end.")] = False,
    to_offset: Annotated[int | None, Option(metavar="N", help="To an offset.")] = None,
    to_time: Annotated[
        int | None, Option(metavar="TIME", parser=moment, help="To the first record since 2024-05-17T09:30, in UTC.")
    ] = None,
    shift_by: Annotated[int | None, Option(metavar="N", help="So many records on, or with - back.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would change, and leave it at that.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
    yes: Yes = False,
) -> None:
    """Set where a group goes on, while it has no members.

    What would change is shown first, and done when you say so.
    """
    target = Target(to_earliest, to_latest, to_offset, to_time, shift_by)
    ways = {f"--{field.replace('_', '-')}": value for field, value in target._asdict().items()}
    if not check_one_of(ways):
        refuse(f"say where group {name} shall go on: one of {', '.join(ways)}")

    async def look(admin: "Admin") -> list[dict[str, Any]]:
        return await planned(admin, name, topics, target)

    async def work(admin: "Admin") -> None:
        from odradek.client.records import TopicPartition

        await admin.alter_group_offsets(name, {TopicPartition(each["topic"], each["partition"]): each["to"] for each in rows})

    rows = administer(bootstrap, look)
    if json:
        show_json(rows)
    else:
        headings = ("topic", "partition", "from", "to", "change")
        show_table(headings, [reset_row(each) for each in rows], right=headings[1:])
    if dry_run:
        return
    changed = sum(each["from"] != each["to"] for each in rows)
    if not changed:
        complain(f"group {name} is there already")
        return
    confirm(f"Set {many(changed, 'offset')} of group {name}?", yes=yes)
    administer(bootstrap, work)
    if not json:
        print(f"{many(changed, 'offset')} of group {name} set")


def reset_row(each: dict[str, Any]) -> tuple[object, ...]:
    change = each["to"] - each["from"] if each["from"] is not None else None
    shown = "" if change is None else f"{change:+}" if change else "0"
    return (
        each["topic"],
        each["partition"],
        "none" if each["from"] is None else each["from"],
        each["to"],
        Cell(shown, WARNING if change else PLAIN),
    )


async def planned(admin: "Admin", name: str, topics: list[Place], target: Target) -> list[dict[str, Any]]:
    """What a reset changes; Failed where the group has members, or nothing to go by."""
    from odradek.client.admin import Offset

    groups = await admin.list_groups()
    if name not in groups and not topics:
        raise Failed(nearest("group", name, groups, "with --topic the reset makes one"))
    state = groups[name].state if name in groups else NOT_ACTIVE[0]
    if state not in NOT_ACTIVE:
        raise Failed(f"group {name} is {state}: stop its members first; `odradek group describe {name}` shows them")
    committed = (await admin.list_group_offsets([name]))[name]
    places = await chosen(admin, name, topics, committed)
    first = {each: found.offset for each, found in (await admin.list_offsets(dict.fromkeys(places, Offset.EARLIEST))).items()}
    end = {each: found.offset for each, found in (await admin.list_offsets(dict.fromkeys(places, Offset.LATEST))).items()}
    wanted = first if target.to_earliest else end
    if target.to_time is not None:
        found = await admin.list_offsets(dict.fromkeys(places, target.to_time))
        wanted = {each: found[each].offset if found[each].offset >= 0 else end[each] for each in places}
    if target.to_offset is not None:
        wanted = dict.fromkeys(places, target.to_offset)
    if target.shift_by is not None:
        wanted = {each: committed[each].offset + target.shift_by for each in places if each in committed}
    return [
        {
            "group": name,
            "topic": each.topic,
            "partition": each.partition,
            "from": committed[each].offset if each in committed else None,
            "to": min(max(wanted[each], first[each]), end[each]),
        }
        for each in sorted(wanted)
    ]


async def chosen(
    admin: "Admin", name: str, wanted: list[Place], committed: "dict[TopicPartition, Committed]"
) -> "list[TopicPartition]":
    """What was named, or else all that the group has committed."""
    from odradek.client.records import TopicPartition

    topics = await admin.list_topics(include_internal=True)
    if not wanted:
        places = [each for each in committed if each.topic in topics]
        if not places:
            raise Failed(f"group {name} has committed nothing: name topics with --topic")
        return sorted(places)
    await unknown_topics(admin, [topic for topic, _ in wanted])
    found: set[TopicPartition] = set()
    for topic, indexes in wanted:
        there = {part.index for part in topics[topic].partitions}
        for index in indexes or there:
            if index not in there:
                raise Failed(f"topic {topic} has no partition {index}: it has {len(there)}, from 0 on")
            found.add(TopicPartition(topic, index))
    return sorted(found)


async def unknown_groups(admin: "Admin", names: list[str]) -> None:
    groups = await admin.list_groups()
    for name in names:
        if name not in groups:
            raise Failed(nearest("group", name, groups, "`odradek consume TOPIC --group NAME` makes one"))


def state_cell(state: str) -> Cell:
    return Cell(state, GOOD if state == "Stable" else BAD if state == "Dead" else PLAIN)
