"""What Spark takes for Python, with a zygote that the test plays."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from odradek.pipelines.python import ZYGOTE, launcher
from tests.clients.waiting import until

WAIT_SECONDS = 30


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def catches(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> number - 1 & 1)


def test_a_signal_for_a_process_that_has_just_ended_is_none_and_its_status_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as zygote:
        zygote.settimeout(WAIT_SECONDS)
        zygote.bind(str(tmp_path / "zygote"))
        zygote.listen()
        environment = os.environ | {ZYGOTE: str(tmp_path / "zygote")}
        command = [launcher(), "-m", "a.module"]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as python:
            link = zygote.accept()[0]
            with link:
                link.recv(1 << 20)
                link.send(str(ended_process()).encode())
                until(lambda: catches(python.pid, signal.SIGTERM), "the launcher catches signals")
                python.send_signal(signal.SIGTERM)
                link.send(b"7")
                assert python.wait(WAIT_SECONDS) == 7
            assert python.stderr is not None
            assert not python.stderr.read()
