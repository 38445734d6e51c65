"""Kafka's own command-line tools, as somebody who administers a cluster uses them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.clients.confluent import consuming, create, fill, rows
from tests.clients.server import IS_KAFKA
from tests.clients.waiting import until
from tests.kafka.broker import Broker
from tests.kafka.dump import check_dump, dump
from tests.kafka.oracle import Oracle

TOOLS = "org.apache.kafka.tools"
TOPICS, GROUPS = f"{TOOLS}.TopicCommand", f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"


class Shell:
    """Runs tools against one server."""

    def __init__(self, oracle: Oracle, server: Broker) -> None:
        self.oracle = oracle
        self.server = server

    def run(self, tool: str, *arguments: str, given: str = "", status: int = 0) -> str:
        """What it printed."""
        at = ["--bootstrap-server", self.server.bootstrap]
        answer = self.oracle.call("Tools.run", tool=tool, arguments=[*at, *arguments], given=given)
        printed: str = answer["printed"]
        assert answer["status"] == status, printed
        return printed


@pytest.fixture
def shell(oracle: Oracle, server: Broker) -> Shell:
    return Shell(oracle, server)


def test_topics(shell: Shell, name: str) -> None:
    created = shell.run(TOPICS, "--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=1000")
    assert f"Created topic {name}." in created
    assert "already exists" in shell.run(TOPICS, "--create", "--topic", name, status=1)
    assert name in shell.run(TOPICS, "--list").splitlines()
    shell.run(TOPICS, "--alter", "--topic", name, "--partitions", "5")
    described = shell.run(TOPICS, "--describe", "--topic", name)
    assert re.search(r"PartitionCount: 5\s+ReplicationFactor: 1\s+Configs:.*retention\.ms=1000", described)
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 5
    assert name not in shell.run(TOPICS, "--describe", "--unavailable-partitions")
    shell.run(TOPICS, "--delete", "--topic", name)
    until(lambda: name not in shell.run(TOPICS, "--list").splitlines(), "the deletion")
    assert "does not exist" in shell.run(TOPICS, "--describe", "--topic", name, status=1)


def test_configurations(shell: Shell, name: str) -> None:
    create(shell.server.bootstrap, name)
    of_topic = ["--entity-type", "topics", "--entity-name", name]
    shell.run(CONFIGS, "--alter", *of_topic, "--add-config", "retention.ms=7,cleanup.policy=[compact,delete]")
    described = shell.run(CONFIGS, "--describe", *of_topic)
    assert "retention.ms=7 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7}" in described
    assert "cleanup.policy=compact,delete" in described
    shell.run(CONFIGS, "--alter", *of_topic, "--delete-config", "retention.ms")
    assert "retention.ms=7" not in shell.run(CONFIGS, "--describe", *of_topic)
    assert "segment.bytes=1073741824" in shell.run(CONFIGS, "--describe", "--all", *of_topic)
    assert "Invalid" in shell.run(CONFIGS, "--alter", *of_topic, "--add-config", "retention.ms=soon", status=1)
    of_broker = ["--entity-type", "brokers", "--entity-name", "1"]
    shell.run(CONFIGS, "--alter", *of_broker, "--add-config", "log.cleaner.threads=2")
    until(lambda: "log.cleaner.threads=2" in shell.run(CONFIGS, "--describe", *of_broker), "the broker's configuration")
    shell.run(CONFIGS, "--alter", *of_broker, "--delete-config", "log.cleaner.threads")


def test_levels_of_loggers(shell: Shell) -> None:
    of_loggers = ["--entity-type", "broker-loggers", "--entity-name", "1"]
    before = re.findall(r"\broot=(\w+) sensitive=false", shell.run(CONFIGS, "--describe", *of_loggers))
    shell.run(CONFIGS, "--alter", *of_loggers, "--add-config", "root=FATAL")
    described = shell.run(CONFIGS, "--describe", *of_loggers)
    assert re.search(r"root=FATAL sensitive=false synonyms=\{\}", described)
    assert "InvalidRequestException" in shell.run(CONFIGS, "--alter", *of_loggers, "--delete-config", "root", status=1)
    assert "Invalid broker logger" in shell.run(CONFIGS, "--alter", *of_loggers, "--add-config", "none=INFO", status=1)
    name = "org.apache.kafka.server.logger.LoggingController" if IS_KAFKA else "odradek.connection"
    shell.run(CONFIGS, "--alter", *of_loggers, "--add-config", f"{name}=DEBUG")
    assert f"{name}=DEBUG" in shell.run(CONFIGS, "--describe", *of_loggers)
    shell.run(CONFIGS, "--alter", *of_loggers, "--delete-config", name)
    assert f"{name}=FATAL" in shell.run(CONFIGS, "--describe", *of_loggers)
    shell.run(CONFIGS, "--alter", *of_loggers, "--add-config", f"root={before[0]}")


def test_groups(shell: Shell, name: str) -> None:
    bootstrap = shell.server.bootstrap
    create(bootstrap, name, 2)
    fill(bootstrap, name, 10)
    of_group = ["--group", name]
    with consuming(bootstrap, name, client_id="reader") as consumer:
        consumer.subscribe([name])
        rows(consumer, 4)
        consumer.commit(asynchronous=False)
        described = shell.run(GROUPS, "--describe", *of_group)
        assert re.search(rf"{name}\s+{name}\s+0\s+4\s+10\s+6\s+reader-\S+\s+/127.0.0.1\s+reader", described)
        assert re.search(
            rf"{name}\s+127.0.0.1:\d+\s+\(1\)\s+range\s+Stable\s+.*1", shell.run(GROUPS, "--describe", *of_group, "--state")
        )
        assert re.search(r"reader-\S+\s+/127.0.0.1\s+reader\s+2", shell.run(GROUPS, "--describe", *of_group, "--members"))
        assert "Error" in shell.run(GROUPS, "--delete", *of_group, status=0)
    assert re.search(rf"{name}\s+Empty", shell.run(GROUPS, "--list", "--state"))
    reset = ["--reset-offsets", *of_group, "--topic", name, "--execute"]
    for how, offset in ((["--to-earliest"], 0), (["--to-latest"], 10), (["--to-offset", "3"], 3), (["--shift-by", "2"], 5)):
        assert re.search(rf"{name}\s+{name}\s+0\s+{offset}\b", shell.run(GROUPS, *reset, *how))
    assert re.search(rf"{name}\s+{name}\s+0\s+5\s+10\s+5", shell.run(GROUPS, "--describe", *of_group))
    assert "Successful" in shell.run(GROUPS, "--delete-offsets", *of_group, "--topic", f"{name}:0")
    assert "successful" in shell.run(GROUPS, "--delete", *of_group)
    assert name not in shell.run(GROUPS, "--list").splitlines()


def test_console_producer_and_consumer(shell: Shell, name: str) -> None:
    create(shell.server.bootstrap, name)
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    shell.run(f"{TOOLS}.ConsoleProducer", "--topic", name, *keyed, "--compression-codec", "zstd", given="a:1\nb:2\nc:3\n")
    read = ["--topic", name, "--from-beginning", "--max-messages", "3", "--formatter-property", "print.key=true"]
    printed = shell.run(f"{TOOLS}.consumer.ConsoleConsumer", *read, "--formatter-property", "print.offset=true")
    assert [line for line in printed.splitlines() if "Offset" in line] == ["Offset:0\ta\t1", "Offset:1\tb\t2", "Offset:2\tc\t3"]


def test_offsets_and_deleted_records(shell: Shell, name: str, tmp_path: Path) -> None:
    create(shell.server.bootstrap, name, 2)
    fill(shell.server.bootstrap, name, 10, partition=1)
    offsets = ["--topic", name]
    assert shell.run(f"{TOOLS}.GetOffsetShell", *offsets).splitlines() == [f"{name}:0:0", f"{name}:1:10"]
    wanted = tmp_path / "records.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 1, "offset": 6}]}))
    deleted = shell.run(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f"partition: {name}-1\tlow_watermark: 6" in deleted
    assert shell.run(f"{TOOLS}.GetOffsetShell", *offsets, "--time", "earliest").splitlines() == [f"{name}:0:0", f"{name}:1:6"]


def test_the_cluster(shell: Shell, name: str) -> None:
    server = shell.server
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 10)
    folders = shell.run(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", name)
    (broker,) = json.loads(folders.splitlines()[-1])["brokers"]
    (folder,) = broker["logDirs"]
    assert (folder["logDir"], folder["error"]) == (str(server.data), None)
    assert [(each["partition"], each["offsetLag"], each["isFuture"]) for each in folder["partitions"]] == [
        (f"{name}-0", 0, False)
    ]
    quorum = shell.run(f"{TOOLS}.MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"LeaderId:\s+1\b", quorum)
    assert re.search(
        r"1\s+\S{22}\s+\d+\s+0\s+\d+\s+\d+\s+Leader", shell.run(f"{TOOLS}.MetadataQuorumCommand", "describe", "--replication")
    )
    features = shell.run(f"{TOOLS}.FeatureCommand", "describe")
    levels = r"SupportedMinVersion: 3.3-IV3\s+SupportedMaxVersion: 4.3-IV0\s+FinalizedVersionLevel: 4.3-IV0"
    assert re.search(rf"Feature: metadata.version\s+{levels}", features)
    assert re.search(r"Feature: kraft.version\s+.*FinalizedVersionLevel: 1", features)
    elected = shell.run(f"{TOOLS}.LeaderElectionCommand", "--election-type", "preferred", "--topic", name, "--partition", "0")
    assert f"Valid replica already elected for partitions {name}-0" in elected
    versions = shell.run(f"{TOOLS}.BrokerApiVersionsCommand")
    assert f"127.0.0.1:{server.port} (id: 1 rack: null isFenced: false) -> (" in versions
    assert re.search(r"Fetch\(1\): 4 to 18", versions)


def test_the_id_of_the_cluster(oracle: Oracle, server: Broker) -> None:
    answer = oracle.call(
        "Tools.run", tool=f"{TOOLS}.ClusterTool", arguments=["cluster-id", "--bootstrap-server", server.bootstrap]
    )
    assert re.fullmatch(r"Cluster ID: \S{22}\n", answer["printed"])


def verifiable(server: Broker, role: str, *arguments: str) -> list[dict[str, Any]]:
    """What the producer or the consumer of Kafka's system tests told. It tells the end in a hook, so it has its own process."""
    printed = server.run_tool(f"{TOOLS}.Verifiable{role}", "--bootstrap-server", server.bootstrap, *arguments)
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def test_verifiable_producer_and_consumer(shell: Shell, name: str) -> None:
    create(shell.server.bootstrap, name, 3)
    told = verifiable(shell.server, "Producer", "--topic", name, "--max-messages", "500", "--acks", "-1")
    assert sum(each["name"] == "producer_send_success" for each in told) == 500
    assert not [each for each in told if each["name"] == "producer_send_error"]
    read = ["--topic", name, "--group-id", name, "--max-messages", "500", "--reset-policy", "earliest"]
    told = verifiable(shell.server, "Consumer", *read)
    assert sum(each["count"] for each in told if each["name"] == "records_consumed") == 500
    assert all(each["success"] for each in told if each["name"] == "offsets_committed")
    assert "partitions_assigned" in {each["name"] for each in told}


def test_the_producer_of_performance_tests(shell: Shell, name: str) -> None:
    create(shell.server.bootstrap, name)
    load = ["--topic", name, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"]
    assert "20000 records sent" in shell.run(f"{TOOLS}.ProducerPerformance", *load, "--command-property", "acks=all")
    assert shell.run(f"{TOOLS}.GetOffsetShell", "--topic", name).splitlines() == [f"{name}:0:20000"]


def test_files_are_dumped_while_they_are_written(oracle: Oracle, shell: Shell, name: str) -> None:
    create(shell.server.bootstrap, name, index_interval_bytes="200")
    for codec in ("none", "gzip", "lz4"):
        fill(shell.server.bootstrap, name, 100, compression_type=codec, batch_num_messages=10)
    folder = shell.server.data / f"{name}-0"
    printed = dump(oracle, "--deep-iteration", "--print-data-log", "--files", str(folder / f"{0:020}.log"))
    assert len(re.findall(r"payload: \d+", printed)) == 300
    assert printed.count("isvalid: true") > 3
    if not IS_KAFKA:  # whose indexes have room behind their entries while they are open
        check_dump(oracle, folder)
