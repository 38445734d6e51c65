"""The room that is kept for the metadata."""

from odradek.node.reserve import RESERVE, Reserve
from tests.log.disk import SimDisk

FOLDER = "/disk"
SIZE = 10_000


def test_a_reserve_that_a_crash_has_cut_short_keeps_no_room_and_is_made_again() -> None:
    disk = SimDisk(FOLDER)
    disk.open(f"{FOLDER}/{RESERVE}", create=True).append([b"0" * (SIZE - 1)])
    reserve = Reserve(disk, FOLDER, SIZE)
    assert not reserve.is_there
    assert not reserve.give()
    assert reserve.make()
    reserve.made()
    assert reserve.is_there
    assert disk.names(FOLDER) == [(RESERVE, SIZE)]
    assert Reserve(disk, FOLDER, SIZE).is_there
