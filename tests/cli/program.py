"""Runs the real program."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.kafka.broker import free_port

STOP_SECONDS_MAX = 30


def odradek(
    *arguments: str, python: tuple[str, ...] = (), given: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """`given` is piped into it."""
    return subprocess.run(
        command(*arguments, python=python),
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
        input=given,
        env={**os.environ, **environment},
    )


def command(*arguments: str, python: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, *python, str(Path(sys.executable).with_name("odradek")), *arguments]


def typed(*arguments: str, answer: str) -> subprocess.CompletedProcess[bytes]:
    """Runs it for somebody at a terminal who types an answer, and sees what it shows there."""
    ours, terminal = pty.openpty()
    try:
        with subprocess.Popen(command(*arguments), stdin=terminal, stdout=terminal, stderr=subprocess.PIPE) as process:
            os.write(ours, answer.encode())
            assert process.stderr is not None
            complaints = process.stderr.read()
            status = process.wait()
        os.set_blocking(ours, False)
        shown = b""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(ours, 65536):
                shown += piece
        return subprocess.CompletedProcess(arguments, status, shown, complaints)
    finally:
        os.close(ours)
        os.close(terminal)


class Started:
    """A node in a process of its own, as `odradek start` starts it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.port = free_port()
        started = command("start", "--data", str(folder), "--listen", f"127.0.0.1:{self.port}", *arguments)
        self.process = subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8")

    def screen(self) -> str:
        """What it shows when it serves; AssertionError with its complaint when it does not come so far."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("Ctrl-C"):
                return "".join(lines)
        raise AssertionError(self.process.stderr.read())

    def stop(self) -> str:
        """Stops it as a person does; gives what it said on stderr."""
        self.process.send_signal(signal.SIGINT)
        _, complaints = self.process.communicate(timeout=STOP_SECONDS_MAX)
        return complaints


@contextlib.contextmanager
def started(folder: Path, *arguments: str) -> Iterator[Started]:
    node = Started(folder, *arguments)
    try:
        node.screen()
        yield node
    finally:
        node.stop()
