"""Results that are kept, so that a campaign of many hours can be ended and gone on with.

Invariants
 1. A result counts only for the code that it is of: the nodes, the simulator and the checker, byte for byte.
 2. A file that ends within a line, because its campaign was killed there, is as good as one that ends before it.
"""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from tests.sim.run import Result

ROOT: Final = Path(__file__).parents[2]
CODE: Final = ("src/odradek", "tests/checker", "tests/log", "tests/sim")


class Line(msgspec.Struct):
    code: str
    result: Result


def code_digest() -> str:
    """Of everything that a run may depend on."""
    found = hashlib.sha256()
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".txt"):
                found.update(f"{path.relative_to(ROOT)} {path.stat().st_size} ".encode())
                found.update(path.read_bytes())
    return found.hexdigest()


class Kept:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.code = code_digest()
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        decode = msgspec.json.Decoder(Line).decode
        self.results = [line.result for line in map(decode, lines[:-1]) if line.code == self.code]
        if lines and lines[-1]:
            path.write_bytes(b"\n".join([*lines[:-1], b""]))

    def add(self, result: Result) -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(Line(self.code, result)) + b"\n")
