"""`odradek start` on a disk that fails: from when a file is there, one call of the operating system says EIO.

    python -m tests.node.failing_node CALL PART TRIGGER odradek start ...

CALL is fdatasync, pwrite or pread; PART is in the path of the files that it fails for; TRIGGER is the file. With `full-` before
it, the call says that there is no room. With `slow-`, the call does not fail but takes as long as the file is there; on the main
thread, which is the loop's, just long enough to be noticed. Several can be given: CALL,CALL PART,PART.
"""

import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from odradek.cli.main import main
from odradek.node.writing import SLOW_APPEND_SECONDS

POLL_SECONDS = 0.01


def fail(_: str, path: str) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def have_no_room(_: str, path: str) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def take_long(trigger: str, _: str) -> None:
    if threading.current_thread() is threading.main_thread():
        time.sleep(2 * SLOW_APPEND_SECONDS)
        return
    while os.path.exists(trigger):
        time.sleep(POLL_SECONDS)


HAPPENS = {"slow": take_long, "full": have_no_room, "": fail}  # by what is before the call


def from_now_on(name: str, part: str, trigger: str, happens: Callable[[str, str], None]) -> None:
    real = getattr(os, name)

    def call(fd: int, *arguments: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if part in path and os.path.exists(trigger):
            happens(trigger, path)
        return real(fd, *arguments)

    setattr(os, name, call)


if __name__ == "__main__":
    calls, parts, trigger, *sys.argv = sys.argv[1:]
    for call, part in zip(calls.split(","), parts.split(","), strict=True):
        how, _, name = call.rpartition("-")
        from_now_on(name, part, trigger, HAPPENS[how])
    main()
