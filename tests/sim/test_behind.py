"""A leader that does not let go of who has fallen behind is found, and one that does is not."""

from contextlib import suppress

import pytest

from odradek.core.partition.leader import Leader
from tests.sim.clients.connection import Lost
from tests.sim.mutants.replicas import late_followers_leave
from tests.sim.steady import Client, steady_cluster, tell
from tests.sim.structural.findings import Violated
from tests.sim.structure import Structure

LAG_MS = "2000"
LOOKS = 12
LOOK_SECONDS = 1.0


class Deaf:
    """A cluster that is looked at, whose leaders hear nothing of their followers from some moment on."""

    def __init__(self) -> None:
        self.cluster = steady_cluster(replica_lag_time_max_ms=LAG_MS)
        self.structure = Structure(self.cluster)
        self.led = next(found for node in self.cluster.nodes.values() for found in node.partitions.by_name.get("t", {}).values())

    def go_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def produce(client: Client) -> None:
            with suppress(AssertionError, Lost):  # too few are in sync for an answer
                await client.produce("t", self.led.index, (b"k", b"v"))

        self.look()
        monkeypatch.setattr(Leader, "fetched", lambda *_: False)
        tell(self.cluster, produce)
        for _ in range(LOOKS):
            self.look()

    def look(self) -> None:
        self.cluster.world.run(self.cluster.world.now_s + LOOK_SECONDS)
        self.structure.check()


def test_who_has_fallen_behind_and_leaves_is_none_to_find(monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = Deaf()
    assert len(deaf.led.leader.isr) == 3
    deaf.go_on(monkeypatch)
    assert len(deaf.led.leader.isr) == 1


def test_who_has_fallen_behind_and_stays_in_sync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    deaf = Deaf()
    late_followers_leave(monkeypatch)
    with pytest.raises(Violated, match=r"t-. ended at .* ms ago, and node ., in sync, is at"):
        deaf.go_on(monkeypatch)
