"""Apache Kafka's DumpLogSegments as a judge of our files."""

from pathlib import Path

from tests.kafka.oracle import Oracle

FAULTS = (
    "Mismatches in",
    "Found timestamp mismatch",
    "Found out of order timestamp",
    "not found in log",
    "isvalid: false",
    "invalid message bytes",
)
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def dump(oracle: Oracle, *arguments: str) -> str:
    printed: str = oracle.call("Tools.dump", arguments=list(arguments))
    return printed


def check_dump(oracle: Oracle, folder: Path) -> str:
    """Dumps every file of a partition's folder with deep iteration and checks of the indexes; gives what was printed."""
    files = sorted(str(path) for path in folder.iterdir() if path.name.endswith(SUFFIXES))
    printed = dump(oracle, "--deep-iteration", "--files", ",".join(files))
    dump(oracle, "--index-sanity-check", "--files", ",".join(name for name in files if name.endswith("index")))
    faults = [line for line in printed.splitlines() if any(fault in line for fault in FAULTS)]
    assert not faults, "\n".join(faults)
    return printed
