"""`odradek`: the program, and the commands that have no noun.

Exit status: 0 when all went well, 1 when something did not, 2 when the command line cannot be understood. What went wrong is
said on stderr in one line that tells what to do.
"""

from typing import Annotated

import typer

from odradek.cli import log, start

app = typer.Typer(
    help="Odradek, an event log that any Kafka client takes for Kafka.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich would take longer than all the rest
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(log.app, name="log")
app.command()(start.start)


def show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def version() -> None:
    """Show the version."""
    from importlib.metadata import version as version_of

    typer.echo(f"odradek {version_of('odradek')}")


def main() -> None:
    app(prog_name="odradek")
