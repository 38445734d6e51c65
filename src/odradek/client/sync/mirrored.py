"""What `Admin` and `Consumer` for threads have of their namesakes for asyncio; what each call takes and gives is in the stub."""

from odradek.client.admin.admin import Admin
from odradek.client.consumer import Consumer
from odradek.client.sync.background import Background
from odradek.client.sync.mirror import mirrors


@mirrors(Admin)
class AdminCalls:
    _original: Admin
    _background: Background


@mirrors(Consumer)
class ConsumerCalls:
    _original: Consumer
    _background: Background
