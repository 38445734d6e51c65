"""`make chaos`: faults at random under clients at work, for as long as one likes, and a table of what was lost.

    python -m tests.cluster.chaos --seconds 600 --seed 7 [--only leader]

Every round has a topic and clients of its own, two clusters take turns: in one the links between the nodes go through this
program and can be cut, in the other nobody stands between them. In the end all nodes stop, and the logs of all topics are
compared. The exit status says whether all was well. A seed gives the same faults; what they meet differs from run to run.
"""

import argparse
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from tests.cluster.checks import Verdict, check_replicas, suffer
from tests.cluster.cluster import NODES, running
from tests.cluster.faults import FAULTS, LINK_FAULTS

ROUNDS_OF_A_CLUSTER: Final = 12
EXAMPLES_MAX: Final = 3
SETTINGS: Final = {"replica_lag_time_max_ms": "10000"}
COLUMNS: Final = ("acknowledged", "lost", "twice", "out of order", "two values", "went back", "stuck", "longest gap")


class Row(msgspec.Struct):
    """What became of all rounds of a fault."""

    times: int = 0
    counts: dict[str, int] = {}
    gap_s: float = 0.0
    stuck: int = 0

    def add(self, found: Verdict) -> None:
        self.gap_s = max(self.gap_s, found.gap_s)
        for column in COLUMNS[:6]:
            value = getattr(found, column.replace(" ", "_"))
            self.counts[column] = self.counts.get(column, 0) + (value if isinstance(value, int) else len(value))


def campaign(seconds: float, seed: int, only: str) -> dict[str, Row]:
    chance = random.Random(seed)
    table: dict[str, Row] = {}
    end_s = time.monotonic() + seconds
    has_links = False
    number = 0
    while time.monotonic() < end_s:
        faults = {name: fault for name, fault in (LINK_FAULTS if has_links else FAULTS).items() if only in name}
        with tempfile.TemporaryDirectory() as folder, running(Path(folder), NODES, has_links, **SETTINGS) as cluster:
            topics = []
            for _ in range(ROUNDS_OF_A_CLUSTER if faults else 0):
                name = chance.choice(sorted(faults))
                number += 1
                row = table.setdefault(name, Row())
                row.times += 1
                print(f"{number:4} {name}", end="", flush=True)
                try:
                    found = suffer(cluster, f"round-{number}", partial(faults[name], cluster, chance))
                except AssertionError as error:  # it did not come back: the next round needs another cluster
                    row.stuck += 1
                    print(f": {error}\n" + "\n".join(getattr(error, "__notes__", [])), flush=True)
                    break
                row.add(found)
                topics.append(f"round-{number}")
                print(f": {found.acknowledged} acknowledged, longest gap {found.gap_s:.1f} s", flush=True)
                show_wrong(found)
                if time.monotonic() > end_s:
                    break
            else:
                cluster.stop(*cluster.nodes)
                for topic in topics:
                    check_replicas(cluster, topic)
        has_links = not has_links
    return table


def show_wrong(found: Verdict) -> None:
    for column in COLUMNS[1:6]:
        for example in getattr(found, column.replace(" ", "_"))[:EXAMPLES_MAX]:
            print(f"     {column}: {example}", flush=True)


def show(table: dict[str, Row]) -> bool:
    """Prints the table; whether all is well."""
    width = max(len(name) for name in table)
    print(f"\n{'fault':{width}} {'times':>6} " + " ".join(f"{column:>12}" for column in COLUMNS))
    for name, row in sorted(table.items()):
        cells = [str(row.counts.get(column, 0)) for column in COLUMNS[:6]] + [str(row.stuck), f"{row.gap_s:.1f} s"]
        print(f"{name:{width}} {row.times:6} " + " ".join(f"{cell:>12}" for cell in cells))
    return not any(row.stuck or any(row.counts.get(column) for column in COLUMNS[1:6]) for row in table.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults at random in a cluster of three.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", default="", help="faults with this in their name")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    return 0 if show(campaign(given.seconds, given.seed, given.only)) else 1


if __name__ == "__main__":
    sys.exit(main())
