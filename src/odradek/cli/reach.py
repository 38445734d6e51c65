"""How a command reaches a cluster, and what it says when that fails.

Invariants
 1. Whatever a cluster refuses ends the command with status 1 and one line, which says what to do next where there is something.
 2. Where no broker listens, that is said at once: nobody waits for a time-out to learn of a wrong address.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

from typer import Option

from odradek.cli.commands import complain, fail

if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.errors import KafkaError

CLIENT = "odradek-cli"  # the client.id
BOOTSTRAP = "127.0.0.1:9092"
INTERRUPTED = 130  # the status of a program that Ctrl-C has ended
NAMES_SHOWN_MAX = 5

NEXT_STEPS = {  # by the names of errors
    "TOPIC_ALREADY_EXISTS": "choose another name, or look at it with `odradek topic describe`",
    "INVALID_TOPIC_EXCEPTION": "a topic's name has letters, digits, dots, _ and -, up to 249 of them",
    "INVALID_REPLICATION_FACTOR": "give fewer copies with --copies, or start more brokers",
    "INVALID_CONFIG": "write settings as Apache Kafka has them, KEY=VALUE",
    "INVALID_PARTITIONS": "partitions can be added, and never taken away",
    "NON_EMPTY_GROUP": "stop its members first; `odradek group describe` shows them",
    "UNKNOWN_MEMBER_ID": "stop the members of the group first; `odradek group describe` shows them",
    "GROUP_ID_NOT_FOUND": "`odradek group list` shows the groups",
    "TOPIC_AUTHORIZATION_FAILED": "ask who administers the cluster for the right to it",
    "GROUP_AUTHORIZATION_FAILED": "ask who administers the cluster for the right to it",
    "CLUSTER_AUTHORIZATION_FAILED": "ask who administers the cluster for the right to it",
    "UNSUPPORTED_VERSION": "this cluster cannot do that; a newer one may",
    "REQUEST_TIMED_OUT": "try again when the cluster is well; `odradek cluster describe` shows how it is",
}

Result = TypeVar("Result")

Bootstrap = Annotated[
    str,
    Option(
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        envvar="ODRADEK_BOOTSTRAP",
        help="Brokers of the cluster.",
    ),
]


class Failed(Exception):
    """It cannot be done; says why, and what to do."""


def administer(bootstrap: str, work: "Callable[[Admin], Awaitable[Result]]", *, interrupted: str = "interrupted") -> Result:
    """What comes of some work with an Admin; `interrupted` is said when Ctrl-C ends it."""

    async def opened() -> Result:
        async with admin_of(bootstrap) as admin:
            return await work(admin)

    return run(opened, interrupted)


@asynccontextmanager
async def admin_of(bootstrap: str) -> "AsyncIterator[Admin]":
    """Of the cluster that was named; Failed when it cannot be reached."""
    from odradek.client.admin import Admin
    from odradek.client.errors import InvalidOption, Unreachable

    try:
        opened = Admin(bootstrap, client_id=CLIENT)
    except InvalidOption as error:
        raise Failed(f"--bootstrap: {error}, and several have commas between them") from error
    async with opened as admin:
        try:
            await admin.cluster.any_connection()
        except Unreachable as error:
            step = "start one with `odradek start`, or name brokers that are running"
            raise Failed(f"--bootstrap: no broker answers ({error}): {step}") from error
        yield admin


def run(work: Callable[[], Awaitable[Result]], interrupted: str = "interrupted") -> Result:
    """Runs a command that talks to a cluster, to its end or to its one line."""
    import asyncio

    from odradek.client.errors import KafkaError

    async def main() -> Result:
        return await work()

    try:
        return asyncio.run(main())
    except (Failed, KafkaError) as error:
        fail(str(error) if isinstance(error, Failed) else sentence(error))
    except BrokenPipeError:
        from odradek.cli.screen import stop_quietly

        stop_quietly()
    except KeyboardInterrupt:
        if interrupted:
            complain(interrupted)
        raise SystemExit(INTERRUPTED) from None


def sentence(error: "KafkaError") -> str:
    """What a cluster has refused, in one line."""
    step = NEXT_STEPS.get(error.code.name)
    said = " ".join(str(error).split()).rstrip(".")
    return f"{said}; {step}" if step else said


async def unknown_topics(admin: "Admin", names: Iterable[str]) -> None:
    """Failed with the nearest name that is there, if one of the names is none of a topic."""
    there = await admin.list_topics(include_internal=True)
    for name in names:
        if name not in there:
            raise Failed(nearest("topic", name, there, "create it with `odradek topic create`"))


def nearest(noun: str, name: str, there: Iterable[str], step: str) -> str:
    from difflib import get_close_matches

    known = sorted(there)
    close = get_close_matches(name, known, 1)
    if close:
        return f"there is no {noun} {name}; did you mean {close[0]}?"
    if not known:
        return f"there is no {noun} {name}, nor any other; {step}"
    more = ", …" if len(known) > NAMES_SHOWN_MAX else ""
    return f"there is no {noun} {name}; there are {', '.join(known[:NAMES_SHOWN_MAX])}{more}; {step}"
