"""`odradek cluster`: jobs that concern several nodes, done by requests that any Kafka cluster understands.

What is done already is seen from the cluster itself: a job that was interrupted goes on where it was when it is started again.
"""

from typing import TYPE_CHECKING

from odradek.cli.parser import Commands, Given, complain, count, fail

if TYPE_CHECKING:
    from odradek.node.administration import Administration

MOVES_AT_ONCE = 100  # partitions: what moves at once is caught up with at once
LOOK_SECONDS = 0.2
LOOKS_MAX = 50  # for a move that the controller has done, until the broker that is asked knows of it
KIB = 1024


def add(commands: Commands) -> None:
    cluster = commands.under("cluster", "Do what concerns several nodes.")
    parser = cluster.add("decommission", decommission)
    parser.add_argument("node", metavar="NODE", type=count, help="the node.id")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT,...", required=True, help="brokers of the cluster")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="show what would move, and leave it at that")
    what.add_argument("--cancel", action="store_true", help="take back the moves that are under way")


def decommission(given: Given) -> None:
    """Take a node out of its cluster for good.

    All its replicas move to other brokers, evenly and over racks; then it votes no more on the metadata, and when it has
    been stopped it is unregistered. Ctrl-C interrupts; the same command goes on later.
    """
    import asyncio

    from odradek.core.controller.emptying import NoRoom
    from odradek.node.administration import Administration, Failed

    async def run() -> None:
        administration = Administration(given.bootstrap_server)
        try:
            if given.cancel:
                print(f"{await administration.cancel_moves(given.node)} moves are taken back")
                return
            await administration.check_others_vote(given.node)
            if await empty(administration, given.node, is_shown_only=given.dry_run):
                await leave(administration, given.node)
        finally:
            administration.close()

    try:
        asyncio.run(run())
    except NoRoom as error:
        fail(f"node {given.node} cannot be emptied: {error}; add a node, or have fewer copies")
    except Failed as error:
        fail(str(error))
    except KeyboardInterrupt:
        complain("interrupted: moves that are under way go on; the same command continues, and with --cancel takes them back")
        raise SystemExit(1) from None


async def empty(administration: "Administration", node: int, *, is_shown_only: bool) -> bool:
    """Moves everything away from a node, a part at a time; whether that was done."""
    import asyncio

    from odradek.core.controller.emptying import moves

    asked: dict[tuple[str, int], int] = {}  # moves, by how often one was looked for that is not under way any more
    at_first = shown = 0
    while True:
        under_way = await administration.moves_from(node)
        cluster = await administration.look()
        cluster.check(node)
        held = {(each.topic, each.index) for each in cluster.partitions if node in each.replicas}
        asked = {each: looks + 1 for each, looks in asked.items() if each in held - under_way and looks < LOOKS_MAX}
        moving = held & (under_way | asked.keys())
        left = moves((each for each in cluster.partitions if (each.topic, each.index) not in moving), cluster.takers, node)
        if held and not at_first:
            at_first = len(held)
            size = await administration.size_of(cluster, node)
            print(f"node {node} has {at_first} partitions{size_text(size)}; {len(moving)} of them are on their way", flush=True)
        if is_shown_only:
            for move in left:
                print(f"  {move.topic}-{move.index} to {', '.join(map(str, move.replicas))}")
            return False
        if not held:
            return True
        chosen = left[: max(MOVES_AT_ONCE - len(moving), 0)]
        await administration.move(chosen)
        asked |= dict.fromkeys(((move.topic, move.index) for move in chosen), 0)
        if at_first - len(held) > shown:
            shown = at_first - len(held)
            print(f"  {shown} of {at_first} have moved", flush=True)
        await asyncio.sleep(LOOK_SECONDS)


async def leave(administration: "Administration", node: int) -> None:
    """Takes an empty node out of the voters, and of the brokers once it has been stopped."""
    import asyncio

    voters = await administration.remove_voter(node)
    if voters is not None:
        print(f"node {node} votes no more on the metadata, nodes {', '.join(map(str, voters))} do", flush=True)
        if len(voters) % 2 == 0:
            print(f"  {len(voters)} voters can lose no more nodes than {len(voters) - 1} can: make another node one", flush=True)
    is_told = False
    while True:
        cluster = await administration.look()
        if node not in cluster.brokers:
            break
        if cluster.brokers[node].is_fenced:
            await administration.remove_voter(node)  # should it have joined again by itself
            await administration.unregister(node)
            break
        if not is_told:
            print(f"node {node} is empty: stop it now, and it is unregistered", flush=True)
            is_told = True
        await asyncio.sleep(LOOK_SECONDS)
    print(f"node {node} is no part of the cluster any more")


def size_text(size: int | None) -> str:
    """Nothing where nobody knows."""
    if size is None:
        return ""
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= KIB and len(units) > 1:
        value /= KIB
        units.pop(0)
    return f", {value:.1f} {units[0]}" if units[0] != "B" else f", {size} B"
