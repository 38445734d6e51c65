"""`python -m tests.checker FILE...`: whether histories that were kept are as they should be. The exit status says so."""

import sys
from pathlib import Path

from tests.checker.check import check
from tests.checker.history import History


def main(files: list[str]) -> int:
    if not files:
        print("usage: python -m tests.checker FILE...   (a file is a history: one event a line)")
        return 2
    is_well = True
    for name in files:
        report = check(History.read(Path(name)))
        is_well &= report.is_well
        print(f"{name}\n{report}")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
