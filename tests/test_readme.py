"""What the README shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.program import started

README = Path(__file__).parent.parent / "README.md"


def test_the_python_in_the_readme_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    with started(tmp_path / "data") as node:
        there = program.replace("127.0.0.1:9092", f"127.0.0.1:{node.port}")
        done = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, check=True)
    assert done.stdout == "b'me' b'hello'\n"


def test_the_readme_has_two_set_up_commands() -> None:
    commands = re.findall(r"^make \w+", README.read_text(), re.MULTILINE)
    assert commands == ["make start", "make test"]
