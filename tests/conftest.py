"""What all tests share."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.kafka.oracle import Oracle

settings.register_profile("odradek", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.load_profile("odradek")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what it starts in the background ignore it


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Apache Kafka's own classes, one Java process for all tests of a worker."""
    process = Oracle()
    yield process
    process.close()
