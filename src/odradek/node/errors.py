"""Why a node does not start, in a sentence for the person who started it."""


class StartFailed(Exception):
    """What stands in the way and what to do: a port in use, a folder in use, a folder that may not be written."""
