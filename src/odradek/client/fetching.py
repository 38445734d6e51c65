"""Does what the fetcher decides: fetches, looks offsets up, has positions checked, and keeps the metadata fresh meanwhile.

Invariants
 1. Whatever is under way belongs to a task of its own: a program that waits for records may go at any time.
 2. Whatever ends, well or not, is told to the fetcher, which then decides anew.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from odradek.client.backoff import Backoff
from odradek.client.cluster import Cluster
from odradek.client.errors import KafkaError, Refused
from odradek.client.fetcher import Asked, Fetcher
from odradek.client.lookup import Found, Question, ends_of_epochs, times, unanswered
from odradek.client.metadata import NO_NODE, Broker
from odradek.client.records import TopicPartition
from odradek.wire.messages import FetchRequest, FetchResponse

LANE: Final = "fetch"
KEY: Final = FetchRequest.schema.key
Answers = dict[TopicPartition, Found]


class Fetching:
    def __init__(
        self,
        cluster: Cluster,
        fetcher: Fetcher,
        on_news: Callable[[], None],
        on_end: Callable[["asyncio.Task[None]"], None] = lambda _: None,
    ) -> None:
        """`on_news` is called when there may be something for the program, `on_end` with every task that has ended."""
        self.cluster = cluster
        self.fetcher = fetcher
        self.on_news = on_news
        self.on_end = on_end
        self.loop = cluster.loop
        self.is_closed = False
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they began
        self._timer: asyncio.TimerHandle | None = None
        self._is_to_run = False
        self._refresh_timer: asyncio.TimerHandle | None = None
        timing = cluster.timing
        self._backoff = Backoff(timing.retry_backoff_ms, timing.retry_backoff_max_ms, cluster.machine.random)
        cluster.on_metadata.append(self._learn)

    def go_on(self) -> None:
        """Something has changed: looks what is to be done, as soon as whoever is at work now pauses."""
        if not self._is_to_run:
            self._is_to_run = True
            self.loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_to_run = False
        if self.is_closed:
            return
        fetcher, now_s = self.fetcher, self.loop.time()
        for node, wanted in by_node(fetcher.lookups(now_s)).items():
            self._start(self._look_up(node, wanted))
        for node, wanted in by_node(fetcher.checks(now_s)).items():
            self._start(self._check(node, wanted))
        idle = fetcher.idle_nodes(now_s)
        for node in idle:
            fetcher.reserve(node)
            self._start(self._fetch(node, len(idle)))
        if fetcher.must_refresh:
            self._refresh()
        if fetcher.failures:
            self.on_news()
        if self._timer is not None:
            self._timer.cancel()
        wake_s = fetcher.wake_s(now_s)
        self._timer = self.loop.call_at(wake_s, self._run) if wake_s is not None else None

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        self.on_end(task)
        if not task.cancelled():
            self.go_on()

    # -- fetches

    async def _fetch(self, node: int, idle: int) -> None:
        fetcher, cluster = self.fetcher, self.cluster
        try:
            connection = cluster.connected(node, LANE) or await cluster.connection(node, LANE)
            version = connection.version(KEY)
        except KafkaError as error:
            fetcher.unreachable(node, self.loop.time())
            self._tell(error)
            return
        fetch = fetcher.begin_fetch(node, version, self.loop.time(), idle)
        if fetch is None:
            fetcher.release(node)
            return
        timeout_ms = cluster.timing.request_timeout_ms + fetch.request.max_wait_ms
        try:
            response = await connection.post(fetch.request, FetchResponse, timeout_ms)
        except KafkaError as error:
            fetcher.lost(fetch, self.loop.time())
            self._tell(error)
            return
        fetcher.fetched(fetch, response, self.loop.time())
        self._learn_leaders(response)
        self.on_news()

    def _tell(self, error: KafkaError) -> None:
        """Who cannot be reached is tried again in silence; where there is no way to say it to a broker, the program hears."""
        if isinstance(error, Refused):
            self.fetcher.failures.append(error)
            self.on_news()

    def _learn_leaders(self, response: FetchResponse) -> None:
        """Who leads what the broker does not lead any more, where it says so."""
        brokers = [Broker(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
        is_new = False
        for topic in response.responses:
            for told in topic.partitions:
                if told.error_code and told.current_leader.leader_id != NO_NODE:
                    name = topic.topic or self.cluster.metadata.names.get(topic.topic_id, "")
                    leader, epoch = told.current_leader.leader_id, told.current_leader.leader_epoch
                    self.cluster.learn_leader(name, told.partition_index, leader, epoch, brokers)
                    is_new = True
        if is_new:
            self.fetcher.learn(self.cluster.metadata)

    # -- where to go

    async def _look_up(self, node: int, wanted: list[tuple[Asked, int]]) -> None:
        asking = times(self.cluster, node, questions(wanted), is_committed=self.fetcher.taste.is_committed)
        answers, otherwise = await self._ask(asking)
        for asked, _ in wanted:
            code, offset, epoch, _ = answers.get(asked.reading.place, otherwise)
            if code:
                self.fetcher.refused(asked, code, self.loop.time())
            else:
                self.fetcher.found(asked, offset, epoch, self.loop.time())
        self.on_news()

    async def _check(self, node: int, wanted: list[tuple[Asked, int]]) -> None:
        answers, otherwise = await self._ask(ends_of_epochs(self.cluster, node, questions(wanted)))
        for asked, _ in wanted:
            code, end_offset, epoch, _ = answers.get(asked.reading.place, otherwise)
            if code:
                self.fetcher.refused(asked, code, self.loop.time())
            else:
                self.fetcher.checked(asked, epoch, end_offset)

    async def _ask(self, asking: Coroutine[Any, Any, Answers]) -> tuple[Answers, Found]:
        """The second is for whoever is not answered."""
        try:
            return await asking, unanswered()
        except KafkaError as error:
            return {}, unanswered(error.code) if isinstance(error, Refused) else unanswered()

    # -- metadata

    def _learn(self) -> None:
        self.fetcher.must_refresh = False
        self.fetcher.learn(self.cluster.metadata)
        if not self.fetcher.must_refresh:
            self._backoff.reset()
        self.go_on()

    def _refresh(self) -> None:
        if self._refresh_timer is None:
            wait_ms = self._backoff.next_ms() if self._backoff.tries else 0.0
            self._backoff.tries += not self._backoff.tries
            self._refresh_timer = self.loop.call_later(wait_ms / 1000, self._refresh_now)

    def _refresh_now(self) -> None:
        if not self.is_closed:
            self.cluster.refresh_soon().add_done_callback(self._refreshed)

    def _refreshed(self, _: "asyncio.Task[None]") -> None:
        self._refresh_timer = None
        self.go_on()

    # -- the end

    async def close(self) -> None:
        self.is_closed = True
        self.cluster.on_metadata.remove(self._learn)
        for timer in (self._timer, self._refresh_timer):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for node, request in self.fetcher.sessions().items():
            connection = self.cluster.connected(node, LANE)
            if connection is not None:
                connection.post(request, FetchResponse, self.cluster.timing.request_timeout_ms)


def by_node(wanted: Iterable[tuple[Asked, int]]) -> dict[int, list[tuple[Asked, int]]]:
    found: dict[int, list[tuple[Asked, int]]] = {}
    for asked, about in wanted:
        found.setdefault(asked.node, []).append((asked, about))
    return found


def questions(wanted: Iterable[tuple[Asked, int]]) -> list[Question]:
    return [Question(asked.reading.place, asked.leader_epoch, about) for asked, about in wanted]
