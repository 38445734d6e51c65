"""A program that writes exactly once is killed, and its workers, and brokers: nothing is missing, and nothing is there twice.

`python -m tests.spark.kills` does this for longer, by chance."""

from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.spark.kills import hold, trial

SEED = 5


def test_nothing_is_missing_and_nothing_is_there_twice_whoever_is_killed(three: Cluster, tmp_path: Path) -> None:
    with trial(three, tmp_path, SEED) as found:
        hold(found, ["driver", "worker", "broker", "python"])
        assert found.program.starts >= 3
