"""Runs the real program."""

import os
import subprocess
import sys
from pathlib import Path


def odradek(*arguments: str, python: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, str(Path(sys.executable).with_name("odradek")), *arguments]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, encoding="utf-8", env={**os.environ, **environment}
    )
