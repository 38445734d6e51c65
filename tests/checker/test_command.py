"""The checker as a program of its own: it looks at files, and knows nothing of the product."""

import ast
import sys
from pathlib import Path
from random import Random

import pytest

from tests.checker.__main__ import main
from tests.checker.check import check
from tests.checker.model import Cluster
from tests.checker.notation import story
from tests.checker.report import RULES


def test_a_file_with_a_right_history_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "right.jsonl"
    Cluster(Random(1)).run(100).write(path)
    assert main([str(path)]) == 0
    assert "no violation" in capsys.readouterr().out


def test_a_file_with_a_lost_record_says_which_and_who_was_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.jsonl"
    story("p send a > 0\n f final").write(path)
    assert main([str(path)]) == 1
    said = capsys.readouterr().out
    assert "lost_write, 1 times" in said
    assert "'a' at offset 0 of t-0, acknowledged to p, is gone" in said
    assert "SendEnded(" in said


def test_without_a_file_it_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().out


def test_what_was_looked_at_is_counted() -> None:
    report = check(story("p send a > 0\n r assigned 0\n r polls a@0\n m commits 1 > ok\n w sees 1\n f final a@0"))
    wanted = {"sends acknowledged": 1, "records polled": 1, "commits acknowledged": 1, "committed offsets seen": 1}
    assert wanted.items() <= report.checked.items()
    assert report.checked["partitions read to the end"] == 1


def test_every_rule_has_a_history_that_breaks_it() -> None:
    folder = Path(__file__).parent
    texts = "".join(path.read_text() for path in sorted(folder.glob("test_*.py")) if path != Path(__file__))
    assert [rule for rule in RULES if rule not in texts] == []


def test_the_checker_stands_alone() -> None:
    """What judges the product must not share its mistakes: of its modules it imports none."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                root = name.split(".")[0]
                assert name.startswith("tests.checker") or root in {*sys.stdlib_module_names, "hypothesis", "msgspec", "pytest"}
