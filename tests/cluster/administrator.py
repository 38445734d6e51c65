"""Somebody who creates and deletes topics while nodes come and go, and remembers what was acknowledged.

Invariants
 1. A name is used once: what became of a request without an answer is nobody's promise.
"""

import threading
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.cluster.cluster import Cluster
from tests.cluster.settings import EAGER

PAUSE_SECONDS: Final = 0.3
ANSWER_SECONDS_MAX: Final = 10.0
TOPICS_MAX: Final = 3  # at a time


class Administrator:
    def __init__(self, bootstrap: str, topic: str, is_over: threading.Event) -> None:
        self.client = AdminClient({"bootstrap.servers": bootstrap, **EAGER})
        self.topic = topic
        self.is_over = is_over
        self.count = 0
        self.created: list[str] = []
        self.deleted: list[str] = []

    def go_on(self) -> None:
        try:
            if len(self.created) < TOPICS_MAX:
                self._create()
            else:
                self._delete()
        except KafkaException:
            return
        self.is_over.wait(PAUSE_SECONDS)

    def _create(self) -> None:
        self.count += 1
        name = f"{self.topic}-made-{self.count}"
        self.client.create_topics([NewTopic(name, 1)], request_timeout=ANSWER_SECONDS_MAX)[name].result()
        self.created.append(name)

    def _delete(self) -> None:
        name = self.created.pop(0)
        self.client.delete_topics([name], request_timeout=ANSWER_SECONDS_MAX)[name].result()
        self.deleted.append(name)

    def broken_promises(self, cluster: Cluster) -> list[str]:
        """What nodes say that must not be. To be asked when all of them have caught up."""
        wrong = []
        for number in cluster.brokers:
            known = cluster.topics(number)
            wrong += [f"node {number}: {name} is not there" for name in self.created if name not in known]
            wrong += [f"node {number}: {name} is there again" for name in self.deleted if name in known]
        return wrong
