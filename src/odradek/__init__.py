"""Odradek: an event log that any Kafka client takes for Kafka, and a client for any Kafka cluster.

from odradek import Admin, Consumer, Producer      # for asyncio; odradek.sync has the same three for threads
"""

TYPE_CHECKING = False  # as `typing` has it, which takes long to import
if TYPE_CHECKING:
    from odradek.client.admin import Admin
    from odradek.client.consumer import Consumer
    from odradek.client.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]


def __getattr__(name: str) -> object:
    """Imported when it is asked for: a node does not need a client."""
    from importlib import import_module

    if name in __all__:
        return getattr(import_module(f"odradek.client.{name.lower()}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
