"""What every command is made of: typer's functions, the values that they take, and how one says that it cannot go on."""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from typer import BadParameter, Context, Exit, Typer, TyperException


def verb() -> Typer:
    """A file of one command, which has the file's name."""
    return Typer(add_completion=False, rich_markup_mode=None)  # with a markup, every help would import rich


def noun() -> Typer:
    """A file of several commands, under the file's name."""
    found = verb()
    found.callback(invoke_without_command=True, help="")(ask_for_command)  # main.NOUNS says what it is
    return found


def ask_for_command(context: Context) -> None:
    """Shows which there are, where none was given."""
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise Exit(2)


class Setting(NamedTuple):
    name: str
    value: str


class Place(NamedTuple):
    """A topic, or some of its partitions."""

    topic: str
    partitions: list[int]


def setting(text: str) -> Setting:
    """KEY=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise BadParameter(f"{text!r} is no setting; write KEY=VALUE")
    return Setting(name.strip(), value.strip())


def place(text: str) -> Place:
    """TOPIC, or TOPIC:0,2 for some of its partitions."""
    name, _, numbers = text.partition(":")
    indexes = numbers.split(",") if numbers else []
    if not name or not all(index.isdecimal() for index in indexes):
        raise BadParameter(f"{text!r} is no topic; write TOPIC, or TOPIC:0,2 for some of its partitions")
    return Place(name, [*map(int, indexes)])


def moment(text: str) -> int:
    """A time in milliseconds since 1970: such a number, or as ISO 8601 writes it, in UTC where it says no zone."""
    if text.isdecimal():
        return int(text)
    from datetime import UTC, datetime

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadParameter(f"{text!r} is no time; write 2024-05-17, 2024-05-17T09:30 or 2024-05-17T09:30+02:00") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def check_one_of(options: Mapping[str, Any]) -> int:
    """Refuses more than one of options that exclude each other; gives how many there are."""
    given = [option for option, value in options.items() if value is not None and value is not False]
    if len(given) > 1:
        refuse(f"{given[1]}: it does not go with {given[0]}; leave one of them out")
    return len(given)


class Unclear(TyperException):
    """Options that make no sense together; says which, and what to do."""

    exit_code = 2


def refuse(sentence: str) -> NoReturn:
    raise Unclear(sentence)


def complain(sentence: str) -> None:
    print(f"odradek: {sentence}", file=sys.stderr)


def fail(sentence: str) -> NoReturn:
    complain(sentence)
    raise SystemExit(1)
