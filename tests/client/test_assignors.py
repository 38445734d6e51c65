"""How partitions are shared out: what every assignor has to keep, for any members and topics."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.client.group.assignors import ASSIGNORS, Candidate, Shares, cooperatively, stickily
from odradek.client.group.subscription import decode_claims, encode_claims
from odradek.client.records import TopicPartition

TOPICS = ["a", "b", "c"]
counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7), min_size=1)


@st.composite
def candidates(draw: st.DrawFn, is_same: bool = False) -> list[Candidate]:
    names = draw(st.lists(st.sampled_from("pqrstuv"), min_size=1, max_size=6, unique=True))
    found = []
    for name in names:
        topics = TOPICS if is_same else draw(st.lists(st.sampled_from(TOPICS), unique=True))
        place = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 8))
        owned = draw(st.lists(place, unique=True, max_size=8))
        instance = draw(st.sampled_from([None, f"i-{name}"]))
        found.append(Candidate(name, tuple(topics), tuple(owned), draw(st.integers(-1, 3)), instance))
    return found


def holders(shares: Shares) -> dict[TopicPartition, str]:
    found: dict[TopicPartition, str] = {}
    for member, share in shares.items():
        for place in share:
            assert place not in found, "to one member at most"
            found[place] = member
    return found


@given(st.sampled_from(sorted(ASSIGNORS)), candidates(), counts_of_topics)
def test_every_partition_goes_to_one_member_that_wants_it(name: str, members: list[Candidate], counts: dict[str, int]) -> None:
    shares = ASSIGNORS[name](members, counts)
    assert sorted(shares) == sorted(each.member for each in members)
    held = holders(shares)
    wants = {each.member: each.topics for each in members}
    assert all(place.topic in wants[member] and place.partition < counts[place.topic] for place, member in held.items())
    wanted = {
        TopicPartition(topic, index)
        for topic, count in counts.items()
        for index in range(count)
        if any(topic in each.topics for each in members)
    }
    if name == "cooperative-sticky":
        claimed = {place for each in members for place in each.owned}
        assert wanted - held.keys() <= claimed
    else:
        assert held.keys() == wanted


@given(candidates(is_same=True), counts_of_topics)
def test_stickily_nobody_has_two_more_than_another(members: list[Candidate], counts: dict[str, int]) -> None:
    sizes = [len(share) for share in stickily(members, counts).values()]
    assert max(sizes) - min(sizes) <= 1


@given(candidates(), counts_of_topics)
def test_what_was_shared_out_stickily_stays_where_it_is(members: list[Candidate], counts: dict[str, int]) -> None:
    shares = stickily(members, counts)
    again = [Candidate(each.member, each.topics, tuple(shares[each.member]), 5) for each in members]
    assert stickily(again, counts) == shares
    assert cooperatively(again, counts) == shares


@given(candidates(is_same=True), counts_of_topics)
def test_of_a_member_that_leaves_only_its_own_share_moves(members: list[Candidate], counts: dict[str, int]) -> None:
    shares = stickily(members, counts)
    stay = [Candidate(each.member, each.topics, tuple(shares[each.member]), 5) for each in members[1:]]
    if stay:
        after = stickily(stay, counts)
        assert all(set(shares[each.member]) <= set(after[each.member]) for each in stay)


@given(candidates(), counts_of_topics)
def test_cooperatively_nothing_is_given_that_another_member_still_has(members: list[Candidate], counts: dict[str, int]) -> None:
    """And after it was let go, it comes to whom it shall; where members want different topics, this may take several rounds, in
    each of which something is let go."""
    shares = cooperatively(members, counts)
    for place, member in holders(shares).items():
        claims = sorted((each.generation, each.member) for each in members if place in each.owned)
        is_clear = len(claims) == 1 or (len(claims) > 1 and claims[-1][0] > claims[-2][0])
        assert not is_clear or claims[-1][1] == member
    wanted = {
        TopicPartition(topic, index)
        for topic, count in counts.items()
        for index in range(count)
        if any(topic in each.topics for each in members)
    }
    rounds_max = len(wanted) if len({each.topics for each in members}) > 1 else 1
    for generation in range(9, 9 + rounds_max):
        kept = [Candidate(each.member, each.topics, tuple(shares[each.member]), generation) for each in members]
        before, shares = shares, cooperatively(kept, counts)
        if holders(shares).keys() == wanted:
            break
        assert any(set(before[member]) - set(share) for member, share in shares.items())
    assert holders(shares).keys() == wanted


@given(
    st.lists(st.builds(TopicPartition, st.sampled_from([*TOPICS, "é"]), st.integers(0, 1 << 30)), unique=True),
    st.integers(-1, 1 << 30),
)
def test_claims_of_sticky_members_are_read_as_they_were_written(owned: list[TopicPartition], generation: int) -> None:
    assert decode_claims(encode_claims(owned, generation)) == (tuple(sorted(owned)), generation)
