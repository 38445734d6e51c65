"""`odradek start`: a node in the foreground, from one folder, with nothing to configure.

Invariants
 1. What goes wrong before the node serves is one line on stderr, and exit status 1.
 2. The file that a first start writes is never written again: it belongs to whoever edits it.
"""

import gc
import os
import sys
from typing import TYPE_CHECKING, Annotated

from typer import Option

from odradek.cli.commands import Setting, complain, fail, refuse, setting, verb

if TYPE_CHECKING:
    from odradek.core.config.broker import BrokerConfig

DATA = "odradek-data"
LISTEN = "127.0.0.1:9092"
FILE = "server.properties"

SCREEN = """\
Odradek serves Kafka clients.

  address   {address}
  data      {data}
  settings  {settings}

To try it, in another terminal:

  export ODRADEK_BOOTSTRAP={address}
  odradek topic create greetings
  echo 'hello' | odradek produce greetings
  odradek consume greetings --from-beginning

  kcat -b {address} -C -t greetings

  kafka-console-producer.sh --bootstrap-server {address} --topic greetings
  kafka-console-consumer.sh --bootstrap-server {address} --topic greetings --from-beginning

  from confluent_kafka import Producer
  producer = Producer({{"bootstrap.servers": "{address}"}})
  producer.produce("greetings", "hello")
  producer.flush()

Ctrl-C stops it.
"""

CONTROLLER_SCREEN = """\
Odradek is a controller of its cluster; clients connect to the brokers.

  data      {data}
  settings  {settings}

Ctrl-C stops it.
"""

app = verb()


@app.command()
def start(
    data: Annotated[
        str | None, Option(metavar="FOLDER", help="Where the data is, and the settings.", show_default=f"./{DATA}")
    ] = None,
    listen: Annotated[str | None, Option(metavar="HOST:PORT", help="Where clients connect.", show_default=LISTEN)] = None,
    config: Annotated[
        str | None, Option(metavar="FILE", help="A server.properties as Apache Kafka has it, instead of the folder's.")
    ] = None,
    settings: Annotated[
        list[Setting], Option("-o", metavar="KEY=VALUE", parser=setting, help="A setting that goes before that of the file.")
    ] = [],
) -> None:
    """Start a node, and serve until it is stopped.

    Without --config, one node is broker and controller at once; its settings are in server.properties in its
    folder, which the first start writes.
    """
    from odradek.core.config.broker import BrokerConfig
    from odradek.core.config.key import InvalidConfig

    if config is not None and data is not None:
        refuse("--data: with --config the folder is that of the file; set it with -o log.dirs=FOLDER")
    folder = data or DATA
    path = config or os.path.join(folder, FILE)
    is_first = config is None and not os.path.exists(path)
    try:
        values = first_settings(folder, listen or LISTEN) if is_first else read(path)
        broker = BrokerConfig(values | (where(listen) if listen else {}) | dict(settings))
    except InvalidConfig as error:
        fail(str(error))
    for warning in broker.warnings:
        complain(warning)
    if is_first:
        write(path, values)
    elif config is None:
        check_place(path, folder, values)
    serve(broker, path)


def serve(broker: "BrokerConfig", path: str) -> None:
    gc.disable()  # nothing of what a start makes is garbage: looking for it would take a tenth of the time
    from odradek.node.errors import StartFailed
    from odradek.node.node import run

    def ready() -> None:
        gc.freeze()  # and what a start made is looked through never again
        gc.enable()
        show(broker, path)

    try:
        run(broker, on_ready=ready)
    except StartFailed as error:
        fail(str(error))


def where(listen: str) -> dict[str, str]:
    """The keys that `--listen` sets."""
    from socket import gethostname

    from odradek.core.config.single_node import listening, parse_listen

    return listening(*parse_listen(listen), gethostname())


def first_settings(folder: str, listen: str) -> dict[str, str]:
    from odradek.core.config.single_node import single_node

    return single_node(os.path.abspath(folder), where(listen))


def check_place(path: str, folder: str, values: dict[str, str]) -> None:
    """A folder that was moved has its old place in its file: nobody wants an empty node there."""
    log_dirs = values.get("log.dirs", "")
    if log_dirs and "," not in log_dirs and not os.path.isdir(log_dirs):
        fail(f"{path}: log.dirs={log_dirs} does not exist; if the folder was moved, correct it to {os.path.abspath(folder)}")


def write(path: str, values: dict[str, str]) -> None:
    """All of it or nothing, so that a start that was interrupted leaves no half of a file."""
    from odradek.core.config.single_node import file_text

    unfinished = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(unfinished, "w", encoding="ascii") as file:
            file.write(file_text(values))
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished, path)
    except OSError as error:
        fail(f"{path}: cannot be written, {error.strerror or error}; choose a folder that you may write with --data")


def read(path: str) -> dict[str, str]:
    from odradek.core.config.properties import InvalidProperties, parse

    try:
        with open(path, encoding="utf-8", newline="") as file:
            return parse(file.read())
    except InvalidProperties as error:
        fail(f"{path}: {error}")
    except OSError as error:
        fail(f"{path}: cannot be read, {error.strerror or error}; name a server.properties with --config")
    except UnicodeDecodeError as error:
        fail(f"{path}: byte {error.start} is not UTF-8; write what is not ASCII as \\u and four hexadecimal digits")


def show(broker: "BrokerConfig", path: str) -> None:
    """One screen that says where the node is and what to try."""
    from odradek.core.config.single_node import bracketed

    listeners = broker.advertised_broker_listeners
    data, settings = ", ".join(map(os.path.abspath, broker.log_dirs)), os.path.abspath(path)
    if listeners:
        address = f"{bracketed(listeners[0].host)}:{listeners[0].port}"
        print(SCREEN.format(address=address, data=data, settings=settings))
    else:
        print(CONTROLLER_SCREEN.format(data=data, settings=settings))
    sys.stdout.flush()
