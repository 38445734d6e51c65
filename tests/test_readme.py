"""What the README shows works as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.program import started

README = Path(__file__).parent.parent / "README.md"


def test_the_python_in_the_readme_runs(tmp_path: Path) -> None:
    program, _ = programs()
    with started(tmp_path / "data") as node:
        there = program.replace("127.0.0.1:9092", f"127.0.0.1:{node.port}")
        done = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, check=True)
    assert done.stdout == "b'me' b'hello'\n"


def test_the_pipeline_in_the_readme_is_that_of_its_page() -> None:
    """Where it is run by a test."""
    _, pipeline = programs()
    assert pipeline in (README.parent / "docs" / "pipelines.md").read_text()


def programs() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_first_minute_is_true(tmp_path: Path) -> None:
    text = README.read_text().partition("## The first minute")[2]
    (commands,) = re.findall(r"```\n(.*?)```", text.partition("\n## ")[0], re.DOTALL)
    program = f"{sys.executable} {Path(sys.executable).with_name('odradek')}"
    shown = []
    with started(tmp_path / "data") as node:
        for line in commands.strip().splitlines():
            there = line.replace(".venv/bin/odradek", program)
            environment = {**os.environ, "ODRADEK_BOOTSTRAP": f"127.0.0.1:{node.port}"}
            done = subprocess.run(there, shell=True, capture_output=True, text=True, check=True, env=environment)
            shown.append(done.stdout)
    made, _, records, _, group = shown
    assert made == "topic greetings is created: 3 partitions, 1 copy\n"
    assert sorted(line.split()[4:] for line in records.splitlines()[1:]) == [["me", "hello"], ["you", "good", "morning"]]
    assert group.startswith("group readers: Empty, consumer, 1 record behind\n")


def test_the_readme_has_two_set_up_commands() -> None:
    commands = re.findall(r"^make \w+", README.read_text(), re.MULTILINE)
    assert commands == ["make start", "make test"]
