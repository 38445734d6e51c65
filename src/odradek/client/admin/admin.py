"""Admin: everything that one can ask of a cluster beside sending records and reading them.

    async with Admin("127.0.0.1:9092") as admin:
        await admin.create_topics([NewTopic("greetings", partitions=3)])
        print(await admin.describe_topics(["greetings"]))

Invariants
 1. What fails is a KafkaError. Of several things that were asked for at once, those that failed are in SomeFailed.
 2. What passes by itself is asked again until `timeout_ms` of the call; what was not found is said at once.
 3. A call that is cancelled leaves the others, and the Admin, as they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from odradek.client.admin.acls import Acls
from odradek.client.admin.brokers import ClusterMembers
from odradek.client.admin.configs import Configs
from odradek.client.admin.credentials import Credentials
from odradek.client.admin.group_offsets import GroupOffsets
from odradek.client.admin.groups import Groups
from odradek.client.admin.offsets import Offsets
from odradek.client.admin.placement import Placement
from odradek.client.admin.quorum import Voters
from odradek.client.admin.quotas import Quotas
from odradek.client.admin.share_offsets import ShareGroupOffsets
from odradek.client.admin.tokens import Tokens
from odradek.client.admin.topics import Topics
from odradek.client.admin.transactions import Transactions
from odradek.client.cluster import Cluster, Timing
from odradek.client.machine import Machine
from odradek.client.properties import Table, options

PROPERTIES: Table = {}


class Admin(
    Topics,
    Offsets,
    Configs,
    ClusterMembers,
    Voters,
    Placement,
    Groups,
    GroupOffsets,
    ShareGroupOffsets,
    Transactions,
    Acls,
    Quotas,
    Credentials,
    Tokens,
):
    def __init__(
        self,
        bootstrap: str | Sequence[str] = "127.0.0.1:9092",
        *,
        client_id: str = "odradek",
        request_timeout_ms: int = 30_000,
        default_timeout_ms: int = 60_000,
        connect_timeout_ms: int = 10_000,
        retry_backoff_ms: int = 50,
        retry_backoff_max_ms: int = 1_000,
        metadata_max_age_ms: int = 300_000,
        machine: Machine | None = None,
    ) -> None:
        """Connects when something is asked. `default_timeout_ms` is for calls that say no `timeout_ms`."""
        timing = Timing(
            request_timeout_ms=request_timeout_ms,
            default_timeout_ms=default_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
        )
        self.cluster = Cluster(bootstrap, client_id=client_id, timing=timing, machine=machine)

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Self:
        """The same by the names of Java and librdkafka: `Admin.of({"bootstrap.servers": "127.0.0.1:9092"})`."""
        return cls(**options(properties, PROPERTIES))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.cluster.close()
