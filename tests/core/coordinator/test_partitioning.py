"""Java's hash of names, against Java, and the partition that Kafka's clients expect."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.core.coordinator.partitioning import java_hash, partition_of


def test_the_hash_is_that_of_java() -> None:
    assert java_hash("") == 0
    assert java_hash("polygenelubricants") == -(2**31)
    assert java_hash("näher 🧵") == java_hash("näher \ud83e\uddf5")
    assert java_hash("console-consumer-1") == java_hash_by_definition("console-consumer-1")


def java_hash_by_definition(text: str) -> int:
    """s[0]*31^(n-1) + s[1]*31^(n-2) + ... + s[n-1], for names without surrogates."""
    value = sum(ord(unit) * pow(31, len(text) - 1 - index, 2**32) for index, unit in enumerate(text)) % 2**32
    return value - 2**32 if value >= 2**31 else value


@given(st.text(alphabet=st.characters(max_codepoint=0xFFFF)), st.integers(1, 1000))
def test_a_name_belongs_to_a_partition_of_the_topic(name: str, partition_count: int) -> None:
    assert java_hash(name) == java_hash_by_definition(name)
    assert partition_of(name, partition_count) in range(partition_count)


def test_the_smallest_hash_has_no_absolute_value_and_belongs_to_the_first_partition() -> None:
    assert partition_of("polygenelubricants", 50) == 0
