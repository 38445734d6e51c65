"""DeleteTopics (1-6): by name, and from v6 on by id.

Invariants
 1. Every name and every id is answered for, once; what was named twice is not deleted.
"""

from collections import Counter

from odradek.core.controller.decision import Decision, Versioned
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import DeleteTopicsRequest, DeleteTopicsResponse, RemoveTopicRecord

Result = DeleteTopicsResponse.DeletableTopicResult

UNKNOWN_TOPIC = "This server does not host this topic-partition."
UNKNOWN_ID = "This server does not host this topic ID."


def delete_topics(image: MetadataImage, request: DeleteTopicsRequest) -> Decision[DeleteTopicsResponse]:
    results: list[Result] = []

    def refuse(name: str | None, topic_id: bytes, error: ErrorCode, reason: str | None) -> None:
        results.append(Result(name=name, topic_id=topic_id, error_code=error, error_message=reason))

    names = Counter(request.topic_names)
    ids: Counter[bytes] = Counter()
    for topic in request.topics:
        if topic.name is None and topic.topic_id == NIL_UUID:
            refuse(None, NIL_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif topic.name is None:
            ids[topic.topic_id] += 1
        elif topic.topic_id == NIL_UUID:
            names[topic.name] += 1
        else:
            reason = "You may not specify both topic name and topic id."
            refuse(topic.name, topic.topic_id, ErrorCode.INVALID_REQUEST, reason)
    doomed: dict[bytes, str] = {}
    for topic_id, count in ids.items():
        if count > 1:
            refuse(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        elif topic_id not in image.topics_by_id:
            refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID)
        else:
            doomed[topic_id] = image.topics_by_id[topic_id].name
    for name, count in names.items():
        found = image.topics.get(name)
        if count > 1:
            refuse(name, NIL_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif found is None:
            refuse(name, NIL_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC)
        elif found.id in ids:
            doomed.pop(found.id, None)
            reason = "The provided topic name maps to an ID that was already supplied."
            refuse(name, found.id, ErrorCode.INVALID_REQUEST, reason)
        else:
            doomed[found.id] = name
    records: list[Versioned] = [(RemoveTopicRecord(topic_id=topic_id), 0) for topic_id in doomed]
    results += [Result(name=name, topic_id=topic_id, error_message=None) for topic_id, name in doomed.items()]
    return Decision(records, DeleteTopicsResponse(responses=results))
