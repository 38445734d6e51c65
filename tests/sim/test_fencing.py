"""What the lives of a transactional id are told says who of them is a zombie."""

from tests.sim.clients.fencing import Fence


def test_who_was_told_a_newer_epoch_fences_the_others() -> None:
    fence = Fence()
    fence.told("first", (7, 0))
    assert not fence.is_past("first", (7, 0))
    fence.told("second", (7, 2))
    assert fence.is_past("first", (7, 0))
    assert not fence.is_past("second", (7, 2))


def test_an_epoch_that_is_told_late_changes_nothing() -> None:
    fence = Fence()
    fence.told("second", (7, 2))
    fence.told("first", (7, 1))
    assert fence.is_past("first", (7, 1))
    assert not fence.is_past("second", (7, 2))


def test_epochs_of_another_producer_id_are_not_compared() -> None:
    fence = Fence()
    fence.told("second", (8, 5))
    assert not fence.is_past("first", (7, 0))
