"""The program as a person meets it: run as a process of its own."""

import os
import re
import subprocess
import sys

import pytest

from odradek.cli.main import NOUNS
from tests.cli.program import odradek
from tests.clients.confluent import create
from tests.kafka.broker import Broker

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
    assert {*NOUNS, "version"} <= set(done.stdout.split())
    assert odradek("-h").stdout == done.stdout
    nothing = odradek()
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (2, "", done.stdout)


def test_version_is_said_in_both_ways() -> None:
    assert odradek("version").stdout == odradek("--version").stdout
    assert re.fullmatch(r"odradek \d+\.\d+\.\d+\n", odradek("version").stdout)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["topc"], "'topic'"),
        (["topic", "fly"], "`odradek topic --help`"),
        (["log", "dump"], "PATH"),
        (["log", "dump", "--limit", "x", "."], "--limit"),
        (["log", "dump", "--as", "x", "."], "'metadata'"),
        (["log", "dump", "--rec", "."], "--records"),
        (["start", "-o", "x"], "KEY=VALUE"),
        (["up", "--nodes", "0"], "1<=x<=64"),
        (["storage", "format", "-c", "x", "--standalone", "-N"], "--standalone"),
        (["group", "reset", "g"], "--to-earliest"),
        (["group", "reset", "g", "--to-offset", "0", "--shift-by", "0"], "--to-offset"),
        (["cluster", "decommission", "1", "--dry-run", "--cancel"], "--dry-run"),
        (["consume", "t", "--from-beginning", "--from-offset", "0"], "--from-beginning"),
    ],
)
def test_what_cannot_be_understood_is_one_line_and_status_2(arguments: list[str], named: str) -> None:
    done = odradek(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("odradek: ")
    assert named in line


def test_a_noun_without_a_command_shows_those_that_it_has() -> None:
    done = odradek("topic")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == odradek("topic", "--help").stdout


def imported_by(*arguments: str, **environment: str) -> set[str]:
    """All modules that are there when the program ends."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    return set(done.stderr.split())


def completed(line: str, bootstrap: str = "") -> list[str]:
    """What it offers; it never complains."""
    done = odradek(
        _ODRADEK_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(line.count(" ")),
        ODRADEK_BOOTSTRAP=bootstrap,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize("environment", [{}, {"_ODRADEK_COMPLETE": "complete_bash", "COMP_WORDS": "odradek ", "COMP_CWORD": "1"}])
def test_help_and_completion_import_nothing_but_what_lists_the_commands(environment: dict[str, str]) -> None:
    imported = imported_by("--help", **environment)
    ours = {name for name in imported if name.startswith("odradek.")}
    assert ours == {"odradek.cli", "odradek.cli.main", "odradek.cli.commands"}
    assert not imported & {"asyncio", "msgspec", "rich", "socket"}


def test_a_noun_is_imported_when_it_is_used_and_no_other() -> None:
    imported = imported_by("topic", "--help")
    assert "odradek.cli.topic" in imported
    assert not imported & {"odradek.cli.group", "odradek.cli.start", "asyncio", "msgspec", "rich"}


def test_the_list_of_commands_says_what_each_says_itself() -> None:
    listed = odradek("--help").stdout
    for noun, text in NOUNS.items():
        assert text in listed
        shown = odradek(noun, "--help").stdout
        assert text in shown, noun
        commands = shown.partition("Commands:")[2]
        assert "..." not in commands, "the first sentence of a command is short enough for the list"


def test_a_shell_completes_commands_options_and_choices() -> None:
    assert completed("odradek t") == ["topic"]
    assert completed("odradek topic de") == ["describe", "delete"]
    assert completed("odradek consume t --from-b") == ["--from-beginning"]
    assert completed("odradek log dump --as m") == ["metadata"]


def test_a_shell_completes_names_that_the_cluster_has(node: Broker, name: str) -> None:
    create(node.bootstrap, name)
    assert completed(f"odradek consume {name[:-1]}", bootstrap=node.bootstrap) == [name]
    assert completed(f"odradek topic delete --bootstrap {node.bootstrap} {name}") == [name]
    assert completed(f"odradek topic delete --bootstrap 127.0.0.1:1 {name}") == []
