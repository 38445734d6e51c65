"""The end of what can be read of a file."""


class Damaged(Exception):
    """At this byte a file is no longer what was written."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"byte {position}: {reason}")
        self.position = position
        self.reason = reason
