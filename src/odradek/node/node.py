"""One node: wires the listeners, the metadata, the partitions, the groups and the background together. The one place that does.

Invariants
 1. Ports are taken before anything is written, folders are locked before they are read, and clients are let in last.
 2. The committed image is the only metadata that APIs see; partitions and groups follow it, one change after the other.
 3. A clean stop leaves the mark of one. The disk of the metadata, or the last one, ends the process without it when it fails;
    without any other the node goes on.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from odradek.api.api_versions import advertised, unsupported
from odradek.api.context import Context
from odradek.api.services import LogDir
from odradek.api.table import handlers
from odradek.core.config.broker import BrokerConfig
from odradek.core.config.topic import TopicConfig, check_topic, topic_config
from odradek.core.controller.configs import GROUP_RESOURCE
from odradek.core.controller.controller import ControllerConfig
from odradek.core.controller.replication import ReplicationRules
from odradek.core.controller.topics import TopicRules
from odradek.core.metadata.delta import Delta
from odradek.core.metadata.features import SERVED, TRANSACTION_VERSION, UnsupportedFeature, supported_features
from odradek.core.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from odradek.core.partition.broker_session import BrokerSession
from odradek.core.partition.fetch_sessions import Sessions
from odradek.core.partition.fetcher import FetcherSettings
from odradek.core.partition.replication_quota import ReplicationQuotas
from odradek.core.raft.batches import CorruptSnapshot
from odradek.core.transactions.transaction import TopicIndex
from odradek.log.disk import Disk, DiskFailed, DiskFull, RealDisk
from odradek.log.folder import LogFolder
from odradek.node.background import Background
from odradek.node.controller import ControllerHost
from odradek.node.controller_link import ControllerLink
from odradek.node.creation import ON_DEMAND_MS, create_on_demand, described
from odradek.node.enlisting import Enlisting
from odradek.node.errors import StartFailed
from odradek.node.folders import Folders, log_dir, open_folders, open_log_folders
from odradek.node.format import read_bootstrap
from odradek.node.groups import CONSUMER_OFFSETS, Groups
from odradek.node.lifecycle import Lifecycle
from odradek.node.listener import Listener, limits_of
from odradek.node.loggers import Loggers
from odradek.node.machine import Machine
from odradek.node.metadata_log import MetadataLost
from odradek.node.partition import log_config
from odradek.node.partitions import Partitions
from odradek.node.quorum import Quorum, QuorumError
from odradek.node.quorum_config import QuorumConfig
from odradek.node.replication import Replication
from odradek.node.reserve import RESERVE_BYTES, Reserve
from odradek.node.selector import Selector
from odradek.node.timers import Timers
from odradek.node.transactions import TRANSACTION_STATE, Transactions
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message
from odradek.wire.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

METADATA_EXPIRY_MS = 60_000  # how often old snapshots of the metadata are looked for
FETCH_SESSION_EVICTION_MS = 120_000
FETCH_SESSION_ID_MAX = 2**31 - 1

CONTROLLER_REGISTRATION_MS = 60_000
METADATA_SECONDS_MAX = 5  # that a broker which is not let in waits to see why
CONTROLLED_SHUTDOWN_MS = 300_000
FOLLOWED_SECONDS_MAX = 5  # that a client waits for its change, which is committed, to be followed: thousands of logs take longer

Result = TypeVar("Result")
Answer = TypeVar("Answer", bound=Message)
Registration = TypeVar("Registration", BrokerRegistrationRequest, ControllerRegistrationRequest)

logger = logging.getLogger("odradek.node")


class Node:
    """`new_disk` gives a disk for each folder."""

    def __init__(
        self,
        config: BrokerConfig,
        new_disk: Callable[[], Disk] = RealDisk,
        reserve_bytes: int = RESERVE_BYTES,
        machine: Machine | None = None,
    ) -> None:
        self.static_config = self.config = config
        self.reserve_bytes = reserve_bytes
        self.node_id = config.node_id
        self.log_dir_paths = [os.path.abspath(path) for path in config.log_dirs]
        self.new_disk = new_disk
        self.machine = machine or Machine()
        self.now_ms = self.machine.wall_ms
        self.loop = asyncio.get_running_loop()
        self.timers = Timers(self.loop)
        self.loggers = Loggers()
        self.stopped: asyncio.Future[BaseException | None] = self.loop.create_future()
        self.listeners: list[Listener] = []
        self.topic_configs: dict[str, TopicConfig] = {}
        self.producer_ids: Iterator[int] = iter(())
        self.deltas: asyncio.Queue[tuple[Delta, asyncio.Future[None], int]] = asyncio.Queue()
        self.last_change: asyncio.Future[None] | None = None  # done when it has been followed
        self.followed_offset = -1  # of the last record that partitions and groups have followed
        self.is_following = False
        self.incarnation_id = self.machine.unique_id().bytes
        self.tasks: set[asyncio.Task[Any]] = set()
        self.fetch_sessions = Sessions(
            config.integer("max.incremental.fetch.session.cache.slots"),
            FETCH_SESSION_EVICTION_MS,
            lambda: self.machine.random.randint(1, FETCH_SESSION_ID_MAX),
        )

    # -- starting

    async def start(self) -> None:
        """Serves when it returns. StartFailed when it cannot."""
        self.machine.raise_file_limit()
        try:
            self._bind()
            endpoints = tuple((name, host, port) for name, host, port, _ in self._endpoints(controllers=True))
            self.folders = open_folders(self.config, endpoints, self.new_disk, self.machine)
            await self._start_metadata(self.folders, endpoints)
            for listener in self.listeners:
                if listener.is_controller:  # by which the others of the quorum come
                    listener.start()
            if self.config.is_controller:
                await self._register_controller()
            if self.config.is_broker:
                await self._start_broker(self.folders)
        except BaseException as error:
            for listener in self.listeners:
                listener.close()
            if isinstance(error, DiskFull | DiskFailed | Refused):
                raise StartFailed(why_not_started(error)) from error
            raise
        for listener in self.listeners:
            if not listener.is_controller:
                listener.start()

    def _bind(self) -> None:
        for wanted in self.config.listeners:
            is_controller = self.config.is_for_controllers(wanted)
            served = handlers("controller" if is_controller else "broker")
            listener = Listener(
                wanted.name,
                wanted.host,
                wanted.port,
                limits_of(self.config, wanted.name),
                served,
                lambda key, _: unsupported(key),
                self,
                self.timers,
                self.machine,
            )
            listener.is_controller = is_controller
            listener.api_versions = advertised(list(served))
            self.listeners.append(listener)

    def _endpoints(self, *, controllers: bool) -> list[tuple[str, str, int, str]]:
        """What is advertised: name, host, port, protocol. Port 0 is whichever was free, no host the name of this machine."""
        config = self.config
        listeners = config.advertised_controller_listeners if controllers else config.advertised_broker_listeners
        bound = {listener.name: listener.port for listener in self.listeners}
        return [
            (each.name, each.host or socket.gethostname(), each.port or bound[each.name], each.protocol) for each in listeners
        ]

    async def _start_metadata(self, folders: Folders, endpoints: tuple[tuple[str, str, int], ...]) -> None:
        config, metadata = self.config, folders.metadata
        self.cluster_id = folders.cluster_id
        self.reserve = Reserve(metadata.disk, metadata.path, self.reserve_bytes)
        self.reserve.give_if_needed()
        quorum_config = QuorumConfig.of(config, self.cluster_id, metadata.directory_id, endpoints)
        try:
            self.quorum = Quorum(metadata.disk, metadata.path, quorum_config, self.machine, self.reserve)
            bootstrap = read_bootstrap(metadata.disk, metadata.path)
        except (MetadataLost, QuorumError, UnsupportedFeature, CorruptSnapshot) as error:
            raise StartFailed(str(error)) from error
        self.image = self.quorum.image
        self.quorum.on_failure(self.fail)
        self.controller = ControllerHost(
            self.quorum,
            ControllerConfig(
                node_id=self.node_id,
                cluster_id=self.cluster_id,
                topics=TopicRules(
                    num_partitions=config.integer("num.partitions"),
                    default_replication_factor=config.integer("default.replication.factor"),
                    check_configs=self._check_topic,
                    describe_configs=lambda overrides: described(self.config, overrides),
                    chance=self.machine.random.randrange,
                    unique_id=lambda: self.machine.unique_id().bytes,
                ),
                session_timeout_ms=config.integer("broker.session.timeout.ms"),
                replication=ReplicationRules(
                    min_insync_replicas=config.integer("min.insync.replicas"),
                    unclean_leader_election_enable=config.flag("unclean.leader.election.enable"),
                ),
            ),
            balance_interval_ms=balance_interval_ms(config),
            unclean_interval_ms=config.integer("unclean.leader.election.interval.ms"),
        )
        self.link = ControllerLink(self)
        self.quorum.on_commit(lambda _: self._changed())
        await self.controller.start(bootstrap)
        if unserved := self._unserved_features():
            logger.warning("features of this folder that are not served yet: %s", ", ".join(unserved))
        self._apply_config()
        self.stops = [self.timers.every(METADATA_EXPIRY_MS, self.quorum.snapshots.expire)]
        if idle_ms := self.config.integer("metadata.max.idle.interval.ms"):
            self.stops.append(self.timers.every(idle_ms, self.quorum.append_if_idle))

    def _unserved_features(self) -> list[str]:
        return sorted(name for name, level in self.image.features.items() if level and name not in SERVED)

    def _check_topic(self, _: str, overrides: dict[str, str]) -> None:
        check_topic(self.config, overrides, {})

    async def _start_broker(self, folders: Folders) -> None:
        log_folders = open_log_folders(
            folders, self.log_dir_paths, lambda topic: log_config(self.topic_config(topic)), self.machine
        )
        is_alone, timeout_ms = self.quorum.voters.ids == [self.node_id], self.config.integer("broker.session.timeout.ms")
        self.session = BrokerSession.alone() if is_alone else BrokerSession(timeout_ms)
        self.quorum.on_voters = partial(self._look_at_voters, timeout_ms)
        self.partitions = Partitions(
            self.node_id,
            log_folders,
            self.image,
            self.topic_config,
            self.machine,
            self._folder_failed,
            self.session,
            self.config.integer("replica.lag.time.max.ms"),
            offline_folders=folders.offline,
        )
        self.partitions.quotas = ReplicationQuotas(self.node_id, self.config)
        self.partitions.verifies_transactions = self.config.flag("transaction.partition.verification.enable")
        self.partitions.replication = Replication(
            self.partitions,
            self.config.inter_broker_listener_name,
            lambda: self.session.broker_epoch,
            fetcher_settings(self.config),
            self.config.integer("num.replica.fetchers"),
            self.config.integer("replica.socket.timeout.ms"),
        )
        self.groups = Groups(self.image, self.config, self.timers, self.now_ms)
        self.transactions = Transactions(self, self.timers, self.now_ms)
        self.enlisting = Enlisting(self)
        self.follower = self.loop.create_task(self._follow_all())
        self.lifecycle = Lifecycle(
            self.link,
            self._registration(log_folders),
            lambda: self.followed_offset if self.is_following else self.image.offset,
            self.session,
            self.partitions.advance,
            self.fail,
            heartbeat_interval_ms=self.config.integer("broker.heartbeat.interval.ms"),
            session_timeout_ms=self.config.integer("broker.session.timeout.ms"),
            registration_timeout_ms=self.config.integer("initial.broker.registration.timeout.ms"),
            log_dir_failure_timeout_ms=self.config.integer("log.dir.failure.timeout.ms"),
        )
        await self._join()
        self.background = Background(self.partitions, self.config, self.timers, self.reserve, self._follow_soon)

    def _look_at_voters(self, timeout_ms: int) -> None:
        """Who is no longer the only voter leads as long as the controller hears of it."""
        if self.quorum.voters.ids != [self.node_id]:
            self.session.not_alone(timeout_ms, self.machine.boot_ms())

    async def _join(self) -> None:
        """Becomes a broker of the cluster, with the partitions that the metadata gives to it."""
        try:
            await self.lifecycle.register()
        except StartFailed as error:
            with suppress(TimeoutError):
                async with asyncio.timeout(METADATA_SECONDS_MAX):
                    while self.quorum.is_new:  # noqa: ASYNC110 - what the cluster has is on its way
                        await asyncio.sleep(0.01)
            if unserved := self._unserved_features():
                wanted = " ".join(f"--feature {name}=0" for name in unserved)
                told = f"{error}; the cluster has features that are not served here yet: kafka-features.sh downgrade {wanted}"
                raise StartFailed(told) from error
            raise
        await self.lifecycle.caught_up()
        assert self.session.may_take_roles(self.image.offset + 1)
        offset, everything = self.image.offset, self.image.changes()  # of a topic that goes from now on, a delta tells
        await self.partitions.set_strays_aside()
        self._apply_config()  # logs were opened with what the last snapshot of the metadata had
        self.is_following = True
        self.reserve.watch(partial(self.partitions.reserve, self.reserve.folder))
        self._follow_soon(everything, offset)
        self._changed()
        await self.followed(None)
        lag_ms = self.config.integer("replica.lag.time.max.ms")
        self.timers.every(lag_ms // 2, self.partitions.tick)
        timeout_ms = self.config.integer("request.timeout.ms")
        self.senders = [
            self.loop.create_task(send(self.link, lambda: self.session.broker_epoch, timeout_ms))
            for send in (self.partitions.isr_reports.send, self.partitions.directories.send)
        ]
        await self.lifecycle.unfence()
        await self.followed(None)

    async def _register_controller(self) -> None:
        """Makes the controller of this node known."""
        request = ControllerRegistrationRequest(controller_id=self.node_id, incarnation_id=self.incarnation_id)
        self._complete(request, controllers=True)
        answer = await self.link.ask(request, ControllerRegistrationResponse, CONTROLLER_REGISTRATION_MS)
        if answer.error_code:
            raise StartFailed(f"node.id={self.node_id} cannot join the controllers of its cluster: {answer.error_message}")

    def _registration(self, log_folders: list[LogFolder]) -> BrokerRegistrationRequest:
        epochs = {folder.clean_broker_epoch for folder in log_folders}
        clean = epochs.pop() if len(epochs) == 1 else None
        broker = BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self.incarnation_id,
            rack=self.config.text_or_none("broker.rack"),
            log_dirs=[folder.directory_id for folder in log_folders if folder.directory_id is not None],
            previous_broker_epoch=-1 if clean is None else clean,
        )
        self._complete(broker, controllers=False)
        return broker

    def _complete(self, registration: Registration, *, controllers: bool) -> None:
        """What both registrations say: where the node is, and which features it can serve."""
        kind = type(registration)
        registration.listeners = [
            kind.Listener(name=name, host=host, port=port, security_protocol=0)
            for name, host, port, _ in self._endpoints(controllers=controllers)
        ]
        registration.features = [
            kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in supported_features(self.image.features).items()
        ]

    # -- following the metadata

    def _changed(self) -> None:
        """Records were committed and are in the image."""
        if not self.is_following:
            return  # all of it is followed at once, when this broker may take roles
        delta = self.image.changes()
        if delta:
            self._follow_soon(delta)
        elif self.last_change is None or self.last_change.done():
            self.followed_offset = self.image.offset

    def _follow_soon(self, delta: Delta, offset: int | None = None) -> None:
        """`offset` is what the delta leads to, where the image is ahead of it."""
        self.last_change = self.loop.create_future()
        self.deltas.put_nowait((delta, self.last_change, self.image.offset if offset is None else offset))

    async def _follow_all(self) -> None:
        while True:
            delta, done, offset = await self.deltas.get()
            try:
                await self._follow(delta)
            except Exception as error:
                logger.exception("the metadata could not be followed")
                self.fail(error)
            self.followed_offset = max(offset, self.followed_offset)
            done.set_result(None)

    async def _follow(self, delta: Delta) -> None:
        for kind, name in delta.configs:
            if kind == TOPIC_RESOURCE:
                self.topic_configs.pop(name, None)
        if any(kind == BROKER_RESOURCE for kind, _ in delta.configs):
            self._apply_config()
        if any(kind == GROUP_RESOURCE for kind, _ in delta.configs):
            self.groups.configure(self.config)
        await self.partitions.follow(delta)
        await self.groups.follow(self.partitions.by_name.get(CONSUMER_OFFSETS, {}), delta)
        await self.transactions.follow_partitions(self.partitions.by_name.get(TRANSACTION_STATE, {}))
        if TRANSACTION_VERSION in delta.features:
            self.transactions.configure(self.config)

    async def followed(self, seconds_max: float | None = FOLLOWED_SECONDS_MAX) -> None:
        """Until partitions and groups are what the image says now, or for so long."""
        if self.last_change is not None:
            await asyncio.wait([self.last_change], timeout=seconds_max)

    def _apply_config(self) -> None:
        """The node's settings, with those that were changed while it runs."""
        configs = self.image.configs
        cluster_wide = configs.get((BROKER_RESOURCE, ""), {})
        self.config = self.static_config.with_dynamic(cluster_wide, configs.get((BROKER_RESOURCE, str(self.node_id)), {}))
        for warning in self.config.ignored:
            logger.warning("%s", warning)
        self.topic_configs.clear()
        for listener in self.listeners:
            listener.configure(self.config)
        if hasattr(self, "background"):
            self.background.configure(self.config)
        if hasattr(self, "partitions"):
            self.partitions.quotas.configure(self.config)
            for topic in self.partitions.topics_here():
                self.partitions.configure(topic)
            self.groups.configure(self.config)
            self.transactions.configure(self.config)

    # -- what the APIs use

    def topic_config(self, topic: str) -> TopicConfig:
        found = self.topic_configs.get(topic)
        if found is None:
            found = topic_config(self.config, self.image.configs.get((TOPIC_RESOURCE, topic), {}))
            self.topic_configs[topic] = found
        return found

    def work(self, function: Callable[[], Result]) -> Awaitable[Result]:
        return self.loop.run_in_executor(None, function)

    def look_into(self, function: Callable[[], Result]) -> Awaitable[Result]:
        return self.partitions.work.look_into(function)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def log_dirs(self) -> list[LogDir]:
        online = {folder.path: folder for folder in self.partitions.folders}
        return [log_dir(path, online.get(path)) for path in self.log_dir_paths]

    def broker_lost(self, broker_id: int, broker_epoch: int) -> None:
        self.controller.broker_lost(broker_id, broker_epoch)

    async def forward(self, request: Message, response: type[Answer], ctx: Context) -> Answer:
        return await self.link.forward(request, response, ctx, self.config.integer("request.timeout.ms"))

    async def create_topics_on_demand(self, topics: Sequence[str]) -> None:
        await create_on_demand(self, topics)

    async def enlist(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[TopicIndex], *, is_adding: bool
    ) -> Mapping[TopicIndex, ErrorCode]:
        return await self.enlisting.enlist(transactional_id, producer_id, epoch, partitions, is_adding=is_adding)

    async def new_producer_id(self) -> int:
        """The next of the block that this broker has; another block when it is used up. Whatever is in the way of that, producers
        are told that something is being loaded: then old ones come again too."""
        while (producer_id := next(self.producer_ids, None)) is None:
            request = AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self.session.broker_epoch)
            try:
                block = await self.link.ask(request, AllocateProducerIdsResponse, ON_DEMAND_MS)
            except Refused as refused:
                raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, refused.message) from refused
            if block.error_code:
                code = ErrorCode(block.error_code).name
                raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the controller gives no producer ids: {code}")
            first = block.producer_id_start
            self.producer_ids = iter(range(first, first + block.producer_id_len))
        return producer_id

    # -- stopping

    def fail(self, error: BaseException) -> None:
        """A disk can no longer be trusted, or something is broken inside: the process ends, and the next start looks closely."""
        if not self.stopped.done():
            logger.critical("the node ends: %s", error)
            self.stopped.set_result(error)

    def _folder_failed(self, folder: LogFolder) -> None:
        """The node goes on without a folder, unless it was the one of the metadata, or the last."""
        assert folder.disk.failure is not None
        if folder.path == self.folders.metadata.path or not self.partitions.folders:
            self.fail(folder.disk.failure)
            return
        assert folder.directory_id is not None
        self.lifecycle.log_dir_failed(folder.directory_id)
        if self.is_following:
            self._follow_soon(Delta())  # coordinators whose partitions are gone

    def stop(self) -> None:
        """A clean stop, asked for by a signal."""
        if not self.stopped.done():
            self.stopped.set_result(None)

    async def close(self) -> None:
        """Lets go of clients, syncs everything and leaves the mark of a clean stop."""
        for listener in self.listeners:
            if not listener.is_controller:
                listener.stop_accepting()
        if self.config.is_broker:
            await self._close_broker()
        for stop in self.stops:
            stop()
        for listener in self.listeners:
            listener.stop_accepting()
            listener.close()
        self.link.close()
        await self.controller.close()
        await self.quorum.close()
        self.reserve.give_if_needed()  # the disk may have become full since
        self.reserve.close()
        if self.config.is_broker:
            await self.partitions.close(self.session.broker_epoch)
        self.timers.close()

    async def _close_broker(self) -> None:
        """Leaves the cluster: others lead what this broker led, and its clients go to them."""
        await self.background.close()
        self.reserve.give_if_needed()
        if not await self.lifecycle.shut_down(CONTROLLED_SHUTDOWN_MS):
            logger.error("the stop is not in the metadata: no controller has answered in time")
        await self.lifecycle.close()
        await self.followed(None)
        self.groups.close()
        self.transactions.close()
        self.enlisting.close()
        for listener in self.listeners:
            if not listener.is_controller:
                listener.close()
        for task in (self.follower, *self.senders):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def fetcher_settings(config: BrokerConfig) -> FetcherSettings:
    return FetcherSettings(
        wait_max_ms=config.integer("replica.fetch.wait.max.ms"),
        min_bytes=config.integer("replica.fetch.min.bytes"),
        response_max_bytes=config.integer("replica.fetch.response.max.bytes"),
        max_bytes=config.integer("replica.fetch.max.bytes"),
        backoff_ms=config.integer("replica.fetch.backoff.ms"),
    )


def balance_interval_ms(config: BrokerConfig) -> int:
    """How often leaders are balanced; 0 for never."""
    seconds = config.integer("leader.imbalance.check.interval.seconds")
    return seconds * 1000 if config.flag("auto.leader.rebalance.enable") else 0


def why_not_started(error: BaseException) -> str:
    match error:
        case DiskFull():
            return f"{error.filename}: there is no room on the disk; make some, then start again"
        case DiskFailed():
            return f"{error.filename or 'the data folder'}: {error.strerror}; look at the disk, then start again"
        case _:
            return str(error)


async def serve(node: Node, on_ready: Callable[[], None] = lambda: None) -> None:
    """From its start to its end. StartFailed when it cannot start, or could not go on."""
    starting = node.loop.create_task(node.start())
    both: list[asyncio.Future[Any]] = [starting, node.stopped]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    is_started = starting.done()
    if is_started:
        starting.result()
        on_ready()
    else:  # it waits for others, and is wanted no more, or cannot go on
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
    failure = await node.stopped
    try:
        if failure is None and is_started:
            await node.close()
    except DiskFailed as error:
        failure = error
    if failure is not None:
        raise StartFailed(f"the node has ended: {failure}; look at the disk, then start it again") from failure


def run(config: BrokerConfig, on_ready: Callable[[], None] = lambda: None, new_disk: Callable[[], Disk] = RealDisk) -> None:
    """Serves until a signal ends it. StartFailed when it cannot start, or could not go on."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    async def live() -> None:
        node = Node(config, new_disk)
        for number in (signal.SIGTERM, signal.SIGINT):
            node.loop.add_signal_handler(number, node.stop)
        await serve(node, on_ready)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Selector())) as runner:
        runner.run(live())
