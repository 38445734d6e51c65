"""How simulated groups share partitions out: nobody has what another has, and everybody has something in the end."""

from hypothesis import given
from hypothesis import strategies as st

from tests.sim.clients.assignors import Candidate, Shares, by_range, cooperatively
from tests.sim.clients.program import Place

PARTITIONS = st.dictionaries(st.sampled_from(["orders", "payments"]), st.integers(1, 5), min_size=1)
MEMBERS = st.integers(1, 4)


def places_of(partitions: dict[str, int]) -> list[Place]:
    return [Place(topic, index) for topic, count in sorted(partitions.items()) for index in range(count)]


def given_out(shares: Shares) -> list[Place]:
    return sorted(place for share in shares.values() for place in share)


@given(MEMBERS, PARTITIONS)
def test_by_range_every_partition_has_one_owner(members: int, partitions: dict[str, int]) -> None:
    shares = by_range([Candidate(f"m{number}") for number in range(members)], partitions)
    assert given_out(shares) == places_of(partitions)


@given(MEMBERS, PARTITIONS, st.randoms())
def test_cooperatively_nothing_is_given_that_another_still_has(members: int, partitions: dict[str, int], chance: object) -> None:
    places = places_of(partitions)
    chance.shuffle(places)  # type: ignore[attr-defined]
    owned = {f"m{number}": tuple(sorted(places[number::members])) for number in range(members)}
    joined = [Candidate(name, share, 3) for name, share in owned.items()] + [Candidate("new")]
    shares = cooperatively(joined, partitions)
    others = {place: name for name, share in owned.items() for place in share}
    for name, share in shares.items():
        assert all(others[place] == name for place in share)


@given(st.lists(MEMBERS, min_size=1, max_size=5), PARTITIONS)
def test_cooperatively_a_second_round_gives_out_everything_evenly(sizes: list[int], partitions: dict[str, int]) -> None:
    owned: Shares = {}
    for generation, members in enumerate(sizes):
        names = [f"m{number}" for number in range(members)]
        for _ in range(2):
            joined = [Candidate(name, tuple(owned.get(name, ())), generation) for name in names]
            owned = cooperatively(joined, partitions)
        assert given_out(owned) == places_of(partitions)
        counts = [len(share) for share in owned.values()]
        assert max(counts) - min(counts) <= 1


def test_of_two_who_claim_a_partition_the_later_generation_has_it() -> None:
    place = Place("orders", 0)
    late, early = Candidate("a", (place,), 7), Candidate("b", (place,), 6)
    assert cooperatively([early, late], {"orders": 1}) == {"a": [place], "b": []}
