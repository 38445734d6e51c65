"""Who is in sync is looked at in the moment it matters: what a leader commits or proposes wrongly is found at once."""

import msgspec
import pytest

from odradek.core.metadata.topics import Topic
from odradek.core.partition.follower import Action, Step
from odradek.log.log import Log
from odradek.node.node import Node
from odradek.node.partition import Partition
from tests.sim.cluster import SimCluster
from tests.sim.mutants.replicas import positions_of_this_epoch
from tests.sim.steady import Client, steady_cluster, tell
from tests.sim.structural.findings import Violated
from tests.sim.structure import Structure

TOPIC = "t"
ANSWERED_SECONDS = 2.0  # by then the controller has answered


class Stage:
    """A cluster at peace that is looked at: one partition, its leader, and one of its followers."""

    def __init__(self) -> None:
        self.cluster: SimCluster = steady_cluster()
        self.structure = Structure(self.cluster)
        self.node, self.partition = self._led()
        self.follower, self.log = self._followed()

    def _led(self) -> tuple[Node, Partition]:
        nodes = self.cluster.nodes.values()
        return next((node, led[0]) for node in nodes if 0 in (led := node.partitions.by_name.get(TOPIC, {})))

    def _followed(self) -> tuple[Node, Log]:
        key = (self.partition.topic_id, 0)
        other = next(node for node in self.cluster.nodes.values() if node is not self.node)
        return other, other.partitions.replication.logs[other.partitions.replication.followers[key][0]]

    def commit(self) -> None:
        self.node.partitions.committed(self.partition)
        self.cluster.world.run(self.cluster.world.now_s + 0.000_001)

    def propose(self, *, without: tuple[int, ...] = ()) -> None:
        """That everybody is in sync, where some have not been."""
        leader = self.partition.leader
        isr = leader.isr
        leader.isr = tuple(broker for broker in isr if broker not in without)
        leader._propose(isr)
        self.node.partitions.isr_reports.changed(self.partition)
        self.cluster.world.run(self.cluster.world.now_s + 0.000_001)

    def lead_again(self) -> None:
        """As in metadata that tells nobody else who led in between."""
        topic = self.node.image.topics[TOPIC]
        state = topic.partitions[0]
        epochs = {"leader_epoch": state.leader_epoch + 2, "partition_epoch": state.partition_epoch + 2}
        self.node.partitions._take_role(Topic(TOPIC, topic.id, {0: msgspec.structs.replace(state, **epochs)}), 0)
        self.cluster.world.run(self.cluster.world.now_s + 0.000_001)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_all_have_may_be_committed_and_who_has_all_may_be_proposed(stage: Stage) -> None:
    stage.commit()
    stage.propose(without=(stage.follower.node_id,))

    async def produce(client: Client) -> None:
        await client.produce(TOPIC, 0, (b"k", b"v"))

    tell(stage.cluster, produce)
    assert stage.structure.partitions.in_sync.moves >= 2
    assert stage.structure.partitions.in_sync.proposals >= 1


def test_a_high_watermark_past_the_log_of_somebody_in_sync_is_found(stage: Stage) -> None:
    stage.log.end_offset = 1
    with pytest.raises(Violated, match=r"in leader epoch 0, and ends at 1 on node ., in sync"):
        stage.commit()


def test_also_of_somebody_whom_the_leader_does_not_know_to_be_in_sync_yet(stage: Stage) -> None:
    leader = stage.partition.leader
    leader.isr = leader.maximal_isr = tuple(broker for broker in leader.isr if broker != stage.follower.node_id)
    stage.log.end_offset = 1
    with pytest.raises(Violated, match=r"in leader epoch 0, and ends at 1 on node ., in sync"):
        stage.commit()


def test_a_high_watermark_that_moves_by_a_fetch_of_another_epoch_is_found(stage: Stage) -> None:
    stage.follower.partitions.replication.followers[stage.partition.topic_id, 0][0].leader_epoch -= 1
    with pytest.raises(Violated, match=r"in leader epoch 0, and node ., in sync, is in -1"):
        stage.commit()


def test_a_high_watermark_that_moves_with_too_few_in_sync_is_found(stage: Stage) -> None:
    stage.partition.leader.isr = (stage.node.node_id,)
    with pytest.raises(Violated, match=r"with \(.,\) in sync, and 2 needed"):
        stage.commit()


def test_who_was_fenced_is_not_proposed(stage: Stage) -> None:
    broker_id = stage.follower.node_id
    stage.node.image.brokers[broker_id] = msgspec.structs.replace(stage.node.image.brokers[broker_id], fenced=True)
    with pytest.raises(Violated, match="to be in sync, which is fenced"):
        stage.propose(without=(broker_id,))


def test_who_is_behind_is_not_proposed(stage: Stage) -> None:
    stage.log.end_offset = 1
    with pytest.raises(Violated, match="to be in sync, which ends at 1, where epoch 0 needs"):
        stage.propose(without=(stage.follower.node_id,))


def test_somebody_in_sync_by_the_metadata_who_has_not_what_was_committed_is_found(stage: Stage) -> None:
    stage.structure.partitions.in_sync.committed[stage.partition.topic_id, 0] = {0: 1000}
    with pytest.raises(Violated, match=r"was committed up to 1000, and ends at .*, in sync by the metadata"):
        stage.structure.check()


def test_somebody_in_sync_by_the_leader_who_has_not_what_is_committed_is_found(stage: Stage) -> None:
    stage.log.end_offset = 1
    with pytest.raises(Violated, match=r"in sync, and ends at 1 on node ."):
        stage.structure.partitions.check_in_sync(stage.cluster)


def test_unless_the_image_of_the_leader_has_it_out_of_sync_and_its_partition_is_yet_to_follow(stage: Stage) -> None:
    states = stage.node.image.topics[TOPIC].partitions
    isr = tuple(broker for broker in states[0].isr if broker != stage.follower.node_id)
    states[0] = msgspec.structs.replace(states[0], isr=isr, partition_epoch=states[0].partition_epoch + 1)
    stage.log.end_offset = 1
    stage.structure.partitions.check_in_sync(stage.cluster)


def test_nor_is_who_copies_its_log_anew_held_against_a_leader_that_has_not_heard_of_it(stage: Stage) -> None:
    image = stage.node.image
    for node in stage.cluster.nodes.values():
        if node is not stage.node:
            states = node.image.topics[TOPIC].partitions
            isr = tuple(broker for broker in states[0].isr if broker != stage.follower.node_id)
            states[0] = msgspec.structs.replace(states[0], isr=isr, partition_epoch=states[0].partition_epoch + 1)
            node.image.offset += 1
    assert stage.follower.node_id in image.topics[TOPIC].partitions[0].isr
    stage.log.end_offset = 1
    stage.follower.partitions.copied_anew[stage.partition.topic_id, 0] = None
    stage.structure.partitions.check_in_sync(stage.cluster)
    stage.structure.partitions.in_sync.check(stage.cluster)
    stage.commit()


def test_but_it_is_where_the_metadata_has_it_in_sync(stage: Stage) -> None:
    stage.log.end_offset = 1
    stage.follower.partitions.copied_anew[stage.partition.topic_id, 0] = None
    with pytest.raises(Violated, match=r"in leader epoch 0, and ends at 1 on node ., in sync"):
        stage.commit()


def test_a_cut_that_cuts_nothing_is_found(stage: Stage) -> None:
    parting = stage.structure.parting
    source = next(iter(stage.follower.partitions.replication.sources.values()))
    source._move(stage.log, Step(Action.TRUNCATE, stage.log.end_offset))
    assert parting.cuts == 1
    with pytest.raises(Violated, match=r"was cut to .*, and is no nearer to its leader's"):
        stage.cluster.world.run(stage.cluster.world.now_s + 0.000_001)
    stage.log.truncate_to(5, 0)
    parting.check(stage.log, (6, 1))


def test_who_is_in_sync_already_by_a_change_under_way_is_not_proposed_anew(stage: Stage) -> None:
    stage.partition.leader.partition_epoch -= 1
    with pytest.raises(Violated, match="to be in sync, which it is, by a change that is no longer waited for"):
        stage.propose(without=(stage.follower.node_id,))


def test_a_change_is_proposed_again_when_its_answer_was_lost(stage: Stage) -> None:
    leader = stage.partition.leader
    stage.propose(without=(stage.follower.node_id,))
    assert leader.change is not None
    leader.partition_epoch -= 1
    leader.unsent = leader.change
    stage.node.partitions.isr_reports.changed(stage.partition)
    stage.cluster.world.run(stage.cluster.world.now_s + ANSWERED_SECONDS)
    assert stage.structure.partitions.in_sync.proposals == 2


def test_a_leader_may_lead_again_and_know_nothing_of_its_followers(stage: Stage) -> None:
    stage.lead_again()
    assert stage.structure.partitions.in_sync.beginnings == 1


def test_what_is_known_of_followers_from_an_epoch_before_is_found(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    positions_of_this_epoch(monkeypatch)
    with pytest.raises(Violated, match=r"node . begins leader epoch 2 of t-0, and knows that node . ends at"):
        stage.lead_again()
