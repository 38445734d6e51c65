"""What is said when something is in a state that must never be."""

INTERNAL = "/__"  # in the paths of what coordinators and the quorum write


class Violated(AssertionError):
    """An invariant does not hold: which, where, and what was found."""


def hold(condition: bool, what: str) -> None:
    if not condition:
        raise Violated(what)
