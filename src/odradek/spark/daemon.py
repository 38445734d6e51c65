"""Spark's Python daemon, with what workers need loaded before they are forked from it: a worker is ready at once, and what
was loaded is not gone through again by the collection after each task.

Spark starts it where `spark.python.daemon.module` names it.
"""

import gc
from typing import TYPE_CHECKING

from pyspark import daemon

if TYPE_CHECKING:
    from socket import socket

serve = daemon.worker


def serve_quietly(sock: "socket", authenticated: bool) -> int:
    """A task whose query was stopped, or has failed elsewhere, has nobody to tell its result: that is no error of its own."""
    try:
        return serve(sock, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    import odradek.spark.exactly_once
    import odradek.spark.producing
    import odradek.spark.range_reader
    import odradek.spark.source
    import odradek.spark.stream_reader
    import odradek.spark.writer  # noqa: F401

    gc.collect()
    gc.freeze()
    daemon.worker = serve_quietly
    daemon.manager()
