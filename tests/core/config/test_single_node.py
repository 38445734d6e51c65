"""A node needs nothing but a folder: what is chosen for it, both programs can start with."""

import shutil
from pathlib import Path

import pytest

from odradek.core.config.broker import BrokerConfig
from odradek.core.config.key import InvalidConfig
from odradek.core.config.properties import parse
from odradek.core.config.single_node import file_text, listening, parse_listen, single_node
from tests.kafka.broker import Broker
from tests.kafka.oracle import Oracle


@pytest.mark.parametrize(
    ("listen", "client", "advertised", "controller"),
    [
        ("127.0.0.1:9092", "127.0.0.1:9092", "127.0.0.1:9092", "127.0.0.1:19092"),
        ("[::1]:9092", "[::1]:9092", "[::1]:9092", "[::1]:19092"),
        ("0.0.0.0:9092", "0.0.0.0:9092", "here:9092", "127.0.0.1:19092"),
        (":9092", ":9092", "here:9092", "127.0.0.1:19092"),
        ("db-1.example:60000", "db-1.example:60000", "db-1.example:60000", "db-1.example:50000"),
        ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"),
    ],
)
def test_both_programs_take_what_was_chosen(oracle: Oracle, listen: str, client: str, advertised: str, controller: str) -> None:
    values = single_node("data", listening(*parse_listen(listen), "here"))
    assert parse(file_text(values)) == values
    assert values["listeners"] == f"PLAINTEXT://{client},CONTROLLER://{controller}"
    assert values["advertised.listeners"] == f"PLAINTEXT://{advertised},CONTROLLER://{controller}"
    assert BrokerConfig(values).warnings == ()
    assert oracle.call("Configs.broker", properties=values) is None


@pytest.mark.parametrize("listen", ["", "9092", "a:", "a:x", "a:65536", "::1:9092", "http://a:1", "a b:1"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(InvalidConfig, match="HOST:PORT"):
        parse_listen(listen)


def test_apache_kafka_starts_with_the_file(tmp_path: Path) -> None:
    kafka = Broker(tmp_path)
    shutil.rmtree(kafka.data)
    values = single_node(str(kafka.data), listening("127.0.0.1", kafka.port, "here"))
    kafka.data.mkdir()
    for folder in (tmp_path, kafka.data):  # in the data folder too, where `odradek start` has it
        (folder / "server.properties").write_text(file_text(values))
    properties = str(tmp_path / "server.properties")
    kafka.run_tool("kafka.tools.StorageTool", "format", "--standalone", "-t", "AAAAAAAAAAAAAAAAAAAAQQ", "-c", properties)
    with kafka.running():
        described = kafka.run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", kafka.bootstrap, "--list")
    assert described.strip() == ""
