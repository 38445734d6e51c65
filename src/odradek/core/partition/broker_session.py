"""Whether this node may still believe what it leads: a lease that every answered heartbeat prolongs.

The controller fences a broker that it has not heard of for `broker.session.timeout.ms`, and gives its partitions to others. A
node that was stopped for longer wakes up as a leader of the past. So a leader acknowledges nothing past `certain_until_ms`, which
costs it a comparison and cannot be missed, however long the pause: the time is looked at with every batch. All times are of one
clock that never goes back, and that runs on while the machine sleeps.

Invariants
 1. The lease ends before the controller can fence: it counts from when a heartbeat was sent, not from when it was answered.
 2. Once it has ended, a heartbeat alone does not bring it back: the very heartbeat may have unfenced a broker whose partitions
    are gone. What was committed when that heartbeat was answered must be in the image first.
 3. Before its image holds its own registration a node leads and follows nothing: it would lead, in an epoch that others still
    believe in, with a log that lost its tail, and have them cut theirs.
"""

from typing import Final

FOREVER_MS: Final = 2**62
NEVER_MS: Final = -(2**62)


class BrokerSession:
    __slots__ = ("broker_epoch", "certain_until_ms", "leased_until_ms", "timeout_ms", "unfenced_ms")

    def __init__(self, timeout_ms: int, broker_epoch: int = -1) -> None:
        self.timeout_ms = timeout_ms
        self.broker_epoch = broker_epoch  # of this node's registration
        self.certain_until_ms = NEVER_MS
        self.leased_until_ms = NEVER_MS  # as long as the controller will not fence
        self.unfenced_ms = FOREVER_MS  # since when heartbeats of this lease are answered

    @classmethod
    def alone(cls, broker_epoch: int = -1) -> "BrokerSession":
        """Of a node that votes alone: nobody else could decide that another leads in its place."""
        session = cls(FOREVER_MS, broker_epoch)
        session.certain_until_ms = FOREVER_MS
        return session

    def not_alone(self, timeout_ms: int, now_ms: int) -> None:
        """From now on others vote too, and what one of them decides need not be heard of here. None of them does yet, and who
        comes to control the cluster gives every broker the whole time-out."""
        if self.timeout_ms == FOREVER_MS:
            self.timeout_ms = timeout_ms
            self.certain_until_ms = self.leased_until_ms = now_ms + timeout_ms

    def is_certain(self, now_ms: int) -> bool:
        return now_ms < self.certain_until_ms

    def may_take_roles(self, image_offset: int) -> bool:
        """Whether partitions may be led and followed by an image of what is below an offset of the metadata log."""
        return image_offset > self.broker_epoch >= 0

    def registered(self, broker_epoch: int) -> None:
        """A new registration: it begins fenced."""
        self.broker_epoch = broker_epoch
        self.fenced()

    def fenced(self) -> None:
        """A heartbeat was answered with: fenced."""
        if self.timeout_ms == FOREVER_MS:
            return  # nobody could lead in its place
        self.certain_until_ms = self.leased_until_ms = NEVER_MS
        self.unfenced_ms = FOREVER_MS

    def heartbeat_answered(self, sent_ms: int, now_ms: int) -> None:
        """A heartbeat was answered with: not fenced."""
        until_ms = sent_ms + self.timeout_ms
        if now_ms >= self.leased_until_ms:
            self.unfenced_ms = now_ms  # nobody knows what happened meanwhile
        self.leased_until_ms = max(self.leased_until_ms, until_ms)
        if now_ms < self.certain_until_ms:
            self.certain_until_ms = self.leased_until_ms

    def metadata_confirmed(self, asked_ms: int, now_ms: int) -> bool:
        """The image holds all that the quorum had committed when it was asked. True when leaders may go on."""
        if asked_ms < self.unfenced_ms or now_ms >= self.leased_until_ms:
            return False
        self.certain_until_ms = self.leased_until_ms
        return True
