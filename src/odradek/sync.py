"""The client for programs with threads: `from odradek.sync import Admin, Consumer, Producer`."""

from odradek.client.sync.admin import Admin
from odradek.client.sync.consumer import Consumer
from odradek.client.sync.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]
