"""`odradek up`: a whole cluster on this machine, each node in a process of its own.

Invariants
 1. A node that ends without being asked is started again, after a pause that grows while it does not stay up.
 2. Whatever ends this program, signals included, stops the nodes first; all of them at once, because the last ones of a quorum
    could not leave in good order alone.
"""

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Annotated

from typer import Option

from odradek.cli.commands import complain, fail, verb
from odradek.cli.start import FILE, write
from odradek.cli.storage import configured

if TYPE_CHECKING:
    from odradek.core.config.broker import BrokerConfig

DATA = "odradek-cluster"
PORT = 9092
PORT_MAX = 65_535
NODES_MAX = 64
PAUSE_SECONDS_MIN = 0.2
PAUSE_SECONDS_MAX = 30.0
STAYED_UP_SECONDS = 10.0
STOP_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.05

SCREEN = """\
Odradek serves Kafka clients from {count} nodes.

{nodes}

  bootstrap.servers  {servers}

Ctrl-C stops all of them.
"""

app = verb()


class Node:
    """One process, and when it may be started again."""

    def __init__(self, number: int, folder: str, properties: str, address: str) -> None:
        self.number = number
        self.folder = folder
        self.properties = properties
        self.address = address
        self.process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0
        self.pause_s = PAUSE_SECONDS_MIN
        self.due_s: float | None = 0.0

    def start(self) -> None:
        with open(os.path.join(self.folder, "node.log"), "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "odradek", "start", "--config", self.properties],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C comes here, and the node hears of it from us
            )
        self.started_s, self.due_s = time.monotonic(), None

    def look(self) -> None:
        """Starts it when that is due, and notes when it has ended."""
        now_s = time.monotonic()
        if self.due_s is not None:
            if now_s >= self.due_s:
                self.start()
        elif self.process is not None and self.process.poll() is not None:
            has_stayed_up = now_s - self.started_s > STAYED_UP_SECONDS
            self.pause_s = PAUSE_SECONDS_MIN if has_stayed_up else min(2 * self.pause_s, PAUSE_SECONDS_MAX)
            self.due_s = now_s + self.pause_s
            complain(f"node {self.number} has ended ({ending(self.process.returncode)}) and is started again: {self.last_line()}")

    def last_line(self) -> str:
        with open(os.path.join(self.folder, "node.log"), "rb") as file:
            file.seek(max(os.path.getsize(file.name) - 4096, 0))
            lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"see {file.name}"

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


@app.command()
def up(
    nodes: Annotated[int, Option(metavar="N", min=1, max=NODES_MAX, help="How many nodes.")] = 3,
    data: Annotated[str, Option(metavar="FOLDER", help="Where each node has a folder.")] = DATA,
    port: Annotated[int, Option(metavar="PORT", min=1, max=PORT_MAX, help="Of the first node; others follow.")] = PORT,
) -> None:
    """Start several nodes on this machine, and serve until stopped.

    Each node has a folder with its data, its server.properties and what it says (node.log); a node that ends is
    started again.
    """
    cluster = prepare(os.path.abspath(data), nodes, port)
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: stopping.append(received))
    try:
        for node in cluster:
            node.start()
        lines = "\n".join(f"  node {node.number}  {node.address}  {node.folder}" for node in cluster)
        print(SCREEN.format(count=len(cluster), nodes=lines, servers=",".join(node.address for node in cluster)), flush=True)
        while not stopping:
            time.sleep(LOOK_SECONDS)
            for node in cluster:
                node.look()
    finally:
        stop(cluster)


def prepare(data: str, count: int, port: int) -> list[Node]:
    """The nodes; a new cluster is formatted, and one that is there has to be the one that is asked for."""
    from odradek.core.config.local_cluster import local_cluster

    folders = [os.path.join(data, f"node-{number}") for number in range(1, count + 1)]
    paths = [os.path.join(folder, FILE) for folder in folders]
    there = [path for path in paths if os.path.exists(path)]
    if not there:
        for path, settings in zip(paths, local_cluster(folders, port), strict=True):
            write(path, settings)
    elif len(there) < count or os.path.exists(os.path.join(data, f"node-{count + 1}")):
        found = sum(name.startswith("node-") for name in os.listdir(data))
        fail(f"{data} has a cluster of {found} nodes: start it with --nodes {found}, or another with --data FOLDER")
    configs = [configured(path) for path in paths]
    format_new(configs)
    nodes = []
    for number, (folder, path, config) in enumerate(zip(folders, paths, configs, strict=True), start=1):
        listener = config.advertised_broker_listeners[0]
        nodes.append(Node(number, folder, path, f"{listener.host}:{listener.port}"))
    return nodes


def format_new(configs: "list[BrokerConfig]") -> None:
    """Formats the folders of a new cluster: all of them get one id, and the same voters."""
    from odradek.core.controller.bootstrap import new_features
    from odradek.core.raft.voters import Voter, VoterSet
    from odradek.log.disk import RealDisk
    from odradek.log.meta_properties import META_PROPERTIES, read_meta_properties
    from odradek.node.format import AlreadyFormatted, format_folders, new_id
    from odradek.wire.ids import id_text

    metas = [read_meta_properties(RealDisk(), f"{config.metadata_log_dir}/{META_PROPERTIES}") for config in configs]
    if all(metas):
        return
    if any(metas):
        found = next(config.metadata_log_dir for config, meta in zip(configs, metas, strict=True) if meta is None)
        fail(f"{found} is not formatted, and folders beside it are: restore it, or begin anew with --data FOLDER")
    voters = [
        Voter(config.node_id, new_id(), ((listener.name, listener.host, listener.port),))
        for config in configs
        for listener in config.advertised_controller_listeners[: config.is_controller]
    ]
    cluster_id, now_ms = id_text(new_id()), time.time_ns() // 1_000_000
    try:
        for config in configs:
            format_folders(config, cluster_id=cluster_id, features=new_features(), voters=VoterSet(tuple(voters)), now_ms=now_ms)
    except (AlreadyFormatted, OSError) as error:
        fail(str(error))


def stop(nodes: list[Node]) -> None:
    for node in nodes:
        node.stop()
    deadline_s = time.monotonic() + STOP_SECONDS_MAX
    for node in nodes:
        if node.process is not None:
            try:
                node.process.wait(max(deadline_s - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                complain(f"node {node.number} does not stop and is ended; it loses nothing, and its next start takes longer")
                node.process.kill()


def ending(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
