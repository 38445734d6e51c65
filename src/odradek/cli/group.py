"""`odradek group`: how far groups are, where they go on, and groups that are not needed any more."""

from typing import TYPE_CHECKING, Any

from odradek.cli.parser import Commands, Given, complain, moment, place, whole
from odradek.cli.reach import Failed, add_bootstrap, administer, nearest, unknown_topics
from odradek.cli.screen import BAD, GOOD, PLAIN, WARNING, Cell, add_json, add_yes, confirm, show_json, show_table
from odradek.cli.texts import many

if TYPE_CHECKING:
    from odradek.client.admin import Admin, Group
    from odradek.client.records import Committed, TopicPartition

NOT_ACTIVE = ("Empty", "Dead")


def add(commands: Commands) -> None:
    group = commands.under("group", "See how far groups are, set where they go on, delete them.")
    parser = group.add("list", list_groups)
    parser.add_argument("--state", action="append", default=[], help="only those in this state: Stable, Empty, …")
    parser.add_argument("--type", action="append", default=[], help="only those of this type: consumer, classic, …")
    add_bootstrap(parser)
    add_json(parser)
    parser = group.add("describe", describe)
    parser.add_argument("names", metavar="GROUP", nargs="+")
    add_bootstrap(parser)
    add_json(parser)
    parser = group.add("reset", reset)
    parser.add_argument("name", metavar="GROUP")
    parser.add_argument(
        "--topic",
        metavar="TOPIC[:N,...]",
        dest="topics",
        type=place,
        action="append",
        default=[],
        help="a topic, or some of its partitions (all that the group has committed)",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to where partitions begin")
    where.add_argument("--to-latest", action="store_true", help="to where they end")
    where.add_argument("--to-offset", metavar="N", type=whole, help="to an offset")
    where.add_argument("--to-time", metavar="TIME", type=moment, help="to the first record since 2024-05-17T09:30, in UTC")
    where.add_argument("--shift-by", metavar="N", type=whole, help="so many records on, or with - back")
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and leave it at that")
    add_bootstrap(parser)
    add_json(parser)
    add_yes(parser)
    parser = group.add("delete", delete)
    parser.add_argument("names", metavar="GROUP", nargs="+")
    add_bootstrap(parser)
    add_yes(parser)


def list_groups(given: Given) -> None:
    """List the groups of a cluster."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        found = await admin.list_groups(states=given.state, types=given.type)
        return [
            {"group": each.name, "type": each.type, "state": each.state, "coordinator": each.coordinator}
            for each in found.values()
        ]

    rows = administer(given, work)
    if given.json:
        show_json(rows)
    elif not rows:
        print("There are no groups; `odradek consume TOPIC --group NAME` makes one.")
    else:
        table = [(row["group"], row["type"], state_cell(row["state"]), row["coordinator"]) for row in rows]
        show_table(("group", "type", "state", "coordinator"), table, right=("coordinator",))


def describe(given: Given) -> None:
    """Show groups: their members, and how far they are behind in each partition."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        await unknown_groups(admin, given.names)
        groups = await admin.describe_groups(given.names)
        committed = await admin.list_group_offsets([name for name, group in groups.items() if group.type != "share"])
        return [await described(admin, group, committed.get(name, {})) for name, group in groups.items()]

    found = administer(given, work)
    if given.json:
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


async def described(admin: "Admin", group: "Group", committed: "dict[TopicPartition, Committed]") -> dict[str, Any]:
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


def delete(given: Given) -> None:
    """Delete groups with their offsets. None of them may have members."""

    async def look(admin: "Admin") -> None:
        await unknown_groups(admin, given.names)

    async def work(admin: "Admin") -> None:
        await admin.delete_groups(given.names)
        for name in given.names:
            print(f"group {name} is deleted")

    administer(given, look)
    confirm(given, f"Delete {', '.join(given.names)} with all offsets, for good?")
    administer(given, work)


def reset(given: Given) -> None:
    """Set where a group goes on, while it has no members.

    What would change is shown first, and done when you say so.
    """

    async def look(admin: "Admin") -> list[dict[str, Any]]:
        return await planned(admin, given)

    async def work(admin: "Admin") -> None:
        from odradek.client.records import TopicPartition

        await admin.alter_group_offsets(
            given.name, {TopicPartition(each["topic"], each["partition"]): each["to"] for each in rows}
        )

    rows = administer(given, look)
    if given.json:
        show_json(rows)
    else:
        headings = ("topic", "partition", "from", "to", "change")
        show_table(headings, [reset_row(each) for each in rows], right=headings[1:])
    if given.dry_run:
        return
    changed = sum(each["from"] != each["to"] for each in rows)
    if not changed:
        complain(f"group {given.name} is there already")
        return
    confirm(given, f"Set {many(changed, 'offset')} of group {given.name}?")
    administer(given, work)
    if not given.json:
        print(f"{many(changed, 'offset')} of group {given.name} set")


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


async def planned(admin: "Admin", given: Given) -> list[dict[str, Any]]:
    """What a reset changes; Failed where the group has members, or nothing to go by."""
    from odradek.client.admin import Offset

    groups = await admin.list_groups()
    if given.name not in groups and not given.topics:
        raise Failed(nearest("group", given.name, groups, "with --topic the reset makes one"))
    state = groups[given.name].state if given.name in groups else NOT_ACTIVE[0]
    if state not in NOT_ACTIVE:
        raise Failed(f"group {given.name} is {state}: stop its members first; `odradek group describe {given.name}` shows them")
    committed = (await admin.list_group_offsets([given.name]))[given.name]
    places = await chosen(admin, given, committed)
    first = {each: found.offset for each, found in (await admin.list_offsets(dict.fromkeys(places, Offset.EARLIEST))).items()}
    end = {each: found.offset for each, found in (await admin.list_offsets(dict.fromkeys(places, Offset.LATEST))).items()}
    wanted = first if given.to_earliest else end
    if given.to_time is not None:
        found = await admin.list_offsets(dict.fromkeys(places, given.to_time))
        wanted = {each: found[each].offset if found[each].offset >= 0 else end[each] for each in places}
    if given.to_offset is not None:
        wanted = dict.fromkeys(places, given.to_offset)
    if given.shift_by is not None:
        wanted = {each: committed[each].offset + given.shift_by for each in places if each in committed}
    return [
        {
            "group": given.name,
            "topic": each.topic,
            "partition": each.partition,
            "from": committed[each].offset if each in committed else None,
            "to": min(max(wanted[each], first[each]), end[each]),
        }
        for each in sorted(wanted)
    ]


async def chosen(admin: "Admin", given: Given, committed: "dict[TopicPartition, Committed]") -> "list[TopicPartition]":
    from odradek.client.records import TopicPartition

    topics = await admin.list_topics(include_internal=True)
    if not given.topics:
        places = [each for each in committed if each.topic in topics]
        if not places:
            raise Failed(f"group {given.name} has committed nothing: name topics with --topic")
        return sorted(places)
    await unknown_topics(admin, [name for name, _ in given.topics])
    found: set[TopicPartition] = set()
    for name, indexes in given.topics:
        there = {part.index for part in topics[name].partitions}
        for index in indexes or there:
            if index not in there:
                raise Failed(f"topic {name} has no partition {index}: it has {len(there)}, from 0 on")
            found.add(TopicPartition(name, index))
    return sorted(found)


async def unknown_groups(admin: "Admin", names: list[str]) -> None:
    groups = await admin.list_groups()
    for name in names:
        if name not in groups:
            raise Failed(nearest("group", name, groups, "`odradek consume TOPIC --group NAME` makes one"))


def state_cell(state: str) -> Cell:
    return Cell(state, GOOD if state == "Stable" else BAD if state == "Dead" else PLAIN)
