"""The program as a person meets it: run as a process of its own."""

import re
import subprocess
import sys

from odradek.cli.main import NOUNS
from tests.cli.program import odradek

PROGRAM = """
import sys
from odradek.cli.main import main
try:
    main()
except SystemExit:
    pass
print(*sys.modules, sep="\\n", file=sys.stderr)
"""


def test_help_names_the_commands() -> None:
    done = odradek("--help")
    assert done.returncode == 0
    assert {"start", "version", "log"} <= set(done.stdout.split())
    assert odradek().stdout or odradek().stderr


def test_version_is_said_in_both_ways() -> None:
    assert odradek("version").stdout == odradek("--version").stdout
    assert re.fullmatch(r"odradek \d+\.\d+\.\d+\n", odradek("version").stdout)


def test_usage_errors_have_status_2() -> None:
    for arguments in (
        ["fly"],
        ["log", "dump"],
        ["log", "dump", "--limit", "x", "."],
        ["log", "dump", "--as", "x", "."],
        ["start", "-o", "x"],
    ):
        done = odradek(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def imported_by(*arguments: str) -> set[str]:
    """All modules that are there when the program ends."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True, text=True)
    return set(done.stderr.split())


def test_help_imports_nothing_but_what_lists_the_commands() -> None:
    imported = imported_by("--help")
    ours = {name for name in imported if name.startswith("odradek.")}
    assert ours == {"odradek.cli", "odradek.cli.main", "odradek.cli.parser"}
    assert not imported & {"asyncio", "msgspec", "rich", "socket"}


def test_a_noun_is_imported_when_it_is_used_and_no_other() -> None:
    imported = imported_by("topic", "--help")
    assert "odradek.cli.topic" in imported
    assert not imported & {"odradek.cli.group", "odradek.cli.start", "asyncio", "msgspec", "rich"}


def test_the_list_of_commands_says_what_each_says_itself() -> None:
    for noun, text in NOUNS.items():
        shown = odradek(noun, "--help").stdout
        assert text.rstrip(".") in " ".join(shown.split()), noun
