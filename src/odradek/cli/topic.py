"""`odradek topic`: list, create, describe, alter and delete topics."""

from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from odradek.cli.commands import Setting, noun, refuse, setting
from odradek.cli.names import Topic, Topics
from odradek.cli.reach import BOOTSTRAP, Bootstrap, Failed, administer, unknown_topics
from odradek.cli.screen import BAD, FAINT, PLAIN, WARNING, Cell, Json, Yes, confirm, show_json, show_table
from odradek.cli.texts import many

if TYPE_CHECKING:
    from odradek.client.admin import Admin, Config, Partition
    from odradek.client.admin import Topic as TopicDescription

ADDED = "Keys go to other partitions from then on, which ends their order, and partitions cannot be taken away again."
AS_SET = "as the cluster is set"

app = noun()

Settings = Annotated[list[Setting], Option("-o", "--config", metavar="KEY=VALUE", parser=setting, help="A setting.")]


@app.command("list")
def list_topics(
    internal: Annotated[bool, Option("--internal", help="Also those that the cluster keeps for itself.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the topics of a cluster."""

    async def work(admin: "Admin") -> "dict[str, TopicDescription]":
        return await admin.list_topics(include_internal=internal)

    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "copies": max((len(part.replicas) for part in topic.partitions), default=0),
            "unhealthy": sum(not part.is_healthy for part in topic.partitions),
            "is_internal": topic.is_internal,
        }
        for topic in administer(bootstrap, work).values()
    ]
    if json:
        show_json(rows)
        return
    if not rows:
        print("There are no topics; create one with `odradek topic create`.")
        return
    headings = ("topic", "partitions", "copies", "unhealthy")
    table = [
        (
            Cell(row["topic"], FAINT if row["is_internal"] else PLAIN),
            row["partitions"],
            row["copies"],
            Cell(row["unhealthy"], BAD if row["unhealthy"] else PLAIN),
        )
        for row in rows
    ]
    show_table(headings, table, right=headings[1:])


@app.command()
def create(
    names: Annotated[list[str], Argument(metavar="TOPIC...")],
    partitions: Annotated[int | None, Option(metavar="N", min=1, help="How many.", show_default=AS_SET)] = None,
    copies: Annotated[
        int | None,
        Option("--copies", "--replication-factor", metavar="N", min=1, help="On how many brokers.", show_default=AS_SET),
    ] = None,
    settings: Settings = [],
    if_not_exists: Annotated[bool, Option("--if-not-exists", help="Leave one that is there as it is.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Say whether it can be, and leave it at that.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Create topics."""

    async def work(admin: "Admin") -> None:
        from odradek.client.admin import NewTopic
        from odradek.client.admin.topics import BY_DEFAULT

        there = await admin.list_topics(include_internal=True) if if_not_exists else {}
        wanted = [
            NewTopic(name, partitions or BY_DEFAULT, copies or BY_DEFAULT, dict(settings)) for name in names if name not in there
        ]
        for made in (await admin.create_topics(wanted, validate_only=dry_run)).values():
            what = "could be created" if dry_run else "is created"
            print(f"topic {made.name} {what}: {many(made.partitions, 'partition')}, {copies_text(made.replication_factor)}")

    administer(bootstrap, work)


@app.command()
def describe(names: Topics, bootstrap: Bootstrap = BOOTSTRAP, json: Json = False) -> None:
    """Show topics, their settings and their partitions."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        await unknown_topics(admin, names)
        topics = await admin.describe_topics(names)
        own = await own_settings(admin, names)
        places = [(topic.name, part) for topic in topics.values() for part in topic.partitions]
        spans = await spans_of(admin, places)
        return [
            {
                "topic": topic.name,
                "id": topic.id,
                "is_internal": topic.is_internal,
                "settings": {config.name: config.value for config in own[topic.name]},
                "partitions": [
                    {
                        "partition": part.index,
                        "leader": part.leader,
                        "replicas": part.replicas,
                        "in_sync": part.in_sync,
                        "is_healthy": part.is_healthy,
                        "first_offset": spans.get((topic.name, part.index), (None, None))[0],
                        "end_offset": spans.get((topic.name, part.index), (None, None))[1],
                    }
                    for part in topic.partitions
                ],
            }
            for topic in topics.values()
        ]

    found = administer(bootstrap, work)
    if json:
        show_json(found)
        return
    for number, topic in enumerate(found):
        print("\n" * (number > 0) + f"topic {topic['topic']}, id {topic['id']}")
        for name, value in topic["settings"].items():
            print(f"  {name}={value}")
        print()
        show_table(
            ("partition", "leader", "replicas", "in sync", "first offset", "end offset"),
            [partition_row(part) for part in topic["partitions"]],
            right=("partition", "leader", "first offset", "end offset"),
        )


def partition_row(part: dict[str, Any]) -> tuple[object, ...]:
    return (
        part["partition"],
        Cell("none", BAD) if part["leader"] is None else part["leader"],
        ", ".join(map(str, part["replicas"])),
        Cell(", ".join(map(str, part["in_sync"])), PLAIN if part["is_healthy"] else WARNING),
        "" if part["first_offset"] is None else part["first_offset"],
        "" if part["end_offset"] is None else part["end_offset"],
    )


async def own_settings(admin: "Admin", names: list[str]) -> "dict[str, list[Config]]":
    """Those that were set for the topics themselves."""
    from odradek.client.admin import Resource, ResourceKind

    found = await admin.describe_configs([Resource(ResourceKind.TOPIC, name) for name in names])
    return {resource.name: [each for each in configs.values() if each.is_own] for resource, configs in found.items()}


async def spans_of(admin: "Admin", places: "list[tuple[str, Partition]]") -> dict[tuple[str, int], tuple[int, int]]:
    """Where partitions that are led begin and end."""
    from odradek.client.admin import Offset
    from odradek.client.records import TopicPartition

    led = [TopicPartition(name, part.index) for name, part in places if part.leader is not None]
    first = await admin.list_offsets(dict.fromkeys(led, Offset.EARLIEST))
    end = await admin.list_offsets(dict.fromkeys(led, Offset.LATEST))
    return {(place.topic, place.partition): (first[place].offset, end[place].offset) for place in led}


@app.command()
def alter(
    name: Topic,
    partitions: Annotated[int | None, Option(metavar="N", min=1, help="How many it shall have, more than now.")] = None,
    settings: Settings = [],
    reset: Annotated[list[str], Option("--reset", metavar="KEY", help="Let a setting be as the cluster is set.")] = [],
    bootstrap: Bootstrap = BOOTSTRAP,
    yes: Yes = False,
) -> None:
    """Change the settings of a topic, or add partitions to it."""
    if not (settings or reset or partitions):
        refuse("say what to change: -o KEY=VALUE, --reset KEY or --partitions N")

    async def look(admin: "Admin") -> int:
        await unknown_topics(admin, [name])
        now = len((await admin.describe_topics([name]))[name].partitions)
        if partitions is not None and partitions <= now:
            raise Failed(f"topic {name} has {many(now, 'partition')}: give more with --partitions, or leave it out")
        return now

    async def work(admin: "Admin") -> None:
        from odradek.client.admin import Change, ConfigChange, Resource, ResourceKind

        changes = [ConfigChange(key, value) for key, value in settings]
        changes += [ConfigChange(key, change=Change.DELETE) for key in reset]
        if changes:
            await admin.alter_configs({Resource(ResourceKind.TOPIC, name): changes})
            print(f"{many(len(changes), 'setting')} of topic {name} changed")
        if partitions is not None:
            await admin.add_partitions({name: partitions})
            print(f"topic {name} has {many(partitions, 'partition')} now")

    now = administer(bootstrap, look)
    if partitions is not None:
        confirm(f"Add {partitions - now} to the {many(now, 'partition')} of {name}? {ADDED}", yes=yes)
    administer(bootstrap, work)


@app.command()
def delete(names: Topics, bootstrap: Bootstrap = BOOTSTRAP, yes: Yes = False) -> None:
    """Delete topics with all their records."""

    async def look(admin: "Admin") -> int:
        await unknown_topics(admin, names)
        topics = await admin.describe_topics(names)
        spans = await spans_of(admin, [(topic.name, part) for topic in topics.values() for part in topic.partitions])
        return sum(end - first for first, end in spans.values())

    async def work(admin: "Admin") -> None:
        await admin.delete_topics(names)
        for name in names:
            print(f"topic {name} is deleted")

    records = administer(bootstrap, look)
    confirm(f"Delete {', '.join(names)} with {many(records, 'record')}, for good?", yes=yes)
    administer(bootstrap, work)


def copies_text(number: int) -> str:
    return "1 copy" if number == 1 else f"{number} copies"
