"""Sends orders until it is stopped: python examples/send_orders.py [RATE [SPEED]]

RATE orders a second (100), on a clock that is SPEED times as fast as ours (1).
"""

import asyncio
import json
import os
import random
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from odradek import Producer

CUSTOMERS = ("alice", "bob", "carol", "dave", "erin")


async def main(rate: float = 100, speed: float = 1) -> None:
    begin = datetime.now(UTC)
    async with Producer(os.environ.get("ODRADEK_BOOTSTRAP", "127.0.0.1:9092")) as producer:
        for number in range(sys.maxsize):
            at = begin + timedelta(seconds=number / rate * speed)
            customer = random.choice(CUSTOMERS)
            amount = round(random.uniform(1, 100), 2)
            order = {"order_id": str(number), "customer": customer, "amount": amount, "at": at.isoformat()}
            await producer.send("orders", json.dumps(order), key=customer)
            await asyncio.sleep(1 / rate)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*map(float, sys.argv[1:])))
