"""`make chaos`: faults at random under clients at work, for as long as one likes, and a table of what was lost.

    python -m tests.cluster.chaos --seconds 600 --seed 7 [--only leader] [--layout apart] [--histories folder]

Every round has a topic and clients of its own. Clusters of several layouts take turns: of three nodes, of five, with controllers
that are nodes of their own; in some the links between the nodes go through this program and can be cut, in others nobody stands
between them. In the end all nodes stop, and the logs of all topics are compared. The exit status says whether all was well. A
seed gives the same faults; what they meet differs from run to run. The history of a round in which something was wrong is kept,
with all that the nodes said, and with `--histories` that of every round: `python -m tests.checker FILE` looks at it again.
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

from tests.cluster.checks import Stuck, Verdict, check_replicas, suffer
from tests.cluster.cluster import Cluster, running
from tests.cluster.faults import FAULTS, LINK_FAULTS, Fault
from tests.cluster.layout import Layout

ROUNDS_OF_A_CLUSTER: Final = 10
EXAMPLES_MAX: Final = 3
SHOWN: Final = (  # of what was checked
    "sends acknowledged",
    "records polled",
    "commits acknowledged",
    "topics looked for",
    "bank transactions",
)
LAYOUTS: Final = {
    "three": Layout(),
    "three with links": Layout(has_links=True),
    "apart": Layout(3, 0, 3),
    "apart with links": Layout(3, 0, 3, has_links=True),
    "five": Layout(5, 5),
    "five with links": Layout(5, 5, has_links=True),
}
SETTINGS: Final = {
    "replica_lag_time_max_ms": "10000",
    "offsets_topic_num_partitions": "3",
    "transaction_state_log_num_partitions": "3",
    "group_consumer_heartbeat_interval_ms": "500",
    "group_consumer_min_heartbeat_interval_ms": "500",
    "group_consumer_session_timeout_ms": "10000",
    "group_consumer_min_session_timeout_ms": "10000",
}
OF_FIVE: Final = {"default_replication_factor": "5", "min_insync_replicas": "3"}  # any two may be away


class Row(msgspec.Struct):
    """What became of all rounds of a fault."""

    times: int = 0
    checked: dict[str, int] = {}
    wrong: dict[str, int] = {}
    gap_s: float = 0.0
    stuck: int = 0

    def add(self, found: Verdict) -> None:
        self.gap_s = max(self.gap_s, found.gap_s)
        for what, count in found.report.checked.items():
            self.checked[what] = self.checked.get(what, 0) + count
        for what, examples in found.wrong.items():
            self.wrong[what] = self.wrong.get(what, 0) + len(examples)


class Campaign:
    def __init__(self, seconds: float, seed: int, only: str, histories: Path | None) -> None:
        self.end_s = time.monotonic() + seconds
        self.chance = random.Random(seed)
        self.only = only
        self.histories = histories
        self.table: dict[str, Row] = {}
        self.number = 0

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.end_s

    def run(self, layouts: list[str]) -> None:
        while not self.is_over:
            for name in layouts:
                layout = LAYOUTS[name]
                known = LINK_FAULTS if layout.has_links else FAULTS
                faults = {what: fault for what, fault in known.items() if self.only in what}
                if faults and not self.is_over:
                    self._cluster(name, layout, faults)

    def _cluster(self, name: str, layout: Layout, faults: dict[str, Fault]) -> None:
        more = OF_FIVE if layout.brokers == 5 else {}
        with tempfile.TemporaryDirectory() as folder, running(Path(folder), layout, **SETTINGS | more) as cluster:
            print(name, flush=True)
            topics: list[str] = []
            while len(topics) < ROUNDS_OF_A_CLUSTER and not self.is_over:
                if not self._round(cluster, *self.chance.choice(sorted(faults.items()))):
                    return
                topics.append(f"round-{self.number}")
            cluster.stop(*cluster.nodes)
            for topic in topics:
                check_replicas(cluster, topic)

    def _round(self, cluster: Cluster, name: str, fault: Fault) -> bool:
        """Whether the cluster can be used for another."""
        self.number += 1
        row = self.table.setdefault(name, Row())
        row.times += 1
        print(f"{self.number:4} {time.strftime('%H:%M:%S')} {name}", end="", flush=True)
        try:
            found = suffer(cluster, f"round-{self.number}", partial(fault, cluster, self.chance))
            stuck = ""
        except Stuck as error:
            row.stuck += 1
            found, stuck = error.found, str(error)
        except AssertionError as error:  # before its clients were at work
            row.stuck += 1
            print(f": {error}\n" + "\n".join(getattr(error, "__notes__", [])), flush=True)
            return False
        row.add(found)
        print(f": {stuck or 'done'}, {found.acknowledged} acknowledged, longest gap {found.gap_s:.1f} s", flush=True)
        for what, examples in found.wrong.items():
            print("\n".join(f"     {what}: {example}" for example in examples[:EXAMPLES_MAX]), flush=True)
        is_well = not (found.wrong or stuck)
        if self.histories or not is_well:
            print(f"     history: {self._keep(found, cluster, is_well=is_well)}", flush=True)
        return not stuck

    def _keep(self, found: Verdict, cluster: Cluster, *, is_well: bool) -> Path:
        self.histories = self.histories or Path(tempfile.mkdtemp(prefix="chaos-"))
        self.histories.mkdir(parents=True, exist_ok=True)
        path = self.histories / f"round-{self.number}.jsonl"
        found.history.write(path)
        for number in () if is_well else cluster.nodes:
            path.with_name(f"{path.stem}-node-{number}.log").write_text("\n".join(cluster.lines(number)))
        return path


def show(table: dict[str, Row]) -> bool:
    """Prints the table; whether all is well."""
    width = max(len(name) for name in table)
    print(
        f"\n{'fault':{width}} {'times':>6} "
        + " ".join(f"{column:>20}" for column in (*SHOWN, "violations", "stuck", "longest gap"))
    )
    for name, row in sorted(table.items()):
        cells = [*(row.checked.get(what, 0) for what in SHOWN), sum(row.wrong.values()), row.stuck, f"{row.gap_s:.1f} s"]
        print(f"{name:{width}} {row.times:6} " + " ".join(f"{cell!s:>20}" for cell in cells))
    for name, row in sorted(table.items()):
        for rule, count in row.wrong.items():
            print(f"{name}: {rule}, {count} times")
    return not any(row.stuck or row.wrong for row in table.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="Faults at random in clusters of several layouts.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", default="", help="faults with this in their name")
    parser.add_argument("--layout", action="append", choices=LAYOUTS, help="this one alone; may be given again")
    parser.add_argument("--histories", type=Path, help="a folder for the history of every round")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    campaign = Campaign(given.seconds, given.seed, given.only, given.histories)
    campaign.run(given.layout or [*LAYOUTS])
    return 0 if show(campaign.table) else 1


if __name__ == "__main__":
    sys.exit(main())
