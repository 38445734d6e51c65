"""The classes of all messages and log records, by their names in the table: `from odradek.wire.messages import FetchRequest`.

A class is made when it is first asked for. What an editor and mypy know of them is in messages.pyi beside this file, which
`python -m tools.wire_stubs` writes.
"""

from odradek.wire.message import Message, make_class
from odradek.wire.table import blocks, schema


def __getattr__(name: str) -> type[Message]:
    if name.startswith("_") or name not in blocks():
        raise AttributeError(f"the table knows no message {name!r}")
    made = make_class(schema(name))
    return globals().setdefault(name, made)  # type: ignore[no-any-return]


def __dir__() -> list[str]:
    return sorted(blocks())


def message_class(name: str) -> type[Message]:
    """The class of that name."""
    found = globals().get(name)
    return found if found is not None else __getattr__(name)
