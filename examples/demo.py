"""Shows a pipeline live: orders come in, totals for each customer and minute come out, in a topic and as Parquet.

    python examples/demo.py [SECONDS]

Starts a node, a generator of orders whose clock is twenty times as fast as ours, and the pipeline of order_totals.py, all in a
folder of their own, and stops them again after so many seconds of results (15).
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from odradek import Admin, Consumer
from odradek.client.admin import NewTopic
from odradek.client.errors import KafkaError

HERE = Path(__file__).parent
WAIT_SECONDS = 90.0


def free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


async def until_it_serves(address: str) -> None:
    end_s = time.monotonic() + WAIT_SECONDS
    async with Admin(address) as admin:
        while True:
            try:
                await admin.create_topics(
                    [NewTopic("orders", partitions=2), NewTopic("order-totals", partitions=1)], timeout_ms=1_000
                )
                return
            except KafkaError:
                if time.monotonic() > end_s:
                    raise


async def show_totals(address: str, seconds: float) -> int:
    """Totals as they come, for so long after the first; how many there were."""
    count, end_s = 0, time.monotonic() + WAIT_SECONDS
    async with Consumer("order-totals", bootstrap=address) as consumer:
        while time.monotonic() < end_s:
            for record in await consumer.poll(timeout_ms=200):
                if not count:
                    end_s = time.monotonic() + seconds
                    print(f"\n{'minute':18}{'customer':10}{'orders':>8}{'total':>12}")
                count += 1
                found = json.loads(record.value or b"{}")
                minute = found["window"]["start"][:16].replace("T", " ")
                print(f"{minute:18}{found['customer']:10}{found['orders']:8}{found['total']:12,.2f}", flush=True)
    return count


def main(seconds: float = 15) -> None:
    with tempfile.TemporaryDirectory(prefix="odradek-demo-") as folder:
        address = free_address()
        environment = {**os.environ, "ODRADEK_BOOTSTRAP": address}
        odradek = [sys.executable, "-m", "odradek"]
        commands = {
            f"odradek start --listen {address}": [*odradek, "start", "--data", f"{folder}/data", "--listen", address],
            "python send_orders.py 200 20": [sys.executable, str(HERE / "send_orders.py"), "200", "20"],
            "odradek pipeline run order_totals.py": [*odradek, "pipeline", "run", str(HERE / "order_totals.py")],
        }
        running: list[subprocess.Popen[bytes]] = []
        try:
            for said, command in commands.items():
                print("$", said, flush=True)
                silence = None if running else subprocess.DEVNULL  # of the node
                running.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=silence))
                if len(running) == 1:
                    asyncio.run(until_it_serves(address))
            count = asyncio.run(show_totals(address, seconds))
            subprocess.run([*odradek, "group", "describe", "order-totals"], env=environment, check=False)
        finally:
            for process in reversed(running):
                process.send_signal(signal.SIGINT)
                process.wait()
        if not count:
            sys.exit("no totals came: what the pipeline says above tells why")
        show_files(f"{folder}/order-totals.parquet")


def show_files(path: str) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    print(f"\n{table.num_rows} rows as Parquet in {path}, the largest totals:")
    for row in table.sort_by([("total", "descending")]).slice(0, 3).to_pylist():
        print(f"  {row['start']:%Y-%m-%d %H:%M}  {row['customer']:10}{row['orders']:6}{row['total']:12,.2f}")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
