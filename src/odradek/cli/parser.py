"""Command lines, understood by argparse: it costs a tenth of a start less than the alternatives."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from inspect import cleandoc
from typing import NoReturn, TypeAlias

Given: TypeAlias = Namespace
Command: TypeAlias = Callable[[Given], None]


class Parser(ArgumentParser):
    """A parser that takes no abbreviations: what is an option today is the same tomorrow."""

    def __init__(self, *, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False)


class Commands:
    """The commands of the program, or those under a noun. Without one of them, help is shown."""

    def __init__(self, parser: ArgumentParser) -> None:
        self.parser = parser
        self.found = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
        parser.set_defaults(run=self.ask)

    def ask(self, _: Given) -> NoReturn:
        self.parser.print_help(sys.stderr)
        raise SystemExit(2)

    def add(self, name: str, command: Command) -> ArgumentParser:
        """A command, described by its docstring: the first sentence where commands are listed, all of it in its own help."""
        text = cleandoc(command.__doc__ or "")
        parser: ArgumentParser = self.found.add_parser(name, help=text.partition("\n")[0].rstrip("."), description=text)
        parser.set_defaults(run=command)
        return parser

    def name(self, noun: str, text: str) -> None:
        """A command that is listed, and not used this time."""
        self.found.add_parser(noun, help=text.rstrip("."), description=text)

    def under(self, noun: str, text: str) -> "Commands":
        return Commands(self.found.add_parser(noun, help=text.rstrip("."), description=text))


def count(text: str) -> int:
    """A whole number that is not negative."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)


def whole(text: str) -> int:
    """A whole number."""
    if not text.removeprefix("-").removeprefix("+").isdecimal():
        raise ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def moment(text: str) -> int:
    """A time in milliseconds since 1970: such a number, or as ISO 8601 writes it, in UTC where it says no zone."""
    if text.isdecimal():
        return int(text)
    from datetime import UTC, datetime

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no time; write 2024-05-17, 2024-05-17T09:30 or 2024-05-17T09:30+02:00") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def place(text: str) -> tuple[str, list[int]]:
    """TOPIC, or TOPIC:0,2 for some of its partitions."""
    name, _, numbers = text.partition(":")
    if not name:
        raise ArgumentTypeError(f"{text!r} names no topic; write TOPIC or TOPIC:N,...")
    return name, [count(number) for number in numbers.split(",")] if numbers else []


def setting(text: str) -> tuple[str, str]:
    """KEY=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ArgumentTypeError(f"{text!r} is no setting; write KEY=VALUE")
    return name.strip(), value.strip()


def complain(sentence: str) -> None:
    print(f"odradek: {sentence}", file=sys.stderr)


def fail(sentence: str) -> NoReturn:
    complain(sentence)
    raise SystemExit(1)
