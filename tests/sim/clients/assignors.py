"""How the leader of a classic group shares partitions out: by range, or sticky and in two steps.

Invariants
 1. Every partition is given to one member at most, and by range to exactly one.
 2. Cooperative: what one member still has and another shall have is given to nobody, until the first has let it go.
 3. Cooperative: of two members who claim a partition the one with the later generation has it.
"""

import msgspec

from tests.sim.clients.program import Place


class Candidate(msgspec.Struct, frozen=True):
    member: str
    owned: tuple[Place, ...] = ()
    generation: int = -1


Shares = dict[str, list[Place]]


def by_range(candidates: list[Candidate], partitions: dict[str, int]) -> Shares:
    members = sorted(each.member for each in candidates)
    shares: Shares = {member: [] for member in members}
    for topic, count in sorted(partitions.items()):
        start = 0
        for number, member in enumerate(members):
            size = count // len(members) + (number < count % len(members))
            shares[member] += [Place(topic, index) for index in range(start, start + size)]
            start += size
    return shares


def cooperatively(candidates: list[Candidate], partitions: dict[str, int]) -> Shares:
    places = [Place(topic, index) for topic, count in sorted(partitions.items()) for index in range(count)]
    owners = _owners(candidates, places)
    members = sorted(each.member for each in candidates)
    shares: Shares = {member: [] for member in members}
    size_max = -(-len(places) // len(members))
    for place in places:
        owner = owners.get(place)
        if owner is not None and len(shares[owner]) < size_max:
            shares[owner].append(place)
    kept = {place for share in shares.values() for place in share}
    for place in places:
        if place not in kept:
            taker = min(members, key=lambda member: (len(shares[member]), member))
            shares[taker].append(place)
    _level(shares)
    return {member: [each for each in share if owners.get(each, member) == member] for member, share in shares.items()}


def _owners(candidates: list[Candidate], places: list[Place]) -> dict[Place, str]:
    claims: dict[Place, tuple[int, str]] = {}
    for each in sorted(candidates, key=lambda each: each.member):
        for place in each.owned:
            if place not in claims or each.generation > claims[place][0]:
                claims[place] = (each.generation, each.member)
    return {place: claims[place][1] for place in places if place in claims}


def _level(shares: Shares) -> None:
    """No member has two more than another."""
    while True:
        least = min(shares, key=lambda member: (len(shares[member]), member))
        most = max(shares, key=lambda member: (len(shares[member]), member))
        if len(shares[most]) - len(shares[least]) < 2:
            return
        shares[least].append(shares[most].pop())
