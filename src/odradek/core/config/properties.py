"""Java's .properties text: the form of a server.properties file.

Invariants
 1. `parse` reads what java.util.Properties reads, with the same result.
 2. `parse(write(values)) == values`, and java.util.Properties reads it the same.
"""

import re
from collections.abc import Mapping
from typing import Final

BLANKS: Final = " \t\f"
ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
NAMED: Final = {value: "\\" + name for name, value in ESCAPES.items()}
KEY_MARKS: Final = "\\ =:#!"
ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
KEY_END: Final = re.compile(r"(?:\\.|[^\\ \t\f=:])*", re.DOTALL)
SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
SURROGATES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
LINE_END: Final = re.compile(r"\r\n|\n|\r")


class InvalidProperties(Exception):
    """A text that is not in the .properties form: says which line."""


def parse(text: str) -> dict[str, str]:
    """Keys and values; the last value of a key that stands twice."""
    values: dict[str, str] = {}
    for number, line in logical_lines(text):
        end = KEY_END.match(line)
        assert end is not None
        separator = SEPARATOR.match(line, end.end())
        assert separator is not None
        values[unescape(line[: end.end()], number)] = unescape(line[separator.end() :], number)
    return values


def logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines that say something, each with the number of its first natural line; a backslash at the end of one joins the next."""
    lines: list[tuple[int, str]] = []
    joined, first, continues = "", 0, False
    natural = LINE_END.split(text)
    if not natural[-1] and not text.endswith("\r\n"):
        natural.pop()  # no line begins after the last end of one; but Java sees one after these two
    for number, line in enumerate(natural, 1):
        line = line.lstrip(BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continues = False
            continue
        first = first if joined else number
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if continues:
            joined += line[:-1]
            continue
        lines.append((first, joined + line))
        joined = ""
    if continues:
        lines.append((first, joined))
    return lines


def unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def one(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise InvalidProperties(f"line {number}: \\u needs four hexadecimal digits after it")
        return ESCAPES.get(match[2], match[2])

    return SURROGATES.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), ESCAPED.sub(one, text))


def write(values: Mapping[str, str]) -> str:
    """A line for each value; what has a meaning in its place, and what is not plain ASCII, is escaped."""
    return "".join(f"{escape(key, KEY_MARKS)}={escape_value(value)}\n" for key, value in values.items())


def escape_value(value: str) -> str:
    rest = value.lstrip(" ")
    return "\\ " * (len(value) - len(rest)) + escape(rest, "\\")


def escape(text: str, marks: str) -> str:
    parts = []
    for character in text:
        if character in NAMED:
            parts.append(NAMED[character])
        elif character in marks:
            parts.append("\\" + character)
        elif " " <= character <= "~":
            parts.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            parts += [f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)]
    return "".join(parts)
