"""`odradek`: the program, and the commands that have no noun.

Every command is a function of what was given, and is imported when it is called. Exit status: 0 when all went well, 1 when
something did not, 2 when the command line cannot be understood. What went wrong is said on stderr in one line that tells what to
do.
"""

from odradek.cli import cluster, log, start, storage, up
from odradek.cli.parser import Commands, Given, Parser


def version(_: Given) -> None:
    """Show the version."""
    from importlib.metadata import version as version_of

    print(f"odradek {version_of('odradek')}")


def main() -> None:
    parser = Parser(prog="odradek", description="Odradek, an event log that any Kafka client takes for Kafka.")
    parser.add_argument("--version", dest="run", action="store_const", const=version, help="show the version and exit")
    commands = Commands(parser)
    start.add(commands)
    up.add(commands)
    storage.add(commands)
    cluster.add(commands)
    log.add(commands)
    commands.add("version", version)
    given = parser.parse_args()
    given.run(given)
