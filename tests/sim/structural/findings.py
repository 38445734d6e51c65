"""What is said when something is in a state that must never be."""


class Violated(AssertionError):
    """An invariant does not hold: which, where, and what was found."""


def hold(condition: bool, what: str) -> None:
    if not condition:
        raise Violated(what)
