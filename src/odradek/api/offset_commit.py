"""OffsetCommit (key 8), versions 2-10.

v2  a retention time for these offsets
v3  throttle time
v5  no retention time: the node's setting counts
v6  leader epochs
v7  static members (KIP-345)
v8  flexible encoding
v9  members of the new group protocol (KIP-848); a group that is not there is GROUP_ID_NOT_FOUND
v10 topics by id
"""

from odradek.api.committed_topics import known_topics
from odradek.api.context import Context, Handled
from odradek.core.groups.refusals import refusal, refused_commit
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import OffsetCommitRequest, OffsetCommitResponse

KEY = 8
TOPIC_IDS_SINCE = 10

Answered = OffsetCommitResponse.OffsetCommitResponseTopic


def handle(request: OffsetCommitRequest, ctx: Context) -> Handled:
    has_ids = ctx.version >= TOPIC_IDS_SINCE
    request.topics, refused = known_topics(request.topics, ctx, refused_commit, has_ids=has_ids)
    if refused:
        return commit_rest(request, ctx, refused)
    ctx.later()
    ctx.node.groups.submit(request.group_id, request, ctx, lambda error: failed(request, error, ctx.version))
    return None


async def commit_rest(request: OffsetCommitRequest, ctx: Context, refused: list[Answered]) -> Message:
    """Commits what can be; the answer is about all."""
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    found = await ctx.node.groups.ask(request.group_id, request, ctx)
    answer = failed(request, found, ctx.version) if isinstance(found, ErrorCode) else found
    assert isinstance(answer, OffsetCommitResponse)
    return OffsetCommitResponse(topics=[*refused, *answer.topics])


def failed(request: OffsetCommitRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)
