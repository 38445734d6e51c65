"""Asks and changes everything about a cluster, for programs with threads: `odradek.Admin`, without async and await.

with Admin("127.0.0.1:9092") as admin:
    print(admin.list_topics())
"""

from collections.abc import Mapping
from typing import Any, Self

from odradek.client.admin.admin import Admin as AsyncAdmin
from odradek.client.sync.background import Background
from odradek.client.sync.mirrored import AdminCalls


class Admin(AdminCalls):
    def __init__(self, bootstrap: Any = "127.0.0.1:9092", **options: Any) -> None:
        """The options are those of `odradek.Admin`."""
        self._begin(lambda: AsyncAdmin(bootstrap, **options))

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Self:
        """One with properties as librdkafka and Java name them."""
        made = cls.__new__(cls)
        made._begin(lambda: AsyncAdmin.of(properties))
        return made

    def _begin(self, make: Any) -> None:
        self._background = Background("odradek-admin")

        async def work() -> AsyncAdmin:
            found: AsyncAdmin = make()
            return found

        try:
            self._original = self._background.run(work())
        except BaseException:
            self._background.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._background.is_open:
            self._background.run(self._original.close())
            self._background.close()
