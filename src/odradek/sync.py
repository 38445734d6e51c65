"""The client for programs with threads: `from odradek.sync import Producer`."""

from odradek.client.sync.producer import Producer

__all__ = ["Producer"]
