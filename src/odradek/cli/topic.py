"""`odradek topic`: list, create, describe, alter and delete topics."""

from typing import TYPE_CHECKING, Any

from odradek.cli.parser import Commands, Given, count, setting
from odradek.cli.reach import Failed, add_bootstrap, administer, unknown_topics
from odradek.cli.screen import BAD, FAINT, PLAIN, WARNING, Cell, add_json, add_yes, confirm, show_json, show_table
from odradek.cli.texts import many

if TYPE_CHECKING:
    from odradek.client.admin import Admin, Config, Partition, Topic

ADDED = "Keys go to other partitions from then on, which ends their order, and partitions cannot be taken away again."


def add(commands: Commands) -> None:
    topic = commands.under("topic", "See, create, change and delete topics.")
    parser = topic.add("list", list_topics)
    parser.add_argument("--internal", action="store_true", help="also those that the cluster keeps for itself")
    add_bootstrap(parser)
    add_json(parser)
    parser = topic.add("create", create)
    parser.add_argument("names", metavar="TOPIC", nargs="+")
    parser.add_argument("--partitions", metavar="N", type=count, help="how many (as the cluster is set)")
    parser.add_argument(
        "--copies", "--replication-factor", metavar="N", type=count, help="on how many brokers (as the cluster is set)"
    )
    add_settings(parser)
    parser.add_argument("--if-not-exists", action="store_true", help="leave one that is there as it is")
    parser.add_argument("--dry-run", action="store_true", help="say whether it can be, and leave it at that")
    add_bootstrap(parser)
    parser = topic.add("describe", describe)
    parser.add_argument("names", metavar="TOPIC", nargs="+")
    add_bootstrap(parser)
    add_json(parser)
    parser = topic.add("alter", alter)
    parser.add_argument("name", metavar="TOPIC")
    parser.add_argument("--partitions", metavar="N", type=count, help="how many it shall have, more than now")
    add_settings(parser)
    parser.add_argument("--reset", metavar="KEY", action="append", default=[], help="let a setting be as the cluster is set")
    add_bootstrap(parser)
    add_yes(parser)
    parser.set_defaults(refuse=parser.error)
    parser = topic.add("delete", delete)
    parser.add_argument("names", metavar="TOPIC", nargs="+")
    add_bootstrap(parser)
    add_yes(parser)


def add_settings(parser: Any) -> None:
    parser.add_argument(
        "-o", "--config", metavar="KEY=VALUE", dest="settings", type=setting, action="append", default=[], help="a setting"
    )


def list_topics(given: Given) -> None:
    """List the topics of a cluster."""

    async def work(admin: "Admin") -> "dict[str, Topic]":
        return await admin.list_topics(include_internal=given.internal)

    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "copies": max((len(part.replicas) for part in topic.partitions), default=0),
            "unhealthy": sum(not part.is_healthy for part in topic.partitions),
            "is_internal": topic.is_internal,
        }
        for topic in administer(given, work).values()
    ]
    if given.json:
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


def create(given: Given) -> None:
    """Create topics."""

    async def work(admin: "Admin") -> None:
        from odradek.client.admin import NewTopic
        from odradek.client.admin.topics import BY_DEFAULT

        names = given.names
        if given.if_not_exists:
            there = await admin.list_topics(include_internal=True)
            names = [name for name in names if name not in there]
        partitions = BY_DEFAULT if given.partitions is None else given.partitions
        copies = BY_DEFAULT if given.copies is None else given.copies
        wanted = [NewTopic(name, partitions, copies, dict(given.settings)) for name in names]
        for made in (await admin.create_topics(wanted, validate_only=given.dry_run)).values():
            what = "could be created" if given.dry_run else "is created"
            print(f"topic {made.name} {what}: {many(made.partitions, 'partition')}, {copies_text(made.replication_factor)}")

    administer(given, work)


def describe(given: Given) -> None:
    """Show topics: their settings, and where each partition is, begins and ends."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        await unknown_topics(admin, given.names)
        topics = await admin.describe_topics(given.names)
        settings = await own_settings(admin, given.names)
        places = [(topic.name, part) for topic in topics.values() for part in topic.partitions]
        spans = await spans_of(admin, places)
        return [
            {
                "topic": topic.name,
                "id": topic.id,
                "is_internal": topic.is_internal,
                "settings": {config.name: config.value for config in settings[topic.name]},
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

    found = administer(given, work)
    if given.json:
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


def alter(given: Given) -> None:
    """Change the settings of a topic, or add partitions to it."""
    if not (given.settings or given.reset or given.partitions):
        given.refuse("say what to change: -o KEY=VALUE, --reset KEY or --partitions N")

    async def look(admin: "Admin") -> int:
        await unknown_topics(admin, [given.name])
        now = len((await admin.describe_topics([given.name]))[given.name].partitions)
        if given.partitions is not None and given.partitions <= now:
            raise Failed(f"topic {given.name} has {many(now, 'partition')}: give more with --partitions, or leave it out")
        return now

    async def work(admin: "Admin") -> None:
        from odradek.client.admin import Change, ConfigChange, Resource, ResourceKind

        changes = [ConfigChange(name, value) for name, value in given.settings]
        changes += [ConfigChange(name, change=Change.DELETE) for name in given.reset]
        if changes:
            await admin.alter_configs({Resource(ResourceKind.TOPIC, given.name): changes})
            print(f"{many(len(changes), 'setting')} of topic {given.name} changed")
        if given.partitions is not None:
            await admin.add_partitions({given.name: given.partitions})
            print(f"topic {given.name} has {many(given.partitions, 'partition')} now")

    now = administer(given, look)
    if given.partitions is not None:
        confirm(given, f"Add {given.partitions - now} to the {many(now, 'partition')} of {given.name}? {ADDED}")
    administer(given, work)


def delete(given: Given) -> None:
    """Delete topics with all their records."""

    async def look(admin: "Admin") -> int:
        await unknown_topics(admin, given.names)
        topics = await admin.describe_topics(given.names)
        spans = await spans_of(admin, [(topic.name, part) for topic in topics.values() for part in topic.partitions])
        return sum(end - first for first, end in spans.values())

    async def work(admin: "Admin") -> None:
        await admin.delete_topics(given.names)
        for name in given.names:
            print(f"topic {name} is deleted")

    records = administer(given, look)
    confirm(given, f"Delete {', '.join(given.names)} with {many(records, 'record')}, for good?")
    administer(given, work)


def copies_text(number: int) -> str:
    return "1 copy" if number == 1 else f"{number} copies"
