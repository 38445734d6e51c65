"""A short campaign of simulated clusters, with seeds that stay and with some that are new each time. `make sim` is the long one.

A fresh seed that fails is in the message, as the command that tells it again.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.sim.campaign import Given, campaign, chosen, quietly, seeds
from tests.sim.kept import Kept
from tests.sim.run import Result, Setting

SHARE = 0.2  # of the time that a run has in a campaign
LOOKS_MIN = 6  # at the structure
FIXED = range(1, 9)
FRESH = 4
FAULTS_MIN = 8
HASH_SEEDS = ("1", "2")
SAME = Setting(seed=5, nodes=3, seconds=10.0)
PROFILES = ("mixed", "library")  # clients of the simulator, and those of this house


def judged(setting: Setting) -> Result:
    result = quietly(setting)
    assert not result.wrong, "\n".join((f"make sim {setting}", *result.wrong))
    assert result.checked["sends"] > 0
    assert result.looks >= LOOKS_MIN
    return result


def shortened(seed: int) -> Setting:
    setting = chosen(seed, Given())
    return replace(setting, seconds=SHARE * setting.seconds)


@pytest.mark.parametrize("seed", FIXED)
def test_a_cluster_keeps_its_promises_through_the_faults_of_a_seed(seed: int) -> None:
    judged(shortened(seed))


@pytest.mark.parametrize("number", range(FRESH))
def test_a_cluster_keeps_its_promises_through_faults_that_nobody_has_seen(number: int) -> None:
    del number
    judged(shortened(random.SystemRandom().randrange(1_000_000, 1_000_000_000)))


def test_many_kinds_of_faults_come_in_a_run() -> None:
    assert len(judged(Setting(seed=3, nodes=3, faults="all", seconds=120.0)).faults) >= FAULTS_MIN


@pytest.mark.parametrize("profile", PROFILES)
def test_one_seed_is_one_run_whatever_the_process_hashes_by(profile: str) -> None:
    digests = []
    for hash_seed in HASH_SEEDS:
        command = [sys.executable, "-m", "tests.sim.campaign", "--digest", "--seed", str(SAME.seed), "--nodes", str(SAME.nodes)]
        command += ["--profile", profile, "--faults", SAME.faults, "--seconds", str(SAME.seconds)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        digests.append(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert digests[0] == digests[1]
    assert len(digests[0]) > len("sha256")


def test_seeds_are_a_number_of_them_or_a_range() -> None:
    assert list(seeds("3")) == [1, 2, 3]
    assert list(seeds("5-6")) == [5, 6]


def test_a_campaign_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    first, second = (Setting(seed=seed, nodes=1, faults="none", seconds=1.0) for seed in (1, 2))
    Kept(path).add(quietly(first))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    figures = campaign([first, second], 1, Kept(path))
    assert (figures.runs, figures.wrong) == (2, [])
    assert 0 < figures.simulated_now_s < figures.simulated_s
    assert [result.setting for result in Kept(path).results] == [first, second]


def test_a_result_of_other_code_does_not_count(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "kept")
    kept.code = "another"
    kept.add(Result(SAME))
    assert Kept(kept.path).results == []
