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


def test_what_one_life_gave_to_the_metadata_the_next_does_not_give_to_others() -> None:
    disk = SimDisk(FOLDER)
    reserve = Reserve(disk, FOLDER, SIZE)
    assert not reserve.is_in_use, "of a folder that never had one"
    assert reserve.make()
    reserve.made()
    assert reserve.give()
    again = Reserve(disk, FOLDER, SIZE)
    assert (again.is_there, again.is_in_use) == (False, True)
    assert again.make()
    again.made()
    assert not again.is_in_use
    assert not Reserve(disk, FOLDER, SIZE).is_in_use
