"""The table of all keys: reads keys.txt, which explains its own notation.

Invariants
 1. Nothing is read at import; the text is read and cut into blocks once; a key is parsed when it is first asked for.
 2. The order of a section is that of the text, which is alphabetical.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, cast

from odradek.core.config.key import Key, Mode, Type

BROKER: Final = "broker"
TOPIC: Final = "topic"
GROUP: Final = "group"
CLIENT_METRICS: Final = "client-metrics"
DOCUMENTATION_INDENT: Final = "    "


class Keys(Mapping[str, Key]):
    """The keys of one section by name."""

    def __init__(self, blocks: dict[str, str]) -> None:
        self.blocks = blocks
        self.parsed: dict[str, Key] = {}

    def __getitem__(self, name: str) -> Key:
        key = self.parsed.get(name)
        if key is None:
            key = self.parsed[name] = parse_key(self.blocks[name])
        return key

    def __contains__(self, name: object) -> bool:
        return name in self.blocks

    def __iter__(self) -> Iterator[str]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)


def broker_keys() -> Keys:
    return sections()[BROKER]


def topic_keys() -> Keys:
    return sections()[TOPIC]


def group_keys() -> Keys:
    return sections()[GROUP]


def client_metrics_keys() -> Keys:
    return sections()[CLIENT_METRICS]


@cache
def sections() -> dict[str, Keys]:
    folder = __file__.rpartition("/")[0]
    with open(f"{folder}/keys.txt", encoding="utf-8") as file:
        text = file.read()
    return {name: Keys(blocks) for name, blocks in map(cut, text.split("\n## ")[1:])}


def cut(section: str) -> tuple[str, dict[str, str]]:
    """The name of a section, and each key's lines by its name."""
    name, _, lines = section.partition("\n")
    blocks: dict[str, str] = {}
    key = ""
    for line in lines.split("\n"):
        if line.startswith(DOCUMENTATION_INDENT):
            blocks[key] += "\n" + line
        elif line:
            key = line.partition(" ")[0]
            blocks[key] = line
    return name, blocks


def parse_key(block: str) -> Key:
    line, _, documentation = block.partition("\n")
    name, type_, default, *rest = line.split("  ")
    validity = [word for word in rest if word not in WORDS and not word.startswith("<- ")]
    modes = [cast("Mode", word) for word in rest if word in ("per-broker", "cluster-wide")]
    synonyms = [word.removeprefix("<- ").split(" ") for word in rest if word.startswith("<- ")]
    assert len(validity) <= 1, line
    return Key(
        name,
        cast("Type", type_),
        None if default in ("null", "required") else "" if default == '""' else default,
        default == "required",
        validity[0] if validity else "",
        modes[0] if modes else "read-only",
        "internal" in rest,
        "dynamic only" in rest,
        tuple(synonyms[0]) if synonyms else (),
        documentation.strip(),
    )


WORDS: Final = ("per-broker", "cluster-wide", "internal", "dynamic only")
