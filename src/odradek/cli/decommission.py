"""`odradek cluster decommission`: a node leaves its cluster for good, by requests that any Kafka cluster understands.

Invariants
 1. Nothing is remembered: what is done already is seen from the cluster itself. A job that was interrupted goes on where it was.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from odradek.cli.commands import check_one_of, fail
from odradek.cli.reach import BOOTSTRAP, Bootstrap, Failed, administer
from odradek.cli.texts import bytes_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.client.admin import Admin, ClusterDescription
    from odradek.client.records import TopicPartition
    from odradek.core.controller.emptying import Placed

MOVES_AT_ONCE = 100  # partitions: what moves at once is caught up with at once
LOOK_SECONDS = 0.2
LOOKS_MAX = 50  # for a move that the controller has done, until the broker that is asked knows of it
INTERRUPTED = "interrupted: moves that are under way go on; the same command continues, and with --cancel takes them back"


def decommission(
    node: Annotated[int, Argument(metavar="NODE", min=0, help="The node.id.")],
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would move, and leave it at that.")] = False,
    cancel: Annotated[bool, Option("--cancel", help="Take back the moves that are under way.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Take a node out of its cluster for good.

    All its replicas move to other brokers, evenly and over racks; then it votes no more on the metadata, and when it has
    been stopped it is unregistered. Ctrl-C interrupts; the same command goes on later.
    """
    from odradek.core.controller.emptying import NoRoom

    check_one_of({"--dry-run": dry_run, "--cancel": cancel})

    async def work(admin: "Admin") -> None:
        if cancel:
            under_way = await moves_from(admin, node)
            await move(admin, dict.fromkeys(under_way))
            print(f"{len(under_way)} moves are taken back")
            return
        await check_others_vote(admin, node)
        if await empty(admin, node, is_shown_only=dry_run):
            await leave(admin, node)

    try:
        administer(bootstrap, work, interrupted=INTERRUPTED)
    except NoRoom as error:
        fail(f"node {node} cannot be emptied: {error}; add a node, or have fewer copies")


async def empty(admin: "Admin", node: int, *, is_shown_only: bool) -> bool:
    """Moves everything away from a node, a part at a time; whether that was done."""
    import asyncio

    from odradek.client.records import TopicPartition
    from odradek.core.controller.emptying import moves

    asked: dict[TopicPartition, int] = {}  # moves, by how often one was looked for that is not under way any more
    at_first = shown = 0
    while True:
        under_way = await moves_from(admin, node)
        cluster = await admin.describe_cluster(include_fenced=True)
        partitions = await placed(admin)
        held = {TopicPartition(each.topic, each.index) for each in partitions if node in each.replicas}
        if node not in cluster.brokers and not held:
            raise Failed(f"node {node} is none of the brokers {', '.join(map(str, cluster.brokers))}")
        asked = {each: looks + 1 for each, looks in asked.items() if each in held - under_way and looks < LOOKS_MAX}
        moving = held & (under_way | asked.keys())
        takers = {broker.id: broker.rack for broker in cluster.brokers.values() if not broker.is_fenced}
        left = moves((each for each in partitions if (each.topic, each.index) not in moving), takers, node)
        if held and not at_first:
            at_first = len(held)
            size = await size_text(admin, cluster, node)
            print(f"node {node} has {at_first} partitions{size}; {len(moving)} of them are on their way", flush=True)
        if is_shown_only:
            for each in left:
                print(f"  {each.topic}-{each.index} to {', '.join(map(str, each.replicas))}")
            return False
        if not held:
            return True
        chosen = left[: max(MOVES_AT_ONCE - len(moving), 0)]
        wanted = {TopicPartition(each.topic, each.index): each.replicas for each in chosen}
        await move(admin, wanted)
        asked |= dict.fromkeys(wanted, 0)
        if at_first - len(held) > shown:
            shown = at_first - len(held)
            print(f"  {shown} of {at_first} have moved", flush=True)
        await asyncio.sleep(LOOK_SECONDS)


async def leave(admin: "Admin", node: int) -> None:
    """Takes an empty node out of the voters, and of the brokers once it has been stopped."""
    import asyncio

    voters = await remove_voter(admin, node)
    if voters is not None:
        print(f"node {node} votes no more on the metadata, nodes {', '.join(map(str, voters))} do", flush=True)
        if len(voters) % 2 == 0:
            print(f"  {len(voters)} voters can lose no more nodes than {len(voters) - 1} can: make another node one", flush=True)
    is_told = False
    while True:
        cluster = await admin.describe_cluster(include_fenced=True)
        if node not in cluster.brokers:
            break
        if cluster.brokers[node].is_fenced:
            await remove_voter(admin, node)  # should it have joined again by itself
            await admin.unregister_broker(node)
            break
        if not is_told:
            print(f"node {node} is empty: stop it now, and it is unregistered", flush=True)
            is_told = True
        await asyncio.sleep(LOOK_SECONDS)
    print(f"node {node} is no part of the cluster any more")


async def placed(admin: "Admin") -> "list[Placed]":
    """Every partition, and who has it."""
    from odradek.core.controller.emptying import Placed

    topics = await admin.list_topics(include_internal=True)
    return [Placed(topic.name, part.index, part.replicas) for topic in topics.values() for part in topic.partitions]


async def moves_from(admin: "Admin", node: int) -> "set[TopicPartition]":
    """Partitions that are about to leave a node."""
    return {place for place, each in (await admin.list_reassignments()).items() if node in each.removing}


async def move(admin: "Admin", wanted: "Mapping[TopicPartition, Sequence[int] | None]") -> None:
    """What is gone since it was looked at does not matter."""
    from odradek.client.errors import KafkaError, SomeFailed
    from odradek.wire.errors import ErrorCode

    gone = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    try:
        await admin.reassign_partitions(wanted)
    except KafkaError as error:
        errors = error.errors.values() if isinstance(error, SomeFailed) else [error]
        for each in errors:
            if each.code not in gone:
                raise Failed(f"partitions do not move: {each}") from error


async def check_others_vote(admin: "Admin", node: int) -> None:
    if [*(await admin.describe_quorum()).voters] == [node]:
        raise Failed(
            f"node {node} is the only voter of the metadata quorum: start another controller and make it a voter, "
            "with kafka-metadata-quorum.sh add-controller or controller.quorum.auto.join.enable"
        )


async def remove_voter(admin: "Admin", node: int) -> list[int] | None:
    """Takes a node out of the voters; gives those that are left, None when it was none of them."""
    voters = (await admin.describe_quorum()).voters
    if node not in voters:
        return None
    await admin.remove_voter(node, voters[node].directory_id)
    return sorted(voters.keys() - {node})


async def size_text(admin: "Admin", cluster: "ClusterDescription", node: int) -> str:
    """Of all logs of a node; nothing where nobody knows."""
    from odradek.client.errors import KafkaError

    member = cluster.brokers.get(node)
    if member is None or member.is_fenced:
        return ""
    with suppress(KafkaError):
        folders = (await admin.describe_log_dirs([node]))[node]
        return f", {bytes_text(sum(log.size_bytes for each in folders.values() for log in each.logs.values()))}"
    return ""
