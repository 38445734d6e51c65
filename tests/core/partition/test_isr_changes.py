"""ISR changes of several leaders on their way to the controller and back."""

from odradek.core.partition.isr_changes import IsrChanges
from odradek.core.partition.leader import Leader
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import AlterPartitionRequest, AlterPartitionResponse
from tests.core.partition.leading import broker, fetch, leading, state

TOPIC = b"t" * 16


def expanding() -> Leader:
    leader = leading(state((1,)), log_end=10)
    fetch(leader, 2, 10)
    return leader


def sent(*leaders: Leader) -> tuple[IsrChanges, AlterPartitionRequest]:
    changes = IsrChanges(1)
    for index, leader in enumerate(leaders):
        changes.add((TOPIC, index), leader)
    request = changes.request(101)
    assert request is not None
    return changes, request


def answer(index: int, error_code: int = 0) -> AlterPartitionResponse.PartitionData:
    return AlterPartitionResponse.PartitionData(
        partition_index=index, error_code=error_code, leader_id=1, leader_epoch=5, isr=[1, 2], partition_epoch=11
    )


def response(*answers: AlterPartitionResponse.PartitionData) -> AlterPartitionResponse:
    return AlterPartitionResponse(topics=[AlterPartitionResponse.TopicData(topic_id=TOPIC, partitions=list(answers))])


def test_all_changes_go_in_one_request_with_the_epochs_of_their_brokers() -> None:
    _, request = sent(expanding(), expanding())
    assert (request.broker_id, request.broker_epoch) == (1, 101)
    decoded = AlterPartitionRequest.decode(request.to_bytes(3), 3)
    assert [each.partition_index for each in decoded.topics[0].partitions] == [0, 1]
    wanted = decoded.topics[0].partitions[0]
    assert [(each.broker_id, each.broker_epoch) for each in wanted.new_isr_with_epochs] == [(1, 101), (2, 102)]
    assert (wanted.leader_epoch, wanted.partition_epoch) == (5, 10)


def test_an_older_controller_is_told_the_brokers_alone() -> None:
    changes = IsrChanges(1)
    changes.add((TOPIC, 0), expanding())
    request = changes.request(101, version=2)
    assert request is not None
    assert AlterPartitionRequest.decode(request.to_bytes(2), 2).topics[0].partitions[0].new_isr == [1, 2]


def test_one_request_is_under_way_at_a_time() -> None:
    changes, _ = sent(expanding())
    changes.add((TOPIC, 1), expanding())
    assert not changes.is_due
    assert changes.request(101) is None
    changes.answered(response(answer(0)), 0)
    assert changes.is_due
    assert changes.request(101) is not None


def test_leaders_learn_what_became_of_their_changes() -> None:
    made, refused, retried, left_out = expanding(), expanding(), expanding(), expanding()
    changes, _ = sent(made, refused, retried, left_out)
    answers = [answer(0), answer(1, ErrorCode.INELIGIBLE_REPLICA), answer(2, ErrorCode.NOT_CONTROLLER)]
    changes.answered(response(*answers), 0)
    assert (made.isr, made.partition_epoch, made.change) == ((1, 2), 11, None)
    assert refused.change is None
    assert refused.isr == (1,)
    request = changes.request(101)
    assert request is not None
    assert sorted(each.partition_index for each in request.topics[0].partitions) == [2, 3]


def test_leaders_whose_high_watermark_moved_are_given() -> None:
    leader = leading(log_end=10)
    leader.tick(10**6)
    changes, _ = sent(leader)
    alone = AlterPartitionResponse.PartitionData(partition_index=0, leader_epoch=5, isr=[1], partition_epoch=11)
    assert list(changes.answered(response(alone), 0)) == [leader]
    assert leader.high_watermark == 10


def test_so_are_those_that_waited_for_who_is_not_taken_in() -> None:
    """All others have the record, and nothing more may come that makes the leader look."""
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 3, 10)
    changes, _ = sent(leader)
    leader.appended(11, 0)
    fetch(leader, 2, 11)
    assert leader.high_watermark == 10
    leader.brokers[3] = broker(3, fenced=True)  # type: ignore[index]
    assert list(changes.answered(response(answer(0, ErrorCode.INELIGIBLE_REPLICA)), 0)) == [leader]
    assert leader.high_watermark == 11


def test_a_request_that_failed_as_a_whole_is_sent_again() -> None:
    leader = expanding()
    changes, _ = sent(leader)
    changes.answered(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), 0)
    request = changes.request(150)
    assert request is not None
    assert request.broker_epoch == 150
    changes.failed()
    assert changes.request(150) is not None


def test_a_change_that_the_metadata_has_overtaken_is_not_sent() -> None:
    leader = expanding()
    changes = IsrChanges(1)
    changes.add((TOPIC, 0), leader)
    leader.lead(state((1,), partition_epoch=11), 10, 1, 0)
    assert changes.request(101) is None
    assert not changes.is_due
