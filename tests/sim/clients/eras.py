"""An era: which version of every API a client speaks. Old programs are still around, and speak to new nodes.

Invariants
 1. What an era cannot name by id (Metadata below 10 tells none) it asks for by name.
 2. A version is one that the other side serves, whatever the era would like.
"""

import random
from typing import Final, Self

import msgspec

from odradek.wire.apis import APIS
from odradek.wire.message import Message

METADATA: Final = 3
FLOORS: Final = {
    METADATA: 4,  # below it a topic that is asked for may be made, and a deleted one comes back
    2: 2,  # ListOffsets: isolation levels
    43: 1,  # ElectLeaders: unclean ones
}
METADATA_WITH_IDS: Final = 10
NAMES_UP_TO: Final = {0: 12, 1: 12, 8: 9, 9: 9}  # Produce, Fetch, OffsetCommit, OffsetFetch: above it topics have ids
KINDS: Final = ("newest", "newest", "any", "any", "oldest")


class Era(msgspec.Struct, frozen=True):
    name: str
    wanted: dict[int, int]  # version by key

    @classmethod
    def chosen(cls, chance: random.Random, kind: str | None = None) -> Self:
        kind = kind or chance.choice(KINDS)
        wanted = {}
        for key, api in APIS.items():
            if not api.served:
                continue
            picked = chance.choice(api.served)  # for every kind, so that one kind of another seed changes nothing else
            wanted[key] = {"newest": api.served[-1], "oldest": api.served[0], "any": picked}[kind]
        wanted |= {key: max(wanted[key], floor) for key, floor in FLOORS.items()}
        if wanted[METADATA] < METADATA_WITH_IDS:
            wanted |= {key: min(wanted[key], last) for key, last in NAMES_UP_TO.items()}
        return cls(kind, wanted)

    def with_floor(self, **floors: int) -> "Era":
        """The era for a program that needs more of some APIs, by their names."""
        keys = {api.name: key for key, api in APIS.items()}
        raised = {keys[name]: max(self.wanted[keys[name]], version) for name, version in floors.items()}
        return Era(self.name, {**self.wanted, **raised})

    def with_ceiling(self, **ceilings: int) -> "Era":
        """The era for a program that may have no more of some APIs, by their names."""
        keys = {api.name: key for key, api in APIS.items()}
        lowered = {keys[name]: min(self.wanted[keys[name]], version) for name, version in ceilings.items()}
        return Era(self.name, {**self.wanted, **lowered})

    def wants(self, name: str) -> int:
        """The version of an API that is spoken where the other side serves it."""
        return next(self.wanted[key] for key, api in APIS.items() if api.name == name)

    def has_ids(self, *names: str) -> bool:
        """Whether topics are spoken of by their ids in all of these APIs."""
        return all(self.wanted[key] > last for key, last in NAMES_UP_TO.items() if APIS[key].name in names)

    def version(self, request: type[Message] | Message, served: dict[int, range]) -> int:
        key = request.schema.key
        theirs = served.get(key, range(0))
        assert theirs, f"{APIS[key].name} is not served"
        return max(min(self.wanted[key], theirs[-1]), theirs[0], APIS[key].served[0])
