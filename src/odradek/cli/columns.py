"""Rows of text in columns, written as they come.

Columns are as wide as the first rows need, and grow when later ones need more: nothing waits for the end of what may be large.
"""

from collections.abc import Callable, Sequence

ROWS_HELD = 200


class Columns:
    def __init__(self, write: Callable[[str], object]) -> None:
        self.write = write
        self.lines: list[Sequence[str]] = []
        self.widths: list[int] = []

    def begin(self, headings: Sequence[str]) -> None:
        """From here on rows have these columns."""
        self.flush()
        self.lines, self.widths = [headings], []

    def add(self, *rows: Sequence[str]) -> None:
        self.lines += rows
        if len(self.lines) > ROWS_HELD:
            self.flush()

    def flush(self) -> None:
        """Writes what is held."""
        if self.lines:
            needed = [max(map(len, column)) for column in zip(*self.lines)]
            self.widths = [max(pair) for pair in zip(needed, self.widths)] if self.widths else needed
            for line in self.lines:
                text = "  ".join([cell.ljust(width) for cell, width in zip(line, self.widths)])
                self.write(text.rstrip() + "\n")
            self.lines = []
