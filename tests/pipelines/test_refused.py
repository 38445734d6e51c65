"""What cannot be meant is refused, with what to do: before anything runs, or, where it takes Spark to see, once and for all."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from odradek.client.errors import InvalidOption
from odradek.pipelines import Pipeline, java
from odradek.pipelines.java import NoJava
from odradek.pipelines.records import records
from odradek.pipelines.runner import check, load
from tests.cli.program import odradek

JAVA = """#!/bin/sh
echo 'openjdk version "{version}" 2021-04-20' >&2
"""


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Pipeline("no spaces"), "name='no spaces': it has letters"),
        (lambda: Pipeline("p", delivery="twice"), "delivery='twice': it is exactly-once or at-least-once"),  # type: ignore[arg-type]
        (lambda: Pipeline("p", bad_records="a b"), "bad_records='a b': it is fail, drop, or the topic"),
        (lambda: Pipeline("p").topic(), "a topic is named, or found by a pattern"),
        (lambda: Pipeline("p").topic("t", pattern="t.*"), "a topic is named, or found by a pattern"),
        (lambda: Pipeline("p").topic("t", key="int"), "key='int': it is string or binary"),
        (lambda: Pipeline("p").to_topic("t", emit="all"), "emit='all': it is final or changes"),  # type: ignore[arg-type]
        (lambda: Pipeline("p").to_topic()(lambda: None), "an output of p is called <lambda>; give it a name"),  # type: ignore[arg-type, return-value]
        (lambda: check([]), "no pipeline is declared"),
        (lambda: check([Pipeline("p")]), "pipeline p writes nothing: @to_topic"),
        (lambda: load(["nowhere.py"]), "there is no file nowhere.py"),
    ],
)
def test_what_is_declared_wrongly_is_refused_where_it_is_declared(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        make()


def test_two_outputs_have_two_names() -> None:
    pipeline = Pipeline("p")
    pipeline.to_topic("t")(pipeline.topic("s").alias)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="p has two outputs t; give one of them another name, with name="):
        pipeline.to_topic("t")(pipeline.topic("s").alias)  # type: ignore[arg-type]


def test_two_files_do_not_declare_one_pipeline_both(tmp_path: Path) -> None:
    program = """
from odradek.pipelines import Pipeline
p = Pipeline("twice")
p.to_topic("t")(lambda: p.topic("s"))
"""
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(program)
    with pytest.raises(InvalidOption, match=r"there are two queries twice\.t"):
        load([tmp_path / "one.py", tmp_path / "two.py"])


def test_rows_that_are_no_records_are_refused(spark: SparkSession) -> None:
    frame = spark.range(1)
    for key, topic, more, said in (
        (None, "t", {"value": F.lit(1)}, "value is int: cast it to string, or give it another name"),
        ("nobody", "t", {}, "key='nobody': there is no such column; there are id"),
        (["id", "nobody"], "t", {}, "key='nobody': there is no such column"),
        (None, None, {}, "name the topic, or give rows a column topic"),
    ):
        chosen = frame.withColumns(more).drop("id") if more else frame
        with pytest.raises(InvalidOption, match=said):
            records(chosen, key, topic=topic)
    with pytest.raises(InvalidOption, match="a table has a key"):
        records(frame, None, topic="t", is_table=True)
    with pytest.raises(InvalidOption, match="there is no column to write"):
        records(frame.select(F.lit(b"").alias("_key")), None, topic="t")


# -- Java


def installed(folder: Path, version: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(JAVA.format(version=version))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.mark.parametrize(("version", "number"), [("1.8.0_292", 8), ("11.0.2", 11), ("16", 16)])
def test_a_java_that_is_too_old_is_named_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, number: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed(tmp_path, version)))
    with pytest.raises(
        NoJava, match=rf"bin/java is Java {number}: Spark needs 17 or newer; install .* or point JAVA_HOME to one"
    ):
        java.check()


def test_a_java_that_is_new_enough_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(installed(tmp_path, "21.0.1")))
    assert java.check() == f"{tmp_path}/bin/java"


@pytest.mark.parametrize("program", [*java.COMMANDS])
def test_where_there_is_no_java_one_line_has_the_command_of_this_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    (tmp_path / program).write_text("#!/bin/sh\n")
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(NoJava) as error:
        java.check()
    assert "there is no java: pipelines run on Spark, which needs Java 17 or newer" in str(error.value)
    assert str(error.value).endswith(java.COMMANDS[program])


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "from odradek.pipelines import Pipeline\np = Pipeline('p')\np.to_topic('t')(lambda: p.topic('s'))\n"
    )
    for home, said in (
        (str(tmp_path / "nowhere"), "nowhere/bin/java, where JAVA_HOME points"),
        (str(installed(tmp_path, "11")), "Java 11"),
    ):
        done = odradek("pipeline", "run", str(tmp_path / "p.py"), "--state", str(tmp_path / "state"), JAVA_HOME=home)
        assert done.returncode == 1
        (begun, line) = done.stderr.splitlines()
        assert begun == "starting Spark (local[*]) for p"
        assert said in line
        assert "install" in line


def test_looking_at_commands_needs_no_spark() -> None:
    program = (
        "import sys\nfrom odradek.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'pyspark', 'pyarrow', 'numpy'} & set(sys.modules), 'imported'\n"
    )
    for arguments in (["--help"], ["pipeline", "--help"], ["pipeline", "run", "--help"], ["pipeline", "list"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, cwd=os.sep
        )
        assert done.returncode == 0, done.stderr
