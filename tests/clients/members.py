"""Nodes of one cluster, each Apache Kafka's or ours, with one role each: what a quorum of both is made of.

Everybody gets the same settings and is formatted by the program that it runs, without the features that we do not serve yet.
"""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from odradek.log.disk import RealDisk
from odradek.log.meta_properties import META_PROPERTIES, read_meta_properties
from odradek.wire.batch import headers
from odradek.wire.ids import id_text
from odradek.wire.messages import DescribeQuorumRequest, DescribeQuorumResponse
from tests.clients.server import node_command
from tests.clients.waiting import until
from tests.cluster.layout import free_block
from tests.kafka.asking import ask
from tests.kafka.broker import CLUSTER_ID, Broker
from tests.kafka.dump import FAULTS, dump
from tests.kafka.oracle import Oracle
from tools.kafka_jars import class_path

TOOLS = "org.apache.kafka.tools"
QUORUM, TOPICS, FEATURES = f"{TOOLS}.MetadataQuorumCommand", f"{TOOLS}.TopicCommand", f"{TOOLS}.FeatureCommand"
NOT_SERVED = ("share.version", "streams.version")  # features that a cluster with us must not use yet
HEAP = ("-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
HAND_OVERS_MAX = 6  # of two that are as far, the one with the lower id is asked first to follow a leader that stops
BROKER_FIRST = 10  # node ids from here on are brokers, those below controllers

PROPERTIES = """\
process.roles={role}
node.id={node}
controller.listener.names=CONTROLLER
{quorum}
listeners={listener}://127.0.0.1:{port}
advertised.listeners={listener}://127.0.0.1:{port}
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.enable=false
metadata.log.max.record.bytes.between.snapshots=3000
"""


class Member(Broker):
    """One node; its only listener is that of its role."""

    def __init__(self, folder: Path, node_id: int, port: int, quorum: str, *, is_ours: bool, settings: dict[str, str]) -> None:
        folder.mkdir(parents=True)
        self.folder, self.data = folder, folder / "data"
        self.node_id, self.port, self.is_ours = node_id, port, is_ours
        self.process = None
        is_broker = node_id >= BROKER_FIRST
        role, listener = ("broker", "PLAINTEXT") if is_broker else ("controller", "CONTROLLER")
        text = PROPERTIES.format(role=role, node=node_id, quorum=quorum, listener=listener, port=port, data=self.data)
        more = [f"{key}={value}\n" for key, value in settings.items() if not is_broker]
        Path(self._properties).write_text(text + "".join(more))

    @property
    def properties(self) -> str:
        return self._properties

    @property
    def metadata(self) -> Path:
        return self.data / "__cluster_metadata-0"

    @property
    def directory_id(self) -> str:
        meta = read_meta_properties(RealDisk(), str(self.data / META_PROPERTIES))
        assert meta is not None
        assert meta.directory_id is not None
        return id_text(meta.directory_id.bytes)

    def _command(self) -> list[str]:
        return (
            node_command(self._properties)
            if self.is_ours
            else ["java", *HEAP, "-cp", class_path(), "kafka.Kafka", self._properties]
        )

    def format_by(self, oracle: Oracle, *voters: str) -> None:
        arguments = ["format", *voters, "-t", CLUSTER_ID, "-c", self._properties]
        if self.is_ours:
            program = node_command(self._properties)[0]
            subprocess.run([program, "storage", *arguments], check=True, capture_output=True)
            return
        arguments += [word for name in NOT_SERVED for word in ("--feature", f"{name}=0")]
        answer = oracle.call("Tools.run", tool="kafka.tools.StorageTool", arguments=arguments, given="")
        assert answer["status"] == 0, answer["printed"]

    @property
    def log_start(self) -> int:
        """Where its metadata log begins."""
        return min(int(path.stem) for path in self.metadata.glob("*.log"))

    @property
    def snapshot_offset(self) -> int:
        """Up to where its newest snapshot goes."""
        return max((int(path.name.partition("-")[0]) for path in self.metadata.glob("*.checkpoint")), default=0)

    def batches(self, end_offset: int) -> dict[int, bytes]:
        """The batches of its metadata log below an offset, by base offset."""
        found = {}
        for path in sorted(self.metadata.glob("*.log")):
            data = path.read_bytes()
            for position, header in headers(data):
                if header.last_offset < end_offset:
                    found[header.base_offset] = data[position : position + header.size]
        return found


class Standing(NamedTuple):
    """Of the quorum."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: set[int]
    observers: set[int]


def describe_quorum(member: Member) -> DescribeQuorumResponse.PartitionData:
    topic = DescribeQuorumRequest.TopicData(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    answer = ask(member.port, DescribeQuorumRequest(topics=[topic]), 2, DescribeQuorumResponse)
    return answer.topics[0].partitions[0]


class Members:
    """The cluster. Voters stand in the log, or with `static` in the settings. `settings` are added to those of controllers."""

    def __init__(
        self,
        folder: Path,
        oracle: Oracle,
        ours: set[int],
        theirs: set[int],
        *,
        static: bool = False,
        settings: dict[str, str] | None = None,
    ) -> None:
        ids = sorted(ours | theirs)
        first = free_block(len(ids))
        ports = {node_id: first + at for at, node_id in enumerate(ids)}
        controllers = [node_id for node_id in ids if node_id < BROKER_FIRST]
        if static:
            quorum = "controller.quorum.voters=" + ",".join(f"{each}@127.0.0.1:{ports[each]}" for each in controllers)
        else:
            quorum = "controller.quorum.bootstrap.servers=" + ",".join(f"127.0.0.1:{ports[each]}" for each in controllers)
        self.oracle = oracle
        self.members = {
            each: Member(folder / str(each), each, ports[each], quorum, is_ours=each in ours, settings=settings or {})
            for each in ids
        }

    def __getitem__(self, node_id: int) -> Member:
        return self.members[node_id]

    @property
    def brokers(self) -> str:
        return ",".join(each.bootstrap for each in self.members.values() if each.node_id >= BROKER_FIRST)

    @property
    def running_controllers(self) -> list[Member]:
        return [each for each in self.members.values() if each.process is not None and each.node_id < BROKER_FIRST]

    def call(self, tool: str, *arguments: str, by: int | None = None) -> tuple[int, str]:
        """Exit status and output of a tool of Kafka's that asks the brokers, or one controller."""
        self.standing()  # who asks before there is a leader does not ask again for a long time
        controllers = ",".join(each.bootstrap for each in self.running_controllers if by in (None, each.node_id))
        at = ["--bootstrap-server", self.brokers] if by is None and self.brokers else ["--bootstrap-controller", controllers]
        answer = self.oracle.call("Tools.run", tool=tool, arguments=[*at, *arguments], given="")
        return answer["status"], answer["printed"]

    def run(self, tool: str, *arguments: str, by: int | None = None) -> str:
        """What a tool printed that has to succeed."""
        status, printed = self.call(tool, *arguments, by=by)
        assert status == 0, printed + self.output()
        return printed

    def output(self) -> str:
        return "\n".join(
            f"-- {each.node_id}\n{each.output()[-4000:]}" for each in self.members.values() if each.process is not None
        )

    # -- the quorum

    def standing(self) -> Standing:
        """As the leader tells it, as soon as there is one that has committed something."""

        def look() -> Standing | None:
            for member in self.running_controllers:
                found = describe_quorum(member)
                if found.error_code == 0 and found.high_watermark >= 0:
                    voters, observers = ({each.replica_id for each in some} for some in (found.current_voters, found.observers))
                    return Standing(found.leader_id, found.leader_epoch, found.high_watermark, voters, observers)
            return None

        found = until(look, "the quorum stands")
        assert found is not None
        return found

    def check_told(self) -> None:
        """Kafka's tool tells the same of the quorum, whomever it asks."""
        for by in (None, *(each.node_id for each in self.running_controllers)):
            told = dict(re.findall(r"(\w+):\s+(\S.*)", self.run(QUORUM, "describe", "--status", by=by)))
            voters, observers = (re.findall(r'"id": (\d+)', told[key]) for key in ("CurrentVoters", "CurrentObservers"))
            leader_id, epoch, high_watermark = (int(told[key]) for key in ("LeaderId", "LeaderEpoch", "HighWatermark"))
            now = self.standing()
            assert (leader_id, epoch, set(map(int, voters)), set(map(int, observers))) == (
                now.leader_id,
                now.epoch,
                now.voters,
                now.observers,
            )
            assert 0 < high_watermark <= now.high_watermark

    def add_voter(self, node_id: int, by: int | None = None) -> None:
        """It is added when it has caught up; until then the leader says that it has not."""
        arguments = ["--command-config", self.members[node_id].properties, "add-controller"]
        until(lambda: f"Added controller {node_id} " in self.call(QUORUM, *arguments, by=by)[1], f"node {node_id} votes")

    def remove_voter(self, node_id: int) -> None:
        directory_id = self.members[node_id].directory_id
        self.run(QUORUM, "remove-controller", "--controller-id", str(node_id), "--controller-directory-id", directory_id)

    def hand_over(self, node_id: int) -> Standing:
        """Stops whoever leads, and starts it again, until another node leads."""
        for _ in range(HAND_OVERS_MAX):
            before = self.standing()
            if before.leader_id == node_id:
                return before
            leader = self.members[before.leader_id]
            leader.stop()
            assert self.standing().epoch > before.epoch
            leader.start()
        raise AssertionError(f"node {node_id} was never elected: {self.output()}")

    def check_logs(self) -> None:
        """All have the same bytes of the metadata log below the high watermark, and Kafka's tool reads them."""
        end_offset = self.standing().high_watermark
        running = [each for each in self.members.values() if each.process is not None]
        logs = {each.node_id: until(lambda each=each: self._whole(each, end_offset), "the log") for each in running}  # type: ignore[misc]
        for one in logs.values():
            for other in logs.values():
                shared = one.keys() & other.keys()
                assert shared
                first = max(min(one), min(other))
                assert shared == {offset for offset in one.keys() | other.keys() if offset >= first}
                assert all(one[offset] == other[offset] for offset in shared)
        for each in running:
            files = [str(path) for path in sorted(each.metadata.iterdir()) if path.name.endswith((".log", ".checkpoint"))]
            printed = dump(self.oracle, "--cluster-metadata-decoder", "--files", ",".join(files))
            assert not [line for line in printed.splitlines() if any(fault in line for fault in FAULTS)]

    def _whole(self, member: Member, end_offset: int) -> dict[int, bytes]:
        """Its log up to an offset, when it has that."""
        found = member.batches(end_offset)
        last = max(found, default=-1)
        return found if last >= 0 and next(headers(found[last]))[1].last_offset == end_offset - 1 else {}

    # -- lives

    def start(self, *node_ids: int) -> None:
        """All at once."""
        for node_id in node_ids:
            self.members[node_id].spawn()
        for node_id in node_ids:
            self.members[node_id].listens()

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            for each in reversed(self.members.values()):
                each.stop(signal.SIGKILL)
