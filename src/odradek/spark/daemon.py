"""Spark's Python daemon, with what workers need loaded before they are forked from it: a worker is ready at once, and what
was loaded is not gone through again by the collection after each task.

Spark starts it where `spark.python.daemon.module` names it.
"""

import gc
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyspark import daemon

if TYPE_CHECKING:
    from socket import socket

MODULES: Final = (  # of ours, that tasks use
    "odradek.spark.exactly_once",
    "odradek.spark.producing",
    "odradek.spark.range_reader",
    "odradek.spark.source",
    "odradek.spark.stream_reader",
    "odradek.spark.writer",
)
serve = daemon.worker


def serve_quietly(sock: "socket", authenticated: bool) -> int:
    """A task whose query was stopped, or has failed elsewhere, has nobody to tell its result: that is no error of its own."""
    try:
        return serve(sock, authenticated)
    except BrokenPipeError:
        return 1


def load(modules: Iterable[str]) -> None:
    """What is loaded now is there in whatever is forked, and no collection goes through it again."""
    for name in modules:
        import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load(MODULES)
    daemon.worker = serve_quietly
    daemon.manager()
