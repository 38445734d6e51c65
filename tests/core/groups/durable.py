"""What of a classic group is in its records: all that a replay can bring back."""

from typing import Any

from odradek.core.groups.classic.group import ClassicGroup


def durable_classic(group: ClassicGroup) -> tuple[Any, ...]:
    members = [
        (
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.metadata(group.protocol_name or ""),
            member.assignment,
        )
        for member in group.members.values()
    ]
    return (group.generation_id, group.protocol_type, group.protocol_name, group.leader_id, group.subscribed_topics, members)
