"""`odradek pipeline`: runs data pipelines on Spark, and looks after those that run."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from odradek.cli.commands import Setting, fail, noun, setting
from odradek.cli.reach import BOOTSTRAP, Bootstrap, administer, run
from odradek.cli.screen import BAD, GOOD, PLAIN, WARNING, Cell, Json, Yes, confirm, show_json, show_table
from odradek.cli.texts import many

if TYPE_CHECKING:
    from odradek.client.admin import Admin

STATE = Path("odradek-pipelines")
STYLES = {"running": GOOD, "done": GOOD, "waiting": WARNING, "stopped": WARNING, "failed": BAD}
NEEDS = "pipelines need more than the broker does; install it with: pip install 'odradek[spark]'"

State = Annotated[Path, Option("--state", metavar="FOLDER", help="Where a driver keeps what it knows.")]
Name = Annotated[str, Argument(metavar="NAME", help="A pipeline, or one of its queries.")]

app = noun()


@app.command("run")
def run_pipelines(
    files: Annotated[list[Path], Argument(metavar="FILE...", help="Python files that declare pipelines.")],
    bootstrap: Bootstrap = BOOTSTRAP,
    state: State = STATE,
    checkpoints: Annotated[str | None, Option(metavar="URI", help="Where checkpoints are, if not in the state folder.")] = None,
    master: Annotated[str, Option(metavar="URL", envvar="ODRADEK_SPARK_MASTER", help="The Spark that does it.")] = "local[*]",
    conf: Annotated[
        list[Setting], Option("--conf", parser=setting, metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    ] = [],
    failures: Annotated[int, Option(min=1, help="How often a query may fail with nothing done in between.")] = 10,
    until_end: Annotated[bool, Option("--until-end", help="Do what there is, and stop then.")] = False,
) -> None:
    """Run pipelines until they are stopped.

    One driver runs all of them. A query that fails is started again, after a pause that doubles each time.
    """
    import os

    os.environ["ODRADEK_BOOTSTRAP"] = bootstrap
    try:
        from odradek.pipelines import control
        from odradek.pipelines.java import NoJava
        from odradek.pipelines.runner import Runner, load
        from odradek.pipelines.session import SparkEnded, choose, session
    except ModuleNotFoundError as error:
        fail(f"there is no module {error.name}: {NEEDS}")
    from odradek.client.errors import KafkaError

    where = checkpoints or str((state / "checkpoints").resolve())
    try:
        control.check(state)
        choose(master=master, settings=dict(conf), log=state / "spark.log")
        pipelines = load(files)
        say(f"starting Spark ({master}) for {', '.join(each.name for each in pipelines)}")
        spark = session()
        runner = Runner(pipelines, checkpoints=where, say=say, failures_max=failures, to_end=until_end)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: runner.stop())
        with control.serving(runner, state):
            is_well = runner.run()
    except (KafkaError, NoJava, SparkEnded) as error:
        fail(str(error))
    spark.stop()
    if not is_well:
        raise SystemExit(1)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@app.command("list")
def list_pipelines(state: State = STATE, json: Json = False) -> None:
    """List the pipelines that a driver runs."""
    tasks = asked(state, {"what": "list"})
    if json:
        show_json(tasks)
        return
    headings = ("pipeline", "output", "state", "batch", "in/s", "out/s", "ms", "lag", "restarts")
    show_table(headings, [row(task) for task in tasks], right=headings[3:])


def row(task: dict[str, Any]) -> tuple[object, ...]:
    last = task["batches"][-1] if task["batches"] else {}
    told = (
        last.get("batch", ""),
        *(f"{last[name]:,.0f}" if name in last else "" for name in ("in_per_second", "out_per_second", "duration_ms", "lag")),
    )
    return task["pipeline"], task["output"], Cell(task["state"], STYLES.get(task["state"], PLAIN)), *told, task["restarts"]


@app.command()
def describe(name: Name, state: State = STATE, json: Json = False) -> None:
    """Show what a pipeline reads, writes, and does.

    With its last batches, and the plan by which Spark does them.
    """
    tasks = asked(state, {"what": "describe", "name": name})
    if json:
        show_json(tasks)
        return
    for task in tasks:
        sink = task["sink"]
        print(f"{task['query']}: {task['state']}, {many(task['restarts'], 'restart')}")
        print(f"  reads {', '.join(task['sources'])} as group {task['group']}")
        print(f"  writes {sink['kind']} {sink['where'] or '(as rows say)'}, {sink['mode']} mode, {task['delivery']}")
        if task["dead_letters"]:
            print(f"  dead letters go to {task['dead_letters']}")
        print(f"  checkpoint {task['checkpoint']}")
        if task["error"]:
            print(f"  last error: {task['error']}")
        if task["batches"]:
            headings = ("batch", "rows_in", "rows_out", "duration_ms", "lag", "watermark", "state_rows")
            print()
            show_table(headings, [[each[key] or 0 for key in headings] for each in task["batches"]], right=headings)
        if task["plan"]:
            print(f"\n{task['plan'].strip()}\n")


@app.command()
def stop(name: Name, state: State = STATE) -> None:
    """Stop a pipeline, after the batch that it is at."""
    tasks = asked(state, {"what": "stop", "name": name})
    print(f"stopped {', '.join(task['query'] for task in tasks)}; `odradek pipeline restart {name}` goes on")


@app.command()
def restart(name: Name, state: State = STATE) -> None:
    """Start a pipeline that was stopped or given up.

    One that runs is stopped first, after the batch that it is at.
    """
    tasks = asked(state, {"what": "restart", "name": name})
    print(f"starting {', '.join(task['query'] for task in tasks)}")


@app.command()
def reset(
    name: Annotated[str, Argument(metavar="PIPELINE")],
    bootstrap: Bootstrap = BOOTSTRAP,
    state: State = STATE,
    yes: Yes = False,
) -> None:
    """Forget how far a pipeline is.

    It begins anew, and writes its results again. Shows first what will be deleted.
    """
    import shutil

    folder = state / "checkpoints" / name
    outputs = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    if not outputs:
        fail(f"there is no checkpoint of {name} in {state}; with --checkpoints of your own, delete what is below {name} there")
    running = [task for task in asked(state, {"what": "list"}, or_nobody=True) if task["pipeline"] == name]
    if any(task["state"] in ("running", "starting", "waiting") for task in running):
        fail(f"{name} is running; stop it first: odradek pipeline stop {name}")
    groups = [name if output == name else f"{name}.{output}" for output in outputs]
    rows = [(output, str(folder / output), group) for output, group in zip(outputs, groups)]
    show_table(("output", "checkpoint", "group"), rows)
    confirm(f"Delete these checkpoints and offsets? {name} will read from its beginning and write its results again.", yes=yes)

    async def work(admin: "Admin") -> None:
        there = await admin.list_groups()
        if found := [group for group in groups if group in there]:
            await admin.delete_groups(found)

    administer(bootstrap, work)
    shutil.rmtree(folder)
    print(f"{name} begins anew when it is run again")


@app.command("replay-dead-letters")
def replay_dead_letters(
    topic: Annotated[str, Argument(metavar="TOPIC", help="The topic of the dead letters.")],
    pipeline: Annotated[str | None, Option(help="Only those of this pipeline.")] = None,
    limit: Annotated[int | None, Option(min=1, help="So many at most.")] = None,
    bootstrap: Bootstrap = BOOTSTRAP,
) -> None:
    """Send dead letters to where they came from.

    Each once, however often this is done.
    """
    from odradek.pipelines.replay import Replayed, replay

    async def work() -> Replayed:
        return await replay(bootstrap, topic, pipeline=pipeline, limit=limit)

    found = run(work)
    rest = f", {found.skipped} left where they are" if found.skipped else ""
    print(f"{many(found.sent, 'record')} sent again{rest}")


def asked(state: Path, request: dict[str, Any], *, or_nobody: bool = False) -> list[dict[str, Any]]:
    from odradek.client.errors import KafkaError
    from odradek.pipelines.asking import NoDriver, ask

    try:
        return ask(state, request)
    except NoDriver as error:
        if or_nobody:
            return []
        fail(str(error))
    except KafkaError as error:
        fail(str(error))
