"""A member of a classic group: what it said when it joined, what it is assigned, and the requests of it that wait."""

from collections.abc import Container
from typing import TYPE_CHECKING

from odradek.wire.messages import GroupMetadataValue, JoinGroupRequest

if TYPE_CHECKING:
    from odradek.core.coordinator.events import Request

NO_TIMEOUT = -1


class ClassicMember:
    """A member. Its first protocol is the one it likes best."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "is_sync_pending",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "waiting_join",
        "waiting_sync",
    )

    def __init__(
        self, member_id: str, group_instance_id: str | None, client_id: str, client_host: str, protocols: list[tuple[str, bytes]]
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.protocols = protocols
        self.rebalance_timeout_ms = NO_TIMEOUT
        self.session_timeout_ms = NO_TIMEOUT
        self.assignment = b""
        self.is_new = False  # its first join is not answered yet: it knows no member id to beat with
        self.is_sync_pending = False  # it has to sync in this generation, or is removed
        self.waiting_join: Request | None = None
        self.waiting_sync: Request | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """It waits for us. A new member may be gone all the same: nobody would know."""
        return not self.is_new and (self.waiting_join is not None or self.waiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        """What it said for that protocol."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def vote(self, candidates: Container[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)


def joining_member(request: "Request", member_id: str) -> ClassicMember:
    """The member that a JoinGroup makes."""
    message = request.message
    assert isinstance(message, JoinGroupRequest)
    member = ClassicMember(member_id, message.group_instance_id, request.client_id, request.client_host, protocols_of(message))
    member.rebalance_timeout_ms = rebalance_timeout_ms(message, request.version)
    member.session_timeout_ms = message.session_timeout_ms
    return member


def stored_member(protocol: str | None, value: GroupMetadataValue.MemberMetadata) -> ClassicMember:
    """The member that a record has: it is known to support the generation's protocol, and no other."""
    protocols = [(protocol or "", value.subscription)]
    member = ClassicMember(value.member_id, value.group_instance_id, value.client_id, value.client_host, protocols)
    member.rebalance_timeout_ms = value.session_timeout if value.rebalance_timeout == NO_TIMEOUT else value.rebalance_timeout
    member.session_timeout_ms = value.session_timeout
    member.assignment = value.assignment
    return member


def protocols_of(message: JoinGroupRequest) -> list[tuple[str, bytes]]:
    return [(protocol.name, protocol.metadata) for protocol in message.protocols]


def rebalance_timeout_ms(message: JoinGroupRequest, version: int) -> int:
    return message.session_timeout_ms if version == 0 else message.rebalance_timeout_ms
