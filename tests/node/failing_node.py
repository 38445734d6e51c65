"""`odradek start` on a disk that fails: from when a file is there, one call of the operating system says EIO.

    python -m tests.node.failing_node CALL PART TRIGGER odradek start ...

CALL is fdatasync, pwrite or pread; PART is in the path of the files that it fails for; TRIGGER is the file.
"""

import errno
import os
import sys
from typing import Any

from odradek.cli.main import main


def fail_from_now_on(name: str, part: str, trigger: str) -> None:
    real = getattr(os, name)

    def call(fd: int, *arguments: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if part in path and os.path.exists(trigger):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(fd, *arguments)

    setattr(os, name, call)


if __name__ == "__main__":
    call, part, trigger, *sys.argv = sys.argv[1:]
    fail_from_now_on(call, part, trigger)
    main()
