"""What nodes tell each other is held against what is on their disks: each rule of that fails where it is broken."""

from collections.abc import Callable

import pytest

from odradek.core.metadata.image import MetadataImage
from odradek.core.raft.states import Follower
from odradek.log.names import FileKind
from odradek.wire.frames import encode_request, encode_response
from odradek.wire.messages import FetchRequest, VoteRequest, VoteResponse
from tests.log.medium import Write
from tests.sim.network import Direction, SimSocket
from tests.sim.structural.findings import Violated
from tests.sim.structural.promises import CONTROLLER_PORT, STORM_FETCHES
from tests.sim.test_structure import Broken

VERSIONS = {VoteRequest: 2, FetchRequest: 17}


@pytest.fixture
def broken() -> Broken:
    return Broken()


def said(broken: Broken, request: VoteRequest | FetchRequest, *, is_granted: bool = False) -> None:
    """A node that does not lead says it, or is asked for its vote and grants it."""
    sender = broken.cluster.members[broken.others()[0].node_id]
    assert sender.loop is not None
    network = broken.cluster.network
    ours = SimSocket(network, network.host(sender.host), sender.loop, (sender.host, CONTROLLER_PORT if is_granted else 40_000))
    theirs = SimSocket(network, network.host("elsewhere"), sender.loop, ("elsewhere", 50_000 if is_granted else CONTROLLER_PORT))
    ours.peer_address, ours.out = theirs.address, Direction(network, ours, theirs)
    if not is_granted:
        network.on_send(ours, b"".join(encode_request(request, VERSIONS[type(request)], 1, "")))  # type: ignore[arg-type]
        return
    assert isinstance(request, VoteRequest)
    partition = VoteResponse.PartitionData(vote_granted=True)
    response = VoteResponse(topics=[VoteResponse.TopicData(topic_name="__cluster_metadata", partitions=[partition])])
    broken.structure.promises._asked[ours] = {1: (VoteRequest.schema.key, 2, request)}
    network.on_send(ours, b"".join(encode_response(response, 2, 1)))  # type: ignore[arg-type]


def vote_for(broken: Broken, *, pre_vote: bool = False, epoch: int = 0, last: tuple[int, int] = (100, 0)) -> VoteRequest:
    voter = broken.others()[0].quorum
    asks = VoteRequest.PartitionData(
        replica_epoch=epoch or voter.epoch, replica_id=3, last_offset_epoch=last[0], last_offset=last[1], pre_vote=pre_vote
    )
    return VoteRequest(topics=[VoteRequest.TopicData(topic_name="__cluster_metadata", partitions=[asks])])


def disloyal(broken: Broken) -> None:
    said(broken, vote_for(broken, pre_vote=True), is_granted=True)


def vote_that_is_not_on_disk(broken: Broken) -> None:
    said(broken, vote_for(broken, epoch=9), is_granted=True)


def candidate_that_has_not_voted(broken: Broken) -> None:
    said(broken, vote_for(broken, epoch=9))


def second_vote(broken: Broken) -> None:
    voter = broken.others()[0].quorum
    broken.structure.promises.votes[voter.config.directory_id, voter.epoch] = 7
    said(broken, vote_for(broken), is_granted=True)


def vote_for_a_shorter_log(broken: Broken) -> None:
    leader = broken.leader()
    asks = vote_for(broken, last=(0, 3))
    asks.topics[0].partitions[0].replica_id = leader.node_id
    said(broken, asks, is_granted=True)


def fetch_from(broken: Broken) -> FetchRequest:
    epoch, end_offset = broken.others()[0].quorum.machine._quorum.last
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=end_offset, last_fetched_epoch=epoch)
    return FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=bytes(15) + b"\1", partitions=[partition])])


def fetch_of_what_is_not_synced(broken: Broken) -> None:
    node = broken.others()[0]
    file = broken.medium(node).node(node.quorum.log.active.path(FileKind.LOG))
    file.change(Write(len(file.content), b"not synced"), 0)
    said(broken, fetch_from(broken))


def fetch_that_knows_less(broken: Broken) -> None:
    said(broken, fetch_from(broken))
    broken.others()[0].quorum.machine._quorum.high_watermark -= 1
    said(broken, fetch_from(broken))


def storm(broken: Broken) -> None:
    for _ in range(STORM_FETCHES + 1):
        said(broken, fetch_from(broken))


def commit_of_earlier_epochs(broken: Broken) -> None:
    leader = broken.leader()
    leadership = leader.quorum.machine.leadership
    assert leadership is not None
    leadership.epoch_start = leadership.high_watermark + 100
    broken.cluster.world.run(broken.cluster.world.now_s + 1)


def beginning_with_nothing(broken: Broken) -> None:
    node, checks = broken.others()[0], broken.structure.quorum
    assert node.quorum.metadata_log.loaded is not None
    found, _ = node.quorum.metadata_log.loaded
    node.quorum.image.become(MetadataImage())
    node.quorum.image.offset = found.offset - 1
    checks.snapshots[found] = b"something else"
    broken.structure.promises.high_watermarks.clear()
    said(broken, fetch_from(broken))


PROMISES: dict[str, Callable[[Broken], None]] = {
    "hears from a leader in epoch .*, and grants a pre-vote": disloyal,
    "votes for 3 in epoch 9, and has synced": vote_that_is_not_on_disk,
    "votes for 3 in epoch 9, and": candidate_that_has_not_voted,
    "votes for 7 and for 3": second_vote,
    "with a log up to .* votes for node . with one up to": vote_for_a_shorter_log,
    "and has not synced it so far": fetch_of_what_is_not_synced,
    "knew that .* is committed, and knows": fetch_that_knows_less,
    "again and again": storm,
    "begins with an image that is not what its snapshot said": beginning_with_nothing,
    "is committed, and its epoch .* begins at": commit_of_earlier_epochs,
}


@pytest.mark.parametrize("what", PROMISES)
def test_what_nodes_must_not_tell_each_other_is_found(broken: Broken, what: str) -> None:
    PROMISES[what](broken)
    with pytest.raises(Violated, match=what):
        broken.structure.check()


def test_records_of_an_earlier_epoch_than_the_leaders_need_not_be_synced(broken: Broken) -> None:
    """Who looked for a leader has heard of it while it asked: the leader counts nothing before a record of its own epoch."""
    quorum = broken.others()[0].quorum.machine._quorum
    assert isinstance(quorum.state, Follower)
    quorum.state.epoch += 1
    fetch_of_what_is_not_synced(broken)
    assert not broken.structure.promises.wrong
