"""What the README shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_python_in_the_readme_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "value=b'value'" in done.stdout
    assert (tmp_path / "data" / "orders-0" / "00000000000000000000.log").stat().st_size > 61


def test_the_readme_has_two_set_up_commands() -> None:
    commands = re.findall(r"^make \w+", README.read_text(), re.MULTILINE)
    assert commands == ["make start", "make test"]
