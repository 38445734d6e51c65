"""How the leader of a classic group shares partitions out, by the names that members agree on.

    range                 of each topic a run of partitions to each member: the same runs of topics that have as many
    roundrobin            all partitions of all topics in turn
    sticky                as even as can be, and whoever has something keeps it, as far as that allows
    cooperative-sticky    the same; what one member has and another shall have is first given to nobody, until it is let go

Invariants
 1. Every partition of a topic that somebody wants is given to one member that wants it, cooperatively to one at most.
 2. Sticky: no member has two more than another that could have one of them; what can stay where it is stays.
 3. Of two members who claim a partition the one with the later generation has it; with the same, neither.
 4. The same members and partitions are always shared out in the same way.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import cycle
from typing import Final

import msgspec

from odradek.client.records import NO_EPOCH, TopicPartition

COOPERATIVE_STICKY: Final = "cooperative-sticky"
STICKY: Final = "sticky"


class Candidate(msgspec.Struct, frozen=True):
    member: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_EPOCH  # in which it had what it owned
    instance: str | None = None

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members come first, and keep their places when they come back under another id."""
        return self.instance is None, self.instance or self.member


Shares = dict[str, list[TopicPartition]]
Counts = Mapping[str, int]  # of partitions, by topic; of topics that are there


def by_range(candidates: Iterable[Candidate], counts: Counts) -> Shares:
    ranked = sorted(candidates, key=lambda each: each.rank)
    shares: Shares = {each.member: [] for each in ranked}
    for topic in sorted(counts):
        members = [each.member for each in ranked if topic in each.topics]
        start = 0
        for number, member in enumerate(members):
            size = counts[topic] // len(members) + (number < counts[topic] % len(members))
            shares[member] += [TopicPartition(topic, index) for index in range(start, start + size)]
            start += size
    return shares


def in_turn(candidates: Iterable[Candidate], counts: Counts) -> Shares:
    ranked = sorted(candidates, key=lambda each: each.rank)
    shares: Shares = {each.member: [] for each in ranked}
    wanted = {topic for each in ranked for topic in each.topics}
    members = cycle(ranked)
    for place in places_of(counts):
        if place.topic in wanted:
            taker = next(each for each in members if place.topic in each.topics)
            shares[taker.member].append(place)
    return shares


def stickily(candidates: Iterable[Candidate], counts: Counts) -> Shares:
    return share_stickily([*candidates], counts)[0]


def cooperatively(candidates: Iterable[Candidate], counts: Counts) -> Shares:
    shares, owners = share_stickily([*candidates], counts)
    return {member: [each for each in share if owners.get(each, member) == member] for member, share in shares.items()}


def share_stickily(candidates: list[Candidate], counts: Counts) -> tuple[Shares, dict[TopicPartition, str]]:
    """The shares, and who has what now."""
    places = places_of(counts)
    topics = {each.member: frozenset(each.topics) for each in candidates}
    owners = owners_of(candidates, places)
    shares: Shares = {member: [] for member in sorted(topics)}
    free: list[TopicPartition] = []
    for place in places:
        owner = owners.get(place)
        if owner is not None and place.topic in topics[owner]:
            shares[owner].append(place)
        else:
            free.append(place)
    takers = {topic: [member for member in shares if topic in topics[member]] for topic in counts}
    for place in sorted(free, key=lambda each: (len(takers[each.topic]), each)):  # what few can have comes first
        if takers[place.topic]:
            taker = min(takers[place.topic], key=lambda member: (len(shares[member]), member))
            shares[taker].append(place)
    level(shares, takers, owners)
    return {member: sorted(share) for member, share in shares.items()}, owners


def level(shares: Shares, takers: Mapping[str, list[str]], owners: Mapping[TopicPartition, str]) -> None:
    """Moves single partitions from who has more to who could have them, until no move makes it more even."""
    while (move := find_move(shares, takers, owners)) is not None:
        place, giver, taker = move
        shares[giver].remove(place)
        shares[taker].append(place)


def find_move(
    shares: Shares, takers: Mapping[str, list[str]], owners: Mapping[TopicPartition, str]
) -> tuple[TopicPartition, str, str] | None:
    """What came to a member just now goes before what it had."""
    sizes = {member: len(share) for member, share in shares.items()}
    least = {topic: min(members, key=lambda member: (sizes[member], member)) for topic, members in takers.items() if members}
    for giver in sorted(shares, key=lambda member: (-sizes[member], member)):
        movable = [place for place in shares[giver] if sizes[least[place.topic]] < sizes[giver] - 1]
        if movable:
            place = min(movable, key=lambda each: (owners.get(each) == giver, each))
            return place, giver, least[place.topic]
    return None


def owners_of(candidates: Iterable[Candidate], places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """Who has what, of what there is; two who claim the same in the same generation are both mistaken."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for each in sorted(candidates, key=lambda each: each.member):
        for place in each.owned:
            generation, owner = claims.get(place, (NO_EPOCH - 1, None))
            if each.generation > generation:
                claims[place] = each.generation, each.member
            elif each.generation == generation and owner != each.member:
                claims[place] = generation, None
    there = set(places)
    return {place: owner for place, (_, owner) in claims.items() if owner is not None and place in there}


def places_of(counts: Counts) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic in sorted(counts) for index in range(counts[topic])]


ASSIGNORS: Final[dict[str, Callable[[Iterable[Candidate], Counts], Shares]]] = {
    "range": by_range,
    "roundrobin": in_turn,
    STICKY: stickily,
    COOPERATIVE_STICKY: cooperatively,
}
