"""What changed in a metadata image since its host last looked, so that nobody has to compare all of it.

Invariants
 1. A topic that came and went between two looks is in neither list.
 2. What is new or changed is read from the image; only what was deleted is kept here.
"""

import msgspec

from odradek.core.metadata.topics import Topic


class Delta(msgspec.Struct):
    topics_created: dict[bytes, None] = msgspec.field(default_factory=dict)  # dicts, because their order is that of the log
    topics_deleted: dict[bytes, Topic] = msgspec.field(default_factory=dict)
    partitions: dict[tuple[bytes, int], None] = msgspec.field(default_factory=dict)  # created or changed, by topic id
    configs: dict[tuple[int, str], None] = msgspec.field(default_factory=dict)
    brokers: dict[int, None] = msgspec.field(default_factory=dict)
    controllers: dict[int, None] = msgspec.field(default_factory=dict)
    features: dict[str, None] = msgspec.field(default_factory=dict)
    client_quotas: dict[tuple[tuple[str, str | None], ...], None] = msgspec.field(default_factory=dict)
    scram_credentials: dict[tuple[int, str], None] = msgspec.field(default_factory=dict)
    acls: dict[bytes, None] = msgspec.field(default_factory=dict)
    delegation_tokens: dict[str, None] = msgspec.field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(msgspec.structs.astuple(self))

    def delete_topic(self, topic: Topic) -> None:
        for number in topic.partitions:
            self.partitions.pop((topic.id, number), None)
        if topic.id in self.topics_created:
            del self.topics_created[topic.id]
        else:
            self.topics_deleted[topic.id] = topic
