"""Controllers of ours and of Apache Kafka's in one metadata quorum: whoever leads, the others vote, follow and take over.

The cluster is Kafka's at first, a controller and a broker; another controller of Kafka's and one of ours come to it. Each
scenario begins where the one before it ended.
"""

import signal
from collections.abc import Iterator

import pytest

from tests.clients.confluent import consuming, fill, rows
from tests.clients.members import TOPICS, Members
from tests.clients.waiting import until
from tests.kafka.oracle import Oracle

OURS, KAFKA, OTHER_KAFKA = 1, 2, 3
CONTROLLERS = {OURS, KAFKA, OTHER_KAFKA}
BROKER = 11


@pytest.fixture(scope="module")
def quorum(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    members = Members(tmp_path_factory.mktemp("quorum"), oracle, {OURS}, {KAFKA, OTHER_KAFKA, BROKER})
    members[KAFKA].format_by(oracle, "--standalone")
    for node_id in (OURS, OTHER_KAFKA):
        members[node_id].format_by(oracle, "--no-initial-controllers")
    members[BROKER].format_by(oracle)
    with members.running():
        members.start(KAFKA, BROKER)
        yield members


def check_agreement(quorum: Members) -> None:
    """Everybody tells the same of the quorum, and has the same log."""
    assert (quorum.standing().voters, quorum.standing().observers) == (CONTROLLERS, {BROKER})
    quorum.check_told()
    quorum.check_logs()


def use(quorum: Members, topic: str) -> None:
    """A topic of many partitions is made, led by the broker, written and read."""
    quorum.run(TOPICS, "--create", "--topic", topic, "--partitions", "20")
    sent = fill(quorum.brokers, topic, 10)
    with consuming(quorum.brokers, topic) as consumer:
        consumer.subscribe([topic])
        assert sorted(row.value or b"" for row in rows(consumer, 10)) == sorted(row.value or b"" for row in sent)


def test_our_controller_joins_kafkas_by_their_snapshot_and_becomes_a_voter(quorum: Members, name: str) -> None:
    use(quorum, name)
    until(lambda: quorum[KAFKA].snapshot_offset > 0, "a snapshot")
    quorum.start(OURS, OTHER_KAFKA)
    until(lambda: quorum.standing().observers == {OURS, OTHER_KAFKA, BROKER}, "it follows")
    assert quorum[OURS].log_start > 0  # what was before came with the snapshot
    quorum.add_voter(OURS)
    quorum.add_voter(OTHER_KAFKA)
    assert quorum.standing().leader_id == KAFKA
    check_agreement(quorum)


def test_our_controller_takes_over_from_kafkas_which_follows(quorum: Members, name: str) -> None:
    before = quorum.standing()
    assert quorum.hand_over(OURS).epoch > before.epoch
    use(quorum, name)
    check_agreement(quorum)
    end_offset = quorum.standing().high_watermark
    until(lambda: quorum.standing().high_watermark > end_offset, "the log goes on, though nothing happens")


def test_kafkas_controllers_leave_our_quorum_and_join_it(quorum: Members, name: str) -> None:
    quorum.hand_over(OURS)
    for node_id in (KAFKA, OTHER_KAFKA):
        quorum.remove_voter(node_id)
        assert node_id in quorum.standing().observers
    assert quorum.standing().voters == {OURS}
    use(quorum, name)
    for node_id in (OTHER_KAFKA, KAFKA):
        quorum.add_voter(node_id)
    assert quorum.standing().leader_id == OURS
    check_agreement(quorum)


def test_kafka_takes_over_when_our_controller_dies_and_we_come_back_as_a_follower(quorum: Members, name: str) -> None:
    before = quorum.hand_over(OURS)
    quorum[OURS].stop(signal.SIGKILL)
    assert quorum.standing().leader_id in (KAFKA, OTHER_KAFKA)
    use(quorum, name)
    quorum.start(OURS)
    until(lambda: quorum.standing().observers == {BROKER}, "all voters fetch")
    assert quorum.standing().epoch > before.epoch
    check_agreement(quorum)
