"""The house is tidy: what the style asks for and a machine can see."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
LONG_FUNCTIONS = {"scan", "unpack"}  # decoding written out, because a call costs more than the work
BANNED_NAMES = re.compile(r"(manager|utils?|helpers?|impl)(_|$)", re.IGNORECASE)
BANNED_WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "--cached", pattern], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split() if (ROOT / name).exists()]


def sources() -> list[Path]:
    return tracked("*.py")


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_short_says_what_it_is_and_leaves_nothing_undone(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    if path.name != "__init__.py":
        assert ast.get_docstring(tree), "a file opens with what it is"
    assert text.count("\n") <= MODULE_LINES_MAX
    assert not BANNED_NAMES.search(path.stem)
    if path != Path(__file__):
        assert not BANNED_WORDS.search(text)
    for function in functions(tree):
        lines = (function.end_lineno or 0) - function.lineno + 1
        assert lines <= FUNCTION_LINES_MAX or function.name in LONG_FUNCTIONS, f"{function.name} has {lines} lines"
        assert not BANNED_NAMES.search(function.name), function.name


@pytest.mark.parametrize("path", tracked("src/*.py"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_product_prints_only_in_its_commands(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    printing = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"]
    assert not printing or "cli" in path.parts


def test_every_module_is_used() -> None:
    """A file that nothing imports is dead."""
    texts = {path: path.read_text() for path in sources()}
    for path in tracked("src/odradek/*.py"):
        if path.name in ("__init__.py", "__main__.py"):
            continue
        module = path.stem
        others = [text for other, text in texts.items() if other != path]
        assert any(re.search(rf"\b{module}\b", text) for text in others), f"nobody uses {path.relative_to(ROOT)}"


def test_files_name_no_registry_and_no_folder_of_a_machine() -> None:
    places = re.compile(r"(?<![\w.])/(root|home/[a-z]+)/|index-url|registry\+http")
    for path in tracked("*"):
        if path != Path(__file__) and path.suffix in (".py", ".toml", ".lock", ".md", ".txt", ".in", ".java", ""):
            assert not places.search(path.read_text()), path.relative_to(ROOT)
