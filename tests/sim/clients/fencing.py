"""What the lives of one transactional id have been told: whoever asks for something in an epoch that another was told to be over
must not get it.

Invariants
 1. What was asked for before the other was told may come through, whenever that is heard of: only what is asked for later counts.
"""

import msgspec

Identity = tuple[int, int]  # producer id, epoch


class Fence(msgspec.Struct):
    newest: Identity = (-1, -1)  # of those that were told
    owner: str = ""

    def told(self, owner: str, identity: Identity) -> None:
        if identity[0] != self.newest[0] or identity > self.newest:
            self.newest, self.owner = identity, owner

    def is_past(self, owner: str, identity: Identity) -> bool:
        return self.owner != owner and self.newest[0] == identity[0] and self.newest > identity
