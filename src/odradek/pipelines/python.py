"""The program that Spark takes for Python, on one machine: it asks the zygote for a process, or becomes the interpreter itself,
without the archives that Spark puts before everything, which it would compile in each process.
"""

import atexit
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final
from zlib import crc32

ZYGOTE: Final = "ODRADEK_ZYGOTE"  # the path of its socket
MODULE: Final = "odradek.spark.zygote"
LAUNCHER: Final = """#!{python} -IS
import os, signal, sys
def alone():
    path = [each for each in os.environ.get("PYTHONPATH", "").split(":") if each and not each.endswith(".zip")]
    os.environ["PYTHONPATH"] = ":".join(path)
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
arguments, zygote = sys.argv[1:], os.environ.get("ODRADEK_ZYGOTE")
if not zygote or arguments[:1] != ["-m"]:
    alone()
import _socket, array
link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
lists = ([os.getcwd()], arguments, [name + "=" + value for name, value in os.environ.items()])
request = b"\\0\\0".join(b"\\0".join(os.fsencode(each) for each in part) for part in lists)
try:
    link.connect(zygote)
    link.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    process = int(link.recv(64))
except (OSError, ValueError):
    alone()
def hand_on(number, _):
    try:
        os.kill(process, number)
    except ProcessLookupError:  # it has ended, and its status comes
        pass
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, hand_on)
status = link.recv(64)
os._exit(int(status or 1) & 255)
"""


def launcher() -> str:
    """Its path, for PYSPARK_PYTHON."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "odradek"
    text = LAUNCHER.format(python=sys.executable)
    path = folder / f"python-{crc32(text.encode()):x}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.rename(path)
    return str(path)


def start_zygote() -> None:
    """Once in a driver; it ends with it."""
    if ZYGOTE in os.environ:
        return
    folder = tempfile.mkdtemp(prefix="odradek-")
    os.environ[ZYGOTE] = f"{folder}/zygote"
    command = [sys.executable, "-m", MODULE, os.environ[ZYGOTE]]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def end() -> None:
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
