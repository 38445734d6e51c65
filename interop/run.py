"""Clients of other languages against a node of ours: python interop/run.py [CLIENT ...]

Needs Go and Node; what they need beyond that is installed. Each client is a program of its own under this folder, and its exit
status is the verdict. Building librdkafka for Node takes some minutes the first time.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.clients.server import serving

HERE = Path(__file__).parent
HEADERS = {  # what librdkafka is built with, by Debian package
    "libcurl4-openssl-dev": "curl/curl.h",
    "libsasl2-dev": "sasl/sasl.h",
    "libssl-dev": "openssl/ssl.h",
    "libzstd-dev": "zstd.h",
    "zlib1g-dev": "zlib.h",
}
INCLUDE = Path("/usr/include")


def go(client: str) -> Callable[[str], list[str]]:
    return lambda address: ["go", "run", ".", client, address]


def node(program: str) -> Callable[[str], list[str]]:
    return lambda address: ["node", f"{program}.js", address]


CLIENTS: dict[str, tuple[Path, Callable[[str], list[str]]]] = {
    "franz-go": (HERE / "go", go("franz")),
    "sarama": (HERE / "go", go("sarama")),
    "kafkajs": (HERE / "node", node("kafkajs")),
    "confluent": (HERE / "node", node("confluent")),
}


def install_node_clients() -> None:
    missing = [package for package, header in HEADERS.items() if not any(INCLUDE.glob(f"**/{header}"))]
    if missing:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", *missing], check=True)
    if not (HERE / "node" / "node_modules").exists():
        command = ["npm", "ci", "--silent", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=HERE / "node", check=True, env={**os.environ, "CKJS_LINKING": "dynamic"})


def main() -> int:
    wanted = sys.argv[1:] or list(CLIENTS)
    if any(CLIENTS[name][0].name == "node" for name in wanted):
        install_node_clients()
    failed = []
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        for name in wanted:
            path, command = CLIENTS[name]
            if subprocess.run(command(server.bootstrap), cwd=path, check=False).returncode:
                failed.append(name)
    print(f"{len(wanted) - len(failed)} passed, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
