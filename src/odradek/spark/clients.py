"""The clients of this process: kept from task to task, so that connections and metadata are there when the next one comes.

A worker of Spark does one task after the other, and a driver one call after the other, so each kind of client is used by one
at a time. All of them live on one event loop, in a thread of its own.

Invariants
 1. A process that was forked from one that had clients has none of them.
 2. A client whose last use did not end well is not used again.
"""

import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from odradek.client.admin.admin import Admin
from odradek.client.admin.topics import NewTopic
from odradek.client.errors import Refused
from odradek.client.producer import Producer
from odradek.client.properties import SHARED
from odradek.client.sync.background import Background
from odradek.wire.errors import ErrorCode

Result = TypeVar("Result")
Key = tuple[Any, ...]
KEPT_MAX: Final = 8


class Clients:
    def __init__(self) -> None:
        self.process = os.getpid()
        self.background = Background("odradek-spark")
        self.kept: dict[Key, Any] = {}

    def close(self, client: Any) -> None:
        self.background.run(client.close())


_clients: Clients | None = None


def _here() -> Clients:
    global _clients  # noqa: PLW0603 - one for the process
    if _clients is None or _clients.process != os.getpid():
        _clients = Clients()
    return _clients


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """On the loop of the clients."""
    return _here().background.run(work)


@contextmanager
def kept(key: Key, make: Any) -> Iterator[Any]:
    """The client of a key, made (a coroutine that gives it, started) when there is none."""
    clients = _here()
    client = clients.kept.pop(key, None)
    if client is None:
        client = clients.background.run(make())
    try:
        yield client
    except BaseException:
        clients.close(client)
        raise
    clients.kept[key] = client
    while len(clients.kept) > KEPT_MAX:
        clients.close(clients.kept.pop(next(iter(clients.kept))))


def fixed(properties: dict[str, str]) -> Key:
    """Properties as a part of a key."""
    return tuple(sorted(properties.items()))


def shared(properties: dict[str, str]) -> dict[str, str]:
    """Those that all clients have: where the cluster is, and how long it may take."""
    return {name: value for name, value in properties.items() if name in SHARED}


async def started(properties: dict[str, str]) -> Producer:
    producer = Producer.of(properties)
    await producer.start()
    return producer


async def make_topic(admin: Admin, topic: NewTopic) -> None:
    """Unless it is there."""
    try:
        await admin.create_topics([topic])
    except Refused as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


@contextmanager
def admin(properties: dict[str, str]) -> Iterator[Admin]:
    known = shared(properties)

    async def make() -> Admin:
        return Admin.of(known)

    with kept(("admin", fixed(known)), make) as found:
        yield found
