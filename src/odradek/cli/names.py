"""Names of topics and groups on the command line, which a shell completes with those that the cluster has.

Invariants
 1. Completion is silent and short: where the cluster does not answer in time, there is nothing to choose from.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Context, Option

from odradek.cli.reach import BOOTSTRAP, Failed, admin_of

if TYPE_CHECKING:
    from odradek.client.admin import Admin

COMPLETION_SECONDS_MAX = 2.0


def topics_there(context: Context) -> list[str]:
    async def work(admin: "Admin") -> Iterable[str]:
        return await admin.list_topics()

    return asked(context, work)


def groups_there(context: Context) -> list[str]:
    async def work(admin: "Admin") -> Iterable[str]:
        return await admin.list_groups()

    return asked(context, work)


def asked(context: Context, work: "Callable[[Admin], Awaitable[Iterable[str]]]") -> list[str]:
    import asyncio

    from odradek.client.errors import KafkaError

    async def names() -> list[str]:
        async with asyncio.timeout(COMPLETION_SECONDS_MAX), admin_of(context.params.get("bootstrap") or BOOTSTRAP) as admin:
            return sorted(await work(admin))

    with suppress(Failed, KafkaError, TimeoutError):
        return asyncio.run(names())
    return []


Topic = Annotated[str, Argument(metavar="TOPIC", autocompletion=topics_there)]
Topics = Annotated[list[str], Argument(metavar="TOPIC...", autocompletion=topics_there)]
Group = Annotated[str, Argument(metavar="GROUP", autocompletion=groups_there)]
Groups = Annotated[list[str], Argument(metavar="GROUP...", autocompletion=groups_there)]
GroupOption = Annotated[
    str | None,
    Option("--group", metavar="GROUP", autocompletion=groups_there, help="Go on where a group is, and commit how far it comes."),
]
