"""The rules of replicas, and how to do without each: leaders and followers (core/partition), their hosts (node), the fetch (api),
and what the controller does when an ISR changes or a broker comes back.
"""

from typing import Any, Final

from odradek.api import fetch, list_offsets, offset_for_leader_epoch
from odradek.core.controller import alter_partition, brokers
from odradek.core.controller.partition_change import PartitionChange
from odradek.core.metadata.topics import Partition as State
from odradek.core.metadata.topics import Topic
from odradek.core.partition.broker_session import FOREVER_MS, BrokerSession
from odradek.core.partition.follower import Action, Follower, Step
from odradek.core.partition.leader import Leader
from odradek.core.partition.replica import Replica
from odradek.log.log import Log
from odradek.node.readable import Readable
from odradek.node.replication import Replication, Source
from odradek.wire.messages import FetchRequest, FetchResponse
from tests.sim.mutants.mutant import Mutant, Patch

# -- where logs part


def no_cut_to_the_high_watermark(patch: Patch) -> None:
    known = Replication.follow

    def follow(replication: Replication, topic: Topic, index: int, state: State, log: Log) -> None:
        before = replication.followers.get((topic.id, index))
        known(replication, topic, index, state, log)
        after = replication.followers.get((topic.id, index))
        if after is not None and (before is None or before[0] is not after[0]):
            log.truncate_to(log.high_watermark, replication.partitions.now_ms())

    patch.setattr(Replication, "follow", follow)


def last_fetched_epoch(patch: Patch) -> None:
    known = Follower.wanted

    def wanted(follower: Follower, bytes_max: int) -> FetchRequest.FetchPartition:
        asked = known(follower, bytes_max)
        asked.last_fetched_epoch = -1
        return asked

    def answered(follower: Follower, asked: FetchRequest.FetchPartition, *rest: Any) -> Step:
        asked.last_fetched_epoch = follower.log.latest_epoch
        return take(follower, asked, *rest)

    take = Follower.answered
    patch.setattr(Follower, "wanted", wanted)
    patch.setattr(Follower, "answered", answered)


def diverging_epoch(patch: Patch) -> None:
    known = fetch.Fetch._diverging

    def diverging(asked: fetch.Fetch, partition: Any, wanted: FetchRequest.FetchPartition) -> FetchResponse.PartitionData | None:
        known(asked, partition, wanted)
        return None

    patch.setattr(fetch.Fetch, "_diverging", diverging)


def end_of_the_largest_epoch(patch: Patch) -> None:
    """The leader tells its own last epoch and its end, instead of those that the follower can have."""
    known = fetch.Fetch._diverging

    def diverging(asked: fetch.Fetch, partition: Any, wanted: FetchRequest.FetchPartition) -> FetchResponse.PartitionData | None:
        found = known(asked, partition, wanted)
        if found is not None:
            found.diverging_epoch.epoch, found.diverging_epoch.end_offset = partition.leader_epoch, partition.log_end
        return found

    patch.setattr(fetch.Fetch, "_diverging", diverging)


def cut_where_logs_part(patch: Patch) -> None:
    """The follower does not cut its log, and fetches on."""
    known = Source._move

    def move(source: Source, log: Log, step: Step) -> None:
        if step.action is not Action.TRUNCATE:
            known(source, log, step)

    patch.setattr(Source, "_move", move)


def until_the_epochs_agree(patch: Patch) -> None:
    """The follower believes the leader's end at once, also where it has another epoch there."""
    patch.setattr(Follower, "_common_end", lambda follower, epoch, leader_end: min(leader_end, follower.log.end_offset))


# -- epochs


def leader_epoch_of_followers(patch: Patch) -> None:
    known = fetch.Fetch._read

    def read(asked: fetch.Fetch, partition: Any, interest: Any) -> FetchResponse.PartitionData:
        if asked.replica_id < 0:
            return known(asked, partition, interest)
        before, interest.wanted.current_leader_epoch = interest.wanted.current_leader_epoch, -1
        try:
            return known(asked, partition, interest)
        finally:
            interest.wanted.current_leader_epoch = before

    patch.setattr(fetch.Fetch, "_read", read)


def leader_epoch_of_readers(patch: Patch) -> None:
    for api in (fetch, list_offsets, offset_for_leader_epoch):
        patch.setattr(api, "check_epoch", lambda *_: None)


def any_leader_epoch(patch: Patch) -> None:
    """The machine of the leader takes whoever comes."""
    patch.setattr(Leader, "check_epoch", lambda *_: None)


def positions_of_this_epoch(patch: Patch) -> None:
    """What was known of followers in an epoch before counts, if the node leads again and heard of no leader in between."""
    known = Leader.lead

    def lead(leader: Leader, state: State, log_end: int, min_insync_replicas: int, now_ms: int) -> bool:
        ends = {broker: (replica.log_end, replica.broker_epoch) for broker, replica in leader.replicas.items()}
        moved = known(leader, state, log_end, min_insync_replicas, now_ms)
        for broker, (end, epoch) in ends.items():
            if broker in leader.replicas:
                leader.replicas[broker].log_end, leader.replicas[broker].broker_epoch = end, epoch
        return leader.advance(now_ms) or moved

    patch.setattr(Leader, "lead", lead)


# -- the high watermark and the ISR


def maximal_isr(patch: Patch) -> None:
    """The high watermark waits for the committed ISR alone."""

    def advance(leader: Leader, now_ms: int) -> bool:
        if now_ms >= leader.session.certain_until_ms or len(leader.isr) < leader.min_insync:
            return False
        in_sync = [replica.log_end for broker, replica in leader.replicas.items() if broker in leader.isr]
        before, leader.high_watermark = leader.high_watermark, max(leader.high_watermark, min([leader.log_end, *in_sync]))
        return leader.high_watermark > before

    patch.setattr(Leader, "advance", advance)


def minimum_of_the_committed_isr(patch: Patch) -> None:
    """Who may have been added counts for min.insync.replicas."""
    known, outcome = Leader.advance, Leader.outcome

    def with_maximal(leader: Leader, ask: Any, *given: int) -> Any:
        committed, leader.isr = leader.isr, leader.maximal_isr
        try:
            return ask(leader, *given)
        finally:
            leader.isr = committed

    patch.setattr(Leader, "advance", lambda leader, now_ms: with_maximal(leader, known, now_ms))
    patch.setattr(Leader, "outcome", lambda leader, end, now_ms: with_maximal(leader, outcome, end, now_ms))


def change_under_way(patch: Patch) -> None:
    """Metadata of the same partition epoch is taken for news: the change under way is forgotten."""
    known = Leader.lead

    def lead(leader: Leader, state: State, log_end: int, min_insync_replicas: int, now_ms: int) -> bool:
        if state.partition_epoch == leader.partition_epoch:
            leader._commit_isr(state.isr, state.partition_epoch)
        return known(leader, state, log_end, min_insync_replicas, now_ms)

    patch.setattr(Leader, "lead", lead)


def join_past_the_high_watermark(patch: Patch) -> None:
    patch.setattr(Leader, "_may_join", lambda leader, replica: leader._is_eligible(replica))


def join_past_the_epoch_start(patch: Patch) -> None:
    def may_join(leader: Leader, replica: Replica) -> bool:
        return replica.log_end >= leader.high_watermark and leader._is_eligible(replica)

    patch.setattr(Leader, "_may_join", may_join)


def minimum(patch: Patch) -> None:
    """The high watermark moves however few are in sync."""
    known = Leader.advance

    def advance(leader: Leader, now_ms: int) -> bool:
        least, leader.min_insync = leader.min_insync, 1
        try:
            return known(leader, now_ms)
        finally:
            leader.min_insync = least

    patch.setattr(Leader, "advance", advance)


def minimum_of_acknowledgements(patch: Patch) -> None:
    """What is produced is taken and acknowledged however few are in sync."""
    known, outcome, advance = Leader.admission, Leader.outcome, Leader.advance

    def with_one(leader: Leader, ask: Any, *given: Any, **named: Any) -> Any:
        least, leader.min_insync = leader.min_insync, 1
        try:
            return ask(leader, *given, **named)
        finally:
            leader.min_insync = least

    patch.setattr(Leader, "admission", lambda leader, **named: with_one(leader, known, **named))
    patch.setattr(Leader, "outcome", lambda leader, end, now_ms: with_one(leader, outcome, end, now_ms))
    patch.setattr(Leader, "advance", lambda leader, now_ms: with_one(leader, advance, now_ms))


def late_followers_leave(patch: Patch) -> None:
    """Who has fallen behind stays in the ISR."""
    patch.setattr(Leader, "tick", lambda *_: None)


def who_stops_holds_nothing_back(patch: Patch) -> None:
    """Replicas that are fenced, shutting down or of another life are waited for, and proposed."""
    patch.setattr(Leader, "_is_eligible", lambda *_: True)


# -- brokers


def broker_epoch_at_the_leader(patch: Patch) -> None:
    """The leader looks at no broker epoch: neither of who fetches, nor of whom it proposes."""
    known, epoch_of = Leader.fetched, Leader._broker_epoch

    def fetched(leader: Leader, replica: Replica, offset: int, log_start: int, _: int, now_ms: int) -> bool:
        return known(leader, replica, offset, log_start, -1, now_ms)

    def broker_epoch(leader: Leader, broker: int) -> int:
        return epoch_of(leader, broker) if broker == leader.node_id else -1

    patch.setattr(Leader, "fetched", fetched)
    patch.setattr(Leader, "_broker_epoch", broker_epoch)


def broker_epoch_at_the_controller(patch: Patch) -> None:
    """The controller takes whoever is named, in whichever life."""
    patch.setattr(alter_partition, "is_eligible", lambda image, state: state.broker_id in image.brokers)
    patch.setattr(alter_partition, "check_epoch", lambda *_: None)


def unclean_stop(patch: Patch) -> None:
    """Who comes back after an unclean stop is taken for one that stopped cleanly, and need not leave the ISR."""
    known = brokers.after_stop

    def after_stop(*given: Any, is_clean: bool) -> Any:
        return known(*given, is_clean=True) if is_clean else []

    patch.setattr(brokers, "after_stop", after_stop)


def eligible_leaders(patch: Patch) -> None:
    """Nobody is kept who may lead when the ISR is empty."""

    def find_eligible(change: PartitionChange) -> None:
        change.elr = ()

    patch.setattr(PartitionChange, "_find_eligible", find_eligible)


def eligible_who_lost_nothing(patch: Patch) -> None:
    """Who may have lost its tail stays eligible."""
    known = PartitionChange._find_eligible

    def find_eligible(change: PartitionChange) -> None:
        change.unclean_stop = None
        known(change)

    patch.setattr(PartitionChange, "_find_eligible", find_eligible)


def woken_leader(patch: Patch) -> None:
    """A leader believes for ever what it heard last."""

    def heartbeat_answered(session: BrokerSession, _: int, __: int) -> None:
        session.certain_until_ms = session.leased_until_ms = FOREVER_MS

    patch.setattr(BrokerSession, "heartbeat_answered", heartbeat_answered)


def denied_by_a_leader_of_the_past(patch: Patch) -> None:
    """A leader that was cut off tells readers what its own log does not have."""
    patch.setattr(Readable, "check_certain", lambda partition: None)


def registration_in_the_image(patch: Patch) -> None:
    """A node takes roles by metadata that is older than its own registration."""
    patch.setattr(BrokerSession, "may_take_roles", lambda session, image_offset: True)


MUTANTS: Final = (
    Mutant("a follower never cuts its log to its high watermark", no_cut_to_the_high_watermark, "late news", "elections"),
    Mutant("every fetch of a follower tells the last epoch that it has", last_fetched_epoch, "late news", "elections"),
    Mutant(
        "a leader whose log parts from the follower's says where, and sends no records", diverging_epoch, "late news", "elections"
    ),
    Mutant(
        "it says the largest epoch that the follower can have, and where that ends",
        end_of_the_largest_epoch,
        "late news",
        "elections",
    ),
    Mutant("the follower cuts its log there, and fetches again", cut_where_logs_part, "late news", "elections"),
    Mutant("it does so until the epochs agree", until_the_epochs_agree, "late news", "elections"),
    Mutant("a follower fetches in the current leader epoch, or is refused", leader_epoch_of_followers, "late news", "elections"),
    Mutant("whoever reads in another leader epoch is refused", leader_epoch_of_readers, "links", "elections"),
    Mutant("the high watermark moves by fetches of the current epoch", positions_of_this_epoch, "slow links", "elections"),
    Mutant(
        "it waits for whoever a change of the ISR under way may have added", maximal_isr, "late news", "flapping", seconds=30.0
    ),
    Mutant("min.insync.replicas is judged by the committed ISR", minimum_of_the_committed_isr),
    Mutant(
        "a change of the ISR is under way until it is answered, or the metadata says more",
        change_under_way,
        "late news",
        "flapping",
    ),
    Mutant("a follower joins at or past the high watermark", join_past_the_high_watermark),
    Mutant("a follower joins at or past the start of the leader's epoch", join_past_the_epoch_start, "late news", "flapping"),
    Mutant("the high watermark does not move while too few are in sync", minimum),
    Mutant("nothing is acknowledged while too few are in sync", minimum_of_acknowledgements),
    Mutant("who has fallen behind leaves the ISR, on a slow disk too", late_followers_leave, "slow disks", "writers"),
    Mutant("who is fenced, stops or has a new life does not hold the high watermark back", who_stops_holds_nothing_back),
    Mutant(
        "the leader looks at the broker epoch of who fetches",
        broker_epoch_at_the_leader,
        "losses behind cuts",
        "quiet",
        seconds=120.0,
    ),
    Mutant(
        "the controller looks at the broker epochs of an ISR", broker_epoch_at_the_controller, "late news of crashes", "flapping"
    ),
    Mutant("who stopped uncleanly is in no ISR when it registers", unclean_stop, "power"),
    Mutant("who left an ISR that is too small may lead when that is empty", eligible_leaders, "processes"),
    Mutant("unless it may have lost its tail", eligible_who_lost_nothing, "power"),
    Mutant("a leader that was paused or cut off fences itself", woken_leader),
    Mutant("it denies no offset that readers come with", denied_by_a_leader_of_the_past, "left with the past", "readers"),
)

# Kept by the machine of the partition too, where the model of a single partition finds them; a node has a second guard.
OF_THE_MACHINE: Final = (
    Mutant("the leader takes fetches of its own epoch", any_leader_epoch),
    Mutant("a node takes no roles before it has read its registration", registration_in_the_image),
)
