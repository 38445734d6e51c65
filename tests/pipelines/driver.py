"""`odradek pipeline run`, in a process of its own."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from odradek.pipelines.asking import NoDriver, ask
from tests.cli.program import command, odradek
from tests.clients.waiting import until
from tests.spark.session import QUICK_JAVA

SECONDS_MAX = 240
QUICK = f"spark.driver.extraJavaOptions={QUICK_JAVA}"
REPOSITORY = Path(__file__).parents[2]
PATHS = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])  # for Spark's Python workers


class Driver:
    def __init__(self, folder: Path, bootstrap: str, *arguments: str, **environment: str) -> None:
        """Files that it is given are in the folder, and its state is there."""
        self.folder, self.bootstrap = folder, bootstrap
        self.state = folder / "state"
        self.screen = folder / "screen.txt"
        self.environment: dict[str, Any] = {"PYTHONPATH": PATHS, "ODRADEK_BOOTSTRAP": bootstrap, **environment}
        with self.screen.open("wb") as said:
            self.process = subprocess.Popen(
                command("pipeline", "run", *arguments, "--state", str(self.state)),
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **self.environment},
            )

    def said(self) -> str:
        return self.screen.read_text(encoding="utf-8")

    def wait_for(self, text: str) -> None:
        def is_there() -> bool:
            assert text in self.said() or self.process.poll() is None, self.said()
            return text in self.said()

        until(is_there, f"{text!r} on the screen of the driver", SECONDS_MAX)

    def tasks(self) -> dict[str, dict[str, Any]]:
        """What it says of its queries; nothing, while it does not serve yet."""
        try:
            return {task["query"]: task for task in ask(self.state, {"what": "list"})}
        except NoDriver:
            return {}

    def ask(self, *arguments: str, is_refused: bool = False) -> str:
        """What a command says on the screen, or, where it is refused, in its one line of complaint."""
        done = odradek("pipeline", *arguments, "--state", str(self.state), **self.environment)
        assert done.returncode == is_refused, (done.stdout, done.stderr, self.said())
        assert done.stderr.count("\n") == is_refused, done.stderr
        return done.stderr if is_refused else done.stdout

    def stop(self) -> int:
        """The status that it ends with."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(SECONDS_MAX)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
