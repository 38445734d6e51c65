"""The program as a person meets it: run as a process of its own."""

import re

from tests.cli.program import odradek


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


def test_help_imports_nothing_of_the_node_nor_the_log() -> None:
    done = odradek("--help", python=("-X", "importtime"))
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "odradek.cli.start" in imported
    slow = ("odradek.log", "odradek.wire", "odradek.node", "asyncio", "msgspec")
    assert not {name for name in imported if name.startswith(slow)}
