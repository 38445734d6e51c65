"""The programs of docs/client.md do what they are there for, on a node of ours and on Apache Kafka."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.servers import Server

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
SECONDS_MAX = 120
SAYS = (
    "the second one is at offset",
    "MESSAGE_TOO_LARGE payments False",
    "exactly 10",
    "b'99'",
    "3000 rows",
    "clicks",
    "9 b'9'",
    "",
)


def test_every_program_is_tried() -> None:
    assert len(PROGRAMS) == len(SAYS)


@pytest.mark.parametrize("number", range(len(SAYS)))
def test_a_program_of_the_page_runs(server: Server, number: int) -> None:
    program = PROGRAMS[number].replace("127.0.0.1:9092", server.bootstrap)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    assert SAYS[number] in done.stdout
    assert not done.stderr
