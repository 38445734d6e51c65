"""What members of a classic group tell each other: what they want and have, and what they get. In Kafka's own form.

Invariants
 1. Members of other clients understand it: version 3 of both, and what only some assignors know in their own user data.
"""

import struct
from collections.abc import Iterable
from struct import Struct
from typing import Final

from odradek.client.group.assignors import COOPERATIVE_STICKY, STICKY, Candidate
from odradek.client.offsets import by_topic
from odradek.client.records import NO_EPOCH, TopicPartition
from odradek.wire.errors import ProtocolError
from odradek.wire.log_records import decode_consumer_protocol, encode_versioned
from odradek.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, JoinGroupResponse

VERSION: Final = 3
INT32: Final = Struct(">i")
INT16: Final = Struct(">h")


def encode_subscription(
    assignor: str,
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
) -> bytes:
    kind = ConsumerProtocolSubscription
    parts = [
        kind.TopicPartition(topic=topic, partitions=[place.partition for place in places])
        for topic, places in by_topic(owned).items()
    ]
    user_data: bytes | None = None
    if assignor == STICKY:
        user_data = encode_claims(owned, generation)
    elif assignor == COOPERATIVE_STICKY:
        user_data = INT32.pack(generation)
    wanted = kind(topics=sorted(topics), user_data=user_data, owned_partitions=parts, generation_id=generation, rack_id=rack)
    return encode_versioned(wanted, VERSION)


def decode_candidate(assignor: str, member: JoinGroupResponse.JoinGroupResponseMember) -> Candidate:
    wanted = decode_consumer_protocol(ConsumerProtocolSubscription, member.metadata)
    owned = tuple(TopicPartition(part.topic, index) for part in wanted.owned_partitions for index in part.partitions)
    generation = wanted.generation_id
    if assignor == STICKY and wanted.user_data:
        owned, generation = decode_claims(wanted.user_data)
    elif assignor == COOPERATIVE_STICKY and generation == NO_EPOCH and len(wanted.user_data or b"") == INT32.size:
        (generation,) = INT32.unpack(wanted.user_data or b"")
    return Candidate(member.member_id, tuple(wanted.topics), owned, generation, member.group_instance_id)


def encode_assignment(share: Iterable[TopicPartition]) -> bytes:
    kind = ConsumerProtocolAssignment
    parts = [
        kind.TopicPartition(topic=topic, partitions=[place.partition for place in places])
        for topic, places in by_topic(share).items()
    ]
    return encode_versioned(kind(assigned_partitions=parts), VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    if not data:
        return []
    assigned = decode_consumer_protocol(ConsumerProtocolAssignment, data)
    return [TopicPartition(each.topic, index) for each in assigned.assigned_partitions for index in each.partitions]


def encode_claims(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """What a sticky member had, which it gives up before it joins."""
    topics = by_topic(owned)
    parts = [INT32.pack(len(topics))]
    for topic, places in topics.items():
        name = topic.encode()
        parts += [INT16.pack(len(name)), name, INT32.pack(len(places))]
        parts += [INT32.pack(place.partition) for place in places]
    return b"".join([*parts, INT32.pack(generation)])


def decode_claims(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """The same, back; without a generation as older clients wrote it."""
    owned: list[TopicPartition] = []
    try:
        (count,), at = INT32.unpack_from(data), INT32.size
        for _ in range(count):
            (size,), at = INT16.unpack_from(data, at), at + INT16.size
            topic, at = data[at : at + size].decode(), at + size
            (indexes,), at = INT32.unpack_from(data, at), at + INT32.size
            for _ in range(indexes):
                owned.append(TopicPartition(topic, INT32.unpack_from(data, at)[0]))
                at += INT32.size
        generation = INT32.unpack_from(data, at)[0] if len(data) - at >= INT32.size else NO_EPOCH
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"{error}", "user data of a sticky member", 0) from error
    return tuple(owned), generation
