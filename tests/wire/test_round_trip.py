"""Every message and version comes back as it was, those too that only Kafka 4.4 has and no oracle knows.

The compiled codecs are held against the careful ones, which say the same in another way.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire.careful import CarefulDecoder, CarefulEncoder
from odradek.wire.messages import MetadataResponse, message_class
from tests.wire.values import all_versions, values


def test_the_table_has_all_messages() -> None:
    assert len(all_versions()) == 755


@pytest.mark.parametrize(("name", "version"), all_versions())
@settings(max_examples=3)
@given(data=st.data())
def test_a_message_comes_back_as_it_was_with_its_unknown_tags(name: str, version: int, data: st.DataObject) -> None:
    message = message_class(name)
    value = data.draw(values(name, version, with_unknown_tags=True))
    encoded = value.to_bytes(version)
    assert CarefulEncoder(message, version).encode(value) == encoded
    assert message.decode(encoded, version) == value
    assert CarefulDecoder(message, version, memoryview(encoded)).decode() == value
    assert message.decode(memoryview(b"before" + encoded)[6:], version).to_bytes(version) == encoded


@pytest.mark.parametrize("version", [0, 9])
def test_counts_of_128_and_more_take_two_bytes(version: int) -> None:
    topics = [MetadataResponse.MetadataResponseTopic(name=str(number)) for number in range(300)]
    value = MetadataResponse(topics=topics)
    assert MetadataResponse.decode(value.to_bytes(version), version) == value
