"""Profiles of faults: how many of each kind a minute of simulated time brings."""

from typing import Final

from tests.sim.faults import KINDS

LINKS: Final = {"slow links": 1.0, "connections lost": 1.0, "link cut one way": 1.5, "node cut off": 1.0, "network split": 0.5}
PROCESSES: Final = {"kill": 1.5, "kill of all": 0.2, "kill at a write": 0.7, "pause": 1.0, "clean stop": 0.7}
POWER: Final = {"power loss": 1.0, "power loss at a write": 0.7, "power loss of a busy disk": 0.3, "power loss, all kept": 0.5}
DISKS: Final = {"disk full": 0.7, "failed sync": 0.7, "slow disk": 1.0, "cold disk": 1.0}
ROT: Final = {"rot": 2.0, "rot at a start": 1.0}
ROT_OF_FILES: Final = {"rot of indexes": 1.0, "rot of snapshots": 0.5, "rot of a checkpoint": 2.0, "rot of the metadata": 1.0}
BAD_DISKS: Final = {"wrong reads": 1.0, "disk replaced": 1.0}
QUORUM: Final = {"leader cut off": 1.0, "nodes far apart": 0.7, "kill after a vote": 0.7, "kill at metadata": 0.5}
CLOCKS: Final = {"clock jump": 1.0}

FAULTS: Final[dict[str, dict[str, float]]] = {
    "none": {},
    "links": {name: 2 * rate for name, rate in LINKS.items()},
    "processes": {name: 2 * rate for name, rate in PROCESSES.items()},
    "power": {name: 2 * rate for name, rate in (POWER | {"kill": 1.0}).items()},
    "disks": {name: 2 * rate for name, rate in DISKS.items()},
    "failed syncs": {"failed sync": 8.0},
    "full disks": {"disk full": 6.0},
    "slow disks": {"slow disk": 8.0, "cold disk": 2.0},
    "busy disks": {"power loss of a busy disk": 8.0},
    "rot": {name: 3 * rate for name, rate in ROT.items()} | {"kill": 1.0, "clean stop": 1.0},
    "rot of files": {name: 2 * rate for name, rate in ROT_OF_FILES.items()} | {"kill": 1.0, "clean stop": 1.0},
    "bad disks": {name: 3 * rate for name, rate in BAD_DISKS.items()} | {"kill": 1.0, "clean stop": 1.0},
    "elections": {name: 6 * rate for name, rate in QUORUM.items()}
    | {"kill": 2.0, "pause": 1.0, "node cut off": 2.0, "link cut one way": 2.0, "slow disks": 2.0, "connections lost": 1.0},
    "metadata": {"kill at metadata": 8.0, "kill": 2.0, "node cut off": 4.0, "leader cut off": 2.0},
    "power at metadata": {"power loss at metadata": 8.0, "power loss": 2.0, "leader cut off": 4.0, "slow disks": 2.0},
    "clocks": {"clock jump": 15.0, "kill": 2.0, "clean stop": 1.0},
    "parted": {"slow links": 6.0, "link cut one way": 3.0, "node cut off": 2.0, "pause": 3.0, "kill": 2.0, "kill of all": 0.7},
    "slow links": {"slow links": 15.0},
    "late requests": {"deaf node": 5.0, "link cut one way": 4.0, "slow links": 3.0, "connections lost": 3.0},
    "late news": {"slow links": 15.0, "connections lost": 2.0, "pause": 3.0},
    "late news of crashes": {"slow links": 12.0, "crash loop": 8.0},
    "losses behind cuts": {"power loss": 1.0, "power loss behind a cut": 12.0, "clean stop": 1.0},
    "left with the past": {"kill of the others": 8.0},
    "all": LINKS
    | PROCESSES
    | POWER
    | DISKS
    | CLOCKS
    | {name: rate / 4 for name, rate in (ROT | ROT_OF_FILES | BAD_DISKS | QUORUM).items()},
}

assert all(name in KINDS for rates in FAULTS.values() for name in rates)
