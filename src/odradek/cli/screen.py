"""What commands show: tables for people, one JSON object a line for programs, questions, and how far something is.

Invariants
 1. Nothing is asked where nobody can answer: without a terminal, what would be asked is refused unless --yes was given.
 2. Colours and progress are for terminals alone. What goes to a file or a pipe is plain text, and as wide as it needs to be.
 3. rich is imported when a table is shown, and not before.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple, NoReturn

from typer import Option

from odradek.cli.commands import complain, fail

TABLE_COLUMNS_MAX = 10_000  # characters, where nobody's terminal is the limit
PLAIN, GOOD, WARNING, BAD, FAINT = "", "green", "yellow", "bold red", "dim"

Json = Annotated[bool, Option("--json", help="One JSON object a line instead of tables.")]
Yes = Annotated[bool, Option("--yes", help="Do not ask.")]


def show_json(values: Iterable[Any]) -> None:
    import msgspec

    encode = msgspec.json.Encoder().encode
    for value in values:
        sys.stdout.buffer.write(encode(value) + b"\n")
    sys.stdout.flush()


class Cell(NamedTuple):
    """What stands in a table, with a colour of its own."""

    content: object
    style: str


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Columns named in `right` are of numbers."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from odradek.cli.texts import escaped

    is_terminal = sys.stdout.isatty()
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell, PLAIN) for cell in row]
        table.add_row(*(Text(escaped(str(cell.content)), style=cell.style) for cell in cells))
    console = Console(file=sys.stdout, width=None if is_terminal else TABLE_COLUMNS_MAX, highlight=False)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), flush=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ends the command unless somebody says yes. To be asked while no event loop runs: who thinks may take long."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} Nobody is there to answer: say --yes if you are sure")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        complain("nothing was changed")
        raise SystemExit(1)


class Progress:
    """One line on stderr that says how far something is, if a person sees it."""

    def __init__(self) -> None:
        self.is_seen = sys.stderr.isatty()
        self.is_shown = False

    def show(self, text: str) -> None:
        if self.is_seen:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self.is_shown = True

    def clear(self) -> None:
        if self.is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.is_shown = False


def stop_quietly() -> NoReturn:
    """Whoever read our output has seen enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(1)
