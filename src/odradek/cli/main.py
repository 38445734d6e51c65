"""`odradek`: the program, and the commands that have no noun.

Every command is a function of what was given. Exit status: 0 when all went well, 1 when something did not, 2 when the command
line cannot be understood, 130 after Ctrl-C. What went wrong is said on stderr in one line that tells what to do.

Invariants
 1. The file of a noun is imported when that noun is used. Help lists all of them by what stands here.
"""

import sys
from importlib import import_module

from odradek.cli.parser import Commands, Given, Parser

NOUNS = {  # by the file that has it
    "start": "Start a node, and serve until it is stopped.",
    "up": "Start a cluster of several nodes on this machine, and serve until it is stopped.",
    "topic": "See, create, change and delete topics.",
    "produce": "Send records to a topic, from a file or a pipe.",
    "consume": "Show the records of a topic.",
    "group": "See how far groups are, set where they go on, delete them.",
    "cluster": "Look at a cluster, or do what concerns several of its nodes.",
    "storage": "Format the folders of a node, or look at them.",
    "log": "Look at the files of a log.",
}


def version(_: Given) -> None:
    """Show the version."""
    from importlib.metadata import version as version_of

    print(f"odradek {version_of('odradek')}")


def main() -> None:
    parser = Parser(prog="odradek", description="Odradek, an event log that any Kafka client takes for Kafka.")
    parser.add_argument("--version", dest="run", action="store_const", const=version, help="show the version and exit")
    commands = Commands(parser)
    wanted = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    for noun, text in NOUNS.items():
        if noun == wanted:
            import_module(f"odradek.cli.{noun}").add(commands)
        else:
            commands.name(noun, text)
    commands.add("version", version)
    given = parser.parse_args()
    given.run(given)
