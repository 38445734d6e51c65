"""Python processes for Spark on one machine, forked from one that has everything loaded: they start in hundredths of a second.

Spark starts a Python process for every stream it reads, for every plan and for its daemon, and each would import pyspark, pyarrow
and the rest anew, for most of a second. Here the program that Spark takes for Python (`odradek.pipelines.python` makes it) asks
this one for a fork, and becomes the interpreter itself where nobody answers.

    launcher -> zygote   environment, folder and command line, with its stdin, stdout and stderr
    zygote -> launcher   the number of the process, and its status when it has ended

Invariants
 1. It ends with the driver: its stdin is a pipe that only the driver has the other end of.
 2. A fork has what the launcher had, environment, folder, files and signals, and nothing of the zygote's.
"""

import os
import runpy
import selectors
import signal
import socket
import sys
import warnings
from typing import Final

REQUEST_BYTES_MAX: Final = 1024 * 1024
STREAMS: Final = (0, 1, 2)
OURS: Final = {"pyspark.daemon": "odradek.spark.daemon"}  # Spark names the daemon of workers alone by its setting
MODULES: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
)


class Zygote:
    def __init__(self, path: str) -> None:
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind(path)
        self.listening.listen(64)
        self.launchers: dict[int, socket.socket] = {}  # by the processes that they wait for
        self.selector = selectors.DefaultSelector()
        self.wake_in, self.wake_out = socket.socketpair()
        for each in (self.wake_in, self.wake_out):
            each.setblocking(False)

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_out.fileno())
        for each in (self.listening, self.wake_in, sys.stdin):
            self.selector.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is sys.stdin:
                    return  # the driver is gone
                if key.fileobj is self.wake_in:
                    self.wake_in.recv(4096)
                    self.reap()
                else:
                    self.fork()

    def fork(self) -> None:
        launcher, _ = self.listening.accept()
        try:
            request, streams, _, _ = socket.recv_fds(launcher, REQUEST_BYTES_MAX, len(STREAMS))
        except OSError:
            launcher.close()
            return
        process = os.fork()
        if not process:
            self.become(launcher, request, streams)
        for stream in streams:
            os.close(stream)
        self.launchers[process] = launcher
        self.tell(launcher, process)

    def become(self, launcher: socket.socket, request: bytes, streams: list[int]) -> None:
        """What the launcher asked for, in the process that was forked."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.selector.close()
            for each in (self.listening, self.wake_in, self.wake_out, launcher, *self.launchers.values()):
                each.close()
            for stream, given in zip(STREAMS, streams):
                os.dup2(given, stream)
                os.close(given)
            run(request)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BrokenPipeError:
            pass  # whoever asked for it is gone
        except BaseException:  # noqa: BLE001 - as an interpreter says it
            sys.excepthook(*sys.exc_info())
        finally:
            for file in (sys.stdout, sys.stderr):
                file.flush()
            os._exit(status & 0xFF)

    def reap(self) -> None:
        while self.launchers:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            launcher = self.launchers.pop(process, None)
            if launcher is not None:
                self.tell(launcher, os.waitstatus_to_exitcode(status))
                launcher.close()

    def tell(self, launcher: socket.socket, number: int) -> None:
        try:
            launcher.send(b"%d" % number)
        except OSError:
            """It was killed: what it started ends by itself, when the socket to the JVM does."""


def run(request: bytes) -> None:
    """`-m MODULE ARGUMENT…`, as an interpreter does."""
    folder, arguments, *environment = (part.split(b"\0") for part in request.split(b"\0\0"))
    given = [os.fsdecode(each) for each in arguments]
    os.environ.clear()
    for each in environment[0]:
        name, _, value = each.partition(b"=")
        os.environb[name] = value
    os.chdir(folder[0])
    path = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and not each.endswith(".zip")]
    sys.path[:] = [*(each for each in path if each not in sys.path), *sys.path]
    sys.argv[:] = given[1:]
    warnings.filterwarnings("ignore", message=".*found in sys.modules.*", category=RuntimeWarning)
    runpy.run_module(OURS.get(given[1], given[1]), run_name="__main__", alter_sys=True)


def main() -> None:
    zygote = Zygote(sys.argv[1])  # who asks before all is loaded waits
    from odradek.spark import daemon

    daemon.load((*MODULES, *daemon.MODULES))
    zygote.serve()


if __name__ == "__main__":
    main()
