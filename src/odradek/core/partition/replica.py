"""What the leader of a partition knows of one follower: where its log ends, and when it last had everything.

Invariants
 1. Everything here comes from fetches of the current leader epoch: a new epoch begins with nothing known. Another leader may have
    cut the follower's log meanwhile, also where this node never heard of that leader.
 2. `caught_up_ms` is the latest time at which the follower had all that the leader had then. It never goes back within an epoch.
"""

from typing import Final, TypeAlias

UNKNOWN: Final = -1
EPOCH_UNKNOWN: Final = -2  # nothing was fetched yet; -1 is a follower that tells no broker epoch
NEVER_MS: Final = -(2**62)

TopicIdPartition: TypeAlias = tuple[bytes, int]


class Replica:
    __slots__ = ("broker_epoch", "broker_id", "caught_up_ms", "fetched_ms", "leader_end", "log_end", "log_start")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.reset(NEVER_MS)

    def reset(self, caught_up_ms: int) -> None:
        """A new leader epoch: who is in the ISR has until `replica.lag.time.max.ms` to fetch, others hold nothing back."""
        self.log_end = UNKNOWN
        self.log_start = UNKNOWN
        self.leader_end = UNKNOWN  # the leader's log end when the follower fetched last
        self.fetched_ms = NEVER_MS
        self.caught_up_ms = caught_up_ms
        self.broker_epoch = EPOCH_UNKNOWN

    def fetched(self, offset: int, log_start: int, leader_end: int, broker_epoch: int, now_ms: int) -> None:
        """A fetch from an offset says that the follower has everything below it."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end and self.fetched_ms > self.caught_up_ms:
            self.caught_up_ms = self.fetched_ms  # it has what there was when it asked last, however fast the log grows
        self.log_end = offset
        self.log_start = log_start
        self.leader_end = leader_end
        self.fetched_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.log_end == leader_end or now_ms - self.caught_up_ms <= lag_time_max_ms
