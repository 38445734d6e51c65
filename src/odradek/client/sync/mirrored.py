"""What `Admin` and `Consumer` for threads have of their namesakes for asyncio; what each call takes and gives is in the stub."""

from typing import Final

from odradek.client.admin.admin import Admin
from odradek.client.consumer import Consumer
from odradek.client.sync.background import Background
from odradek.client.sync.mirror import mirrors

# After these nothing of before may come, and what they find must be whole: what was taken ahead and not given goes back first.
GIVES_BACK: Final = frozenset(
    {
        "assign",
        "pause",
        "poll_arrow",
        "poll_batches",
        "seek",
        "seek_to_beginning",
        "seek_to_end",
        "seek_to_time",
        "subscribe",
        "unsubscribe",
    }
)


@mirrors(Admin)
class AdminCalls:
    _original: Admin
    _background: Background


@mirrors(Consumer, GIVES_BACK)
class ConsumerCalls:
    _original: Consumer
    _background: Background
