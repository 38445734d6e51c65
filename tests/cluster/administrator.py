"""Somebody who creates and deletes topics while nodes come and go.

Invariants
 1. A name is used once: what became of a request without an answer is nobody's promise.
"""

import threading
from typing import Final, Literal

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.checker.history import History, Outcome, TopicBegun, TopicEnded, TopicsSeen
from tests.cluster.cluster import Cluster
from tests.cluster.settings import EAGER, now_ms

NAME: Final = "administrator"
PAUSE_SECONDS: Final = 0.3
ANSWER_SECONDS_MAX: Final = 10.0
TOPICS_MAX: Final = 3  # at a time


class Administrator:
    def __init__(self, bootstrap: str, topic: str, history: History, is_over: threading.Event) -> None:
        self.client = AdminClient({"bootstrap.servers": bootstrap, **EAGER})
        self.topic = topic
        self.history = history
        self.is_over = is_over
        self.count = 0
        self.created: list[str] = []

    def go_on(self) -> None:
        if len(self.created) < TOPICS_MAX:
            self.count += 1
            self._change(f"{self.topic}-made-{self.count}", "create")
        else:
            self._change(self.created.pop(0), "delete")
        self.is_over.wait(PAUSE_SECONDS)

    def _change(self, name: str, change: Literal["create", "delete"]) -> None:
        id_ = self.history.next_id()
        self.history.add(TopicBegun(now_ms(), NAME, id_, name, change))
        outcome: Outcome = "acknowledged"
        try:
            if change == "create":
                self.client.create_topics([NewTopic(name, 1)], request_timeout=ANSWER_SECONDS_MAX)[name].result()
                self.created.append(name)
            else:
                self.client.delete_topics([name], request_timeout=ANSWER_SECONDS_MAX)[name].result()
        except KafkaException:
            outcome = "unknown"  # it may have been tried twice
        self.history.add(TopicEnded(now_ms(), NAME, id_, outcome))

    def look(self, cluster: Cluster) -> None:
        """Which topics the nodes know. To be asked when all of them have caught up."""
        for number in cluster.brokers:
            self.history.add(TopicsSeen(now_ms(), NAME, str(number), sorted(cluster.topics(number)), is_final=True))
