"""`odradek`: the program, and the commands that have no noun.

Every command is a function, and typer makes options of its parameters. Exit status: 0 when all went well, 1 when something did
not, 2 when the command line cannot be understood, 130 after Ctrl-C. What went wrong is one line on stderr that tells what to do.

Invariants
 1. The file of a noun is imported when that noun is used. Help and completion list all of them by what stands here.
"""

import sys
from importlib import import_module
from typing import Annotated, Any

from typer import Context, Exit, Option, Typer, TyperException
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from odradek.cli.commands import ask_for_command, complain

NOUNS = {  # by the file that has it
    "start": "Start a node, and serve until it is stopped.",
    "up": "Start several nodes on this machine, and serve until stopped.",
    "topic": "See, create, change and delete topics.",
    "produce": "Send records to a topic, from a file or a pipe.",
    "consume": "Show the records of a topic.",
    "group": "See how far groups are, set where they go on, delete them.",
    "cluster": "Look at a cluster, or do what concerns several nodes.",
    "pipeline": "Run data pipelines on Spark, and look after them.",
    "storage": "Format the folders of a node, or look at them.",
    "log": "Look at the files of a log.",
}
HELP_COLUMNS_MAX = 110


class Nouns(TyperGroup):
    """All commands. Those of other files are listed by name, and become what they are when one is chosen."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: TyperCommand(name, help=text) for name, text in NOUNS.items()} | dict(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command_of(name) if name in NOUNS else command, rest


def command_of(name: str) -> Any:
    """What the file of a noun has."""
    command = get_command(import_module(f"odradek.cli.{name}").app)
    command.name, command.help = name, command.help or NOUNS[name]
    return command


app = Typer(
    cls=Nouns,
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_COLUMNS_MAX},
)


@app.command("version")
def show_version() -> None:
    """Show the version."""
    from importlib.metadata import version

    print(f"odradek {version('odradek')}")


def version_asked(is_asked: bool) -> None:
    if is_asked:
        show_version()
        raise Exit


@app.callback()
def odradek(
    context: Context,
    _: Annotated[bool, Option("--version", callback=version_asked, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Odradek, an event log that any Kafka client takes for Kafka."""
    ask_for_command(context)


def main() -> None:
    try:
        sys.exit(get_command(app).main(prog_name="odradek", standalone_mode=False))
    except TyperException as error:
        complain(explained(error))
        sys.exit(error.exit_code)


def explained(error: TyperException) -> str:
    """What is wrong with a command line, and where to look, in one line."""
    said = " ".join(error.format_message().split()).removesuffix(".")
    said = said[:1].lower() + said[1:]
    context: Context | None = getattr(error, "ctx", None)
    return said if context is None or said.endswith("?") else f"{said}; `{context.command_path} --help` shows what it takes"
