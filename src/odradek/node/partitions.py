"""All partitions that this node leads, and the folders that their logs are in.

What the metadata says is made true here: logs are created and deleted, epochs and settings change.

Invariants
 1. `by_name` and `by_id` hold the same partitions. One is in them only while its log is open and it is led here.
 2. A folder whose disk failed is told to the node once, in a turn of its own; from then on its partitions are in `offline`, and
    nobody leads or follows them here.
 3. A log that may be in a folder that is offline is not made anew in another.
 4. A log that is damaged, or made in place of one that was elsewhere, is neither led nor followed while others have the
    partition too; the controller hears that it is lost. It is copied anew when another leads, and nobody counts on what it has:
    it is in no ISR, and not eligible. A node that stops before it has caught up leaves no mark of a clean stop: in its next life
    it would count as whole.
 5. While a folder is full, nothing is followed there, and others lead what is in it, where others are in sync. What nobody else
    can lead is tried again with every append.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from uuid import UUID

from odradek.core.config.topic import TopicConfig
from odradek.core.metadata.delta import Delta
from odradek.core.metadata.image import TOPIC_RESOURCE, MetadataImage
from odradek.core.metadata.topics import LOST_DIRECTORY, MIGRATING_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY, Topic
from odradek.core.partition.broker_session import BrokerSession
from odradek.core.partition.leader import Leader
from odradek.core.partition.replica import TopicIdPartition
from odradek.core.partition.replication_quota import ReplicationQuotas
from odradek.log.checkpoint import CorruptFile
from odradek.log.disk import DiskFailed, DiskFull
from odradek.log.folder import LogFolder
from odradek.log.log import Log
from odradek.log.names import TopicPartition
from odradek.log.producer import Producer
from odradek.log.segment import Damage
from odradek.node.directories import DirectoryReport
from odradek.node.disk_work import DiskWork
from odradek.node.isr_reports import IsrReports
from odradek.node.machine import Machine
from odradek.node.partition import Partition, log_config
from odradek.node.readable import FollowedPartition, Readable
from odradek.node.replication import Replication
from odradek.node.writing import Writing
from odradek.wire.errors import ErrorCode, Refused

logger = logging.getLogger("odradek.partitions")


class Partitions:
    def __init__(
        self,
        node_id: int,
        folders: list[LogFolder],
        image: MetadataImage,
        topic_config: Callable[[str], TopicConfig],
        machine: Machine,
        folder_failed: Callable[[LogFolder], None],
        session: BrokerSession,
        lag_time_max_ms: int,
        offline_folders: Iterable[str] = (),
    ) -> None:
        """`folder_failed` is told of a folder whose disk can no longer be trusted, when it is one of `folders` no more.
        `offline_folders` are the paths of those that could not be used at the start."""
        self.node_id = node_id
        self.folders = folders
        self.image = image
        self.topic_config = topic_config
        self.machine = machine
        self.now_ms = machine.wall_ms
        self.monotonic_ms = machine.boot_ms
        self.steady_ms = machine.steady_clock()
        self.folder_failed = folder_failed
        self.offline_folders = list(offline_folders)
        self.offline: dict[TopicIdPartition, None] = {}  # partitions whose logs are there
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self.loop = asyncio.get_running_loop()
        self.work = DiskWork(folders, self.now_ms, self.failed)
        self.writings = {folder: Writing(folder, machine.seconds) for folder in folders}
        self.unmade: dict[TopicIdPartition, None] = {}  # to be followed again: there was no room, or they are damaged
        self.never_made: dict[TopicIdPartition, None] = {}  # for want of room: such a log has lost nothing
        self.copied_anew: dict[TopicIdPartition, None] = {}  # that have not caught up yet
        self.full: dict[LogFolder, None] = {}
        self.changed: dict[Partition, None] = {}  # whose readers are to be told
        self.grown: dict[Partition, None] = {}  # whose followers are
        self.session = session
        self.lag_time_max_ms = lag_time_max_ms
        self.by_leader: dict[Leader, Partition] = {}
        self.isr_reports = IsrReports(node_id, self.monotonic_ms, self._moved)
        self.quotas: ReplicationQuotas
        self.verifies_transactions = True  # by transaction.partition.verification.enable
        self.directories = DirectoryReport(node_id, image)
        self.replication: Replication

    def why_not(self, topic: str, index: int) -> ErrorCode:
        known = self.image.topics.get(topic)
        if known is None or index not in known.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_offline = (known.id, index) in self.offline
        return ErrorCode.KAFKA_STORAGE_ERROR if is_offline else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def followed(self, topic_id: bytes, index: int) -> FollowedPartition | None:
        """A partition that this node follows, for consumers."""
        return self.replication.readable((topic_id, index))

    def producers(self, topic: str, index: int) -> Iterable[Producer] | None:
        """Those that a replica knows, whoever leads the partition."""
        log = self.log_of(TopicPartition(topic, index))
        return None if log is None else log.producers.producers.values()

    def folder_of(self, log: Log) -> LogFolder:
        """It may be offline by now."""
        return next(folder for folder in self.writings if log.folder.startswith(folder.path + "/"))

    def log_of(self, name: TopicPartition) -> Log | None:
        return next((folder.logs[name] for folder in self.folders if name in folder.logs), None)

    def writing_of(self, log: Log) -> Writing:
        return self.writings[self.folder_of(log)]

    # -- following the metadata

    async def set_strays_aside(self) -> None:
        """Before anything is followed: logs of topics that are no more, or that others have now, were left by an earlier run."""
        for folder in tuple(self.folders):
            try:
                await self.work.in_folder(folder, lambda folder=folder: self._set_strays_aside(folder))  # type: ignore[misc]
            except DiskFailed as error:
                self.failed(error)

    def _set_strays_aside(self, folder: LogFolder) -> None:
        for name, log in list(folder.logs.items()):
            try:
                topic_id = folder.topic_id(log)
            except CorruptFile as error:
                reason = f"{error}: nobody knows which topic the records are of; write its id there, or move the folder away"
                raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error
            if not self._is_ours(name, topic_id):
                moved = folder.set_aside(name, self.now_ms())
                logger.warning(
                    "%s: the cluster does not keep this partition here; it is set aside as %s: remove it when nobody misses it",
                    log.folder,
                    moved,
                )

    def _is_ours(self, name: TopicPartition, topic_id: UUID | None) -> bool:
        topic = self.image.topics.get(name.topic)
        if topic is None or topic_id is None or topic.id != topic_id.bytes:
            return False
        state = topic.partitions.get(name.partition)
        return state is not None and self.node_id in state.replicas

    async def follow(self, delta: Delta) -> None:
        """Makes the logs what the image says. When it returns, what is led here can be used. The image may be ahead of the delta:
        a topic that is no longer in it is left to the delta that deletes it."""
        for topic in delta.topics_deleted.values():
            await self._delete(topic)
        await self._make_logs(delta)
        for kind, topic_name in delta.configs:
            if kind == TOPIC_RESOURCE:
                self.configure(topic_name)  # before roles: what counts as committed is judged by the new min.insync.replicas
        for topic_id, index in delta.partitions:
            if topic_id in self.image.topics_by_id:
                self._take_role(self.image.topics_by_id[topic_id], index)
                self._report_directory(self.image.topics_by_id[topic_id], index)
        await self._leave(delta)
        if delta.brokers:
            self.advance()

    async def _make_logs(self, delta: Delta) -> None:
        """Those that are missing."""
        wanted: dict[LogFolder, dict[TopicPartition, UUID]] = {}
        lost = []
        for topic_id, index in delta.partitions:
            topic = self.image.topics_by_id.get(topic_id)
            if topic is None or self.node_id not in topic.partitions[index].replicas or (topic_id, index) in self.offline:
                continue
            name, directory = TopicPartition(topic.name, index), topic.partitions[index].directory(self.node_id)
            if self.log_of(name) is not None:
                continue
            folder = self._folder_for(directory, wanted)
            if folder is None:
                self.offline[topic_id, index] = None
                continue
            wanted.setdefault(folder, {})[name] = UUID(bytes=topic_id)
            if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY, folder.directory_id):
                self.never_made[topic_id, index] = None
            elif (topic_id, index) not in self.never_made and len(topic.partitions[index].replicas) > 1:
                lost.append(name)
        for folder, partitions in wanted.items():
            await self._create(folder, partitions)
        for name in lost:
            if (log := self.log_of(name)) is not None:
                log.damage = Damage(log.start_offset, "the folder that it was in is gone")

    def _report_directory(self, topic: Topic, index: int) -> None:
        """Lets the controller know of the folder that a log is in, when it thinks of another; or that nothing can be done with
        the log, and others have to."""
        name, state = TopicPartition(topic.name, index), topic.partitions[index]
        folder = next((folder for folder in self.folders if name in folder.logs), None)
        if (topic.id, index) in self.unmade or folder in self.full:
            is_lost = bool(set(state.isr) - {self.node_id})
        else:
            is_damaged = folder is not None and folder.logs[name].damage is not None
            is_lost = (is_damaged and len(state.replicas) > 1) or (topic.id, index) in self.copied_anew
        directory = LOST_DIRECTORY if is_lost else None if folder is None else folder.directory_id
        if self.node_id in state.replicas and directory is not None:
            self.directories.found((topic.id, index), directory)

    def _folder_for(self, directory_id: bytes, wanted: dict[LogFolder, dict[TopicPartition, UUID]]) -> LogFolder | None:
        """The folder that the metadata names; the one with the fewest logs, where it names none that could be offline."""
        for folder in self.folders:
            if folder.directory_id == directory_id:
                return folder
        if not self.folders or (self.offline_folders and directory_id != UNASSIGNED_DIRECTORY):
            return None
        return min(self.folders, key=lambda folder: (folder in self.full, len(folder.logs) + len(wanted.get(folder, ()))))

    async def _create(self, folder: LogFolder, partitions: dict[TopicPartition, UUID]) -> None:
        try:
            made = await self.work.in_folder(folder, folder.making(partitions, self.now_ms()))
        except (DiskFull, DiskFailed) as error:
            logger.error("%d new logs cannot be made in %s: %s", len(partitions), folder.path, error.strerror or error)
            if isinstance(error, DiskFailed):
                self.failed(error)
            else:
                self.filled(folder)
            made = {}
        if folder in self.folders:
            folder.adopt(made)
        unmade = partitions if folder not in self.folders else partitions.keys() - made.keys()
        self.unmade |= {(partitions[name].bytes, name.partition): None for name in unmade}
        for name in made:
            self.never_made.pop((partitions[name].bytes, name.partition), None)

    def take_unmade(self) -> Delta:
        """The partitions that are to be followed again."""
        unmade, self.unmade = self.unmade, {}
        return Delta(partitions=unmade)

    def _take_role(self, topic: Topic, index: int) -> None:
        """Leads a partition, or follows it, as the metadata says."""
        state, key = topic.partitions[index], (topic.id, index)
        led = self.by_name.get(topic.name, {})
        partition = led.get(index)
        log = self.log_of(TopicPartition(topic.name, index))
        if log is not None and log.damage is not None and not self._is_usable(topic, index, log):
            log = None
        if partition is not None and log is None:
            self._close(partition)
            partition = None
        if state.leader != self.node_id:
            if partition is not None:
                self._close(partition)
            if log is not None and self.node_id in state.replicas and self.folder_of(log) not in self.full:
                self.replication.follow(topic, index, state, log)
            else:
                self.replication.stop(key)
            return
        self.replication.stop(key)
        if partition is not None:
            partition.lead(state)
        elif log is not None:  # it could be made
            led = self.by_name.setdefault(topic.name, {})
            self.by_id[topic.id] = led
            partition = led[index] = Partition(self, log, topic.name, topic.id, index, state, self.topic_config(topic.name))
            self.by_leader[partition.leader] = partition

    def _is_usable(self, topic: Topic, index: int, log: Log) -> bool:
        """Whether a damaged log may be led or followed: the only one of its partition, or one that begins anew. That takes a
        leader, and a controller that knows not to elect this replica, eligible as it may be, until it has caught up."""
        state = topic.partitions[index]
        if len(state.replicas) == 1:
            return True
        is_eligible = self.node_id in state.elr and state.directory(self.node_id) != LOST_DIRECTORY
        if state.leader in (NO_LEADER, self.node_id) or self.node_id in state.isr or is_eligible:
            return False
        assert log.damage is not None
        self.replication.stop((topic.id, index))  # what is under way is of the log as it was
        if log.is_being_written:
            self.unmade[topic.id, index] = None  # tried again when the thread is done
            return False
        logger.warning("%s is damaged (%s): it is copied anew from node %d", log.folder, log.damage.reason, state.leader)
        try:
            log.reset_to(log.start_offset, self.now_ms())
            self.copied_anew[topic.id, index] = None
        except DiskFull as error:
            logger.error("%s cannot begin anew: %s", log.folder, error.strerror)
            self.filled(self.folder_of(log))
        except DiskFailed as error:
            self.failed(error)
        return log.damage is None

    def caught_up(self, key: TopicIdPartition) -> None:
        """A log that is copied anew has all that is committed: from now on it counts again."""
        if (topic := self.image.topics_by_id.get(key[0])) is not None and key in self.copied_anew:
            del self.copied_anew[key]
            self._report_directory(topic, key[1])

    def damaged(self, readable: Readable, offset: int, reason: str) -> None:
        """A reader found a log broken. Where others in sync have its records, one of them leads, and it is copied anew."""
        topic, log = self.image.topics_by_id.get(readable.topic_id), readable.log
        if topic is None or log.damage is not None or not set(topic.partitions[readable.index].isr) - {self.node_id}:
            return
        log.damage = Damage(offset, reason)
        self.unmade[topic.id, readable.index] = None
        logger.error("%s is damaged: %s", log.folder, reason)

    def _close(self, partition: Partition) -> None:
        """Leads a partition no longer."""
        del self.by_name[partition.topic][partition.index]
        del self.by_leader[partition.leader]
        partition.close()

    async def _leave(self, delta: Delta) -> None:
        """Deletes the logs of partitions that have gone to other brokers."""
        for topic_id, index in self.offline.keys() & delta.partitions.keys():
            known = self.image.topics_by_id.get(topic_id)
            if known is not None and self.node_id not in known.partitions[index].replicas:
                del self.offline[topic_id, index]
        for folder in tuple(self.folders):
            gone = []
            for topic_id, index in delta.partitions:
                topic = self.image.topics_by_id.get(topic_id)
                name = None if topic is None else TopicPartition(topic.name, index)
                if topic is not None and name in folder.logs and self.node_id not in topic.partitions[index].replicas:
                    gone.append(folder.forget(name))
                    self.copied_anew.pop((topic_id, index), None)
            if gone:
                await self._discard(folder, gone)

    async def _delete(self, topic: Topic) -> None:
        led = self.by_name.pop(topic.name, {})
        self.by_id.pop(topic.id, None)
        for partition in led.values():
            del self.by_leader[partition.leader]
            partition.close()
        for index in topic.partitions:
            self.replication.stop((topic.id, index))
            for kept in (self.offline, self.never_made, self.copied_anew):
                kept.pop((topic.id, index), None)
        for folder in tuple(self.folders):
            gone = [folder.forget(name) for name in list(folder.logs) if name.topic == topic.name]
            if gone:
                await self._discard(folder, gone)

    async def _discard(self, folder: LogFolder, logs: list[Log]) -> None:
        now_ms, note_gone = self.now_ms(), folder.noting_gone()

        def discard() -> None:
            folder.discard(logs, now_ms)
            with suppress(DiskFull):  # then it is done before the next log is made
                note_gone()

        try:
            await self.work.in_folder(folder, discard)
        except DiskFailed as error:
            self.failed(error)

    def topics_here(self) -> set[str]:
        """Of all logs, whoever leads them."""
        return {name.topic for folder in self.folders for name in folder.logs}

    def configure(self, topic: str) -> None:
        """Takes the settings of a topic, for what is led here and for what is followed."""
        known = self.image.topics.get(topic)
        config = None if known is None else self.topic_config(topic)
        self.quotas.throttle(topic, config)
        if known is None or config is None:
            return
        led = self.by_name.get(topic, {})
        for index in known.partitions:
            if index in led:
                led[index].configure(config)
            elif (log := self.log_of(TopicPartition(topic, index))) is not None:
                log.configure(log_config(config))

    async def note_starts(self, logs: list[Log]) -> None:
        """Until disks tell where logs start that have moved: what is below does not come back after a crash. Where there is no
        room, the next checkpoint notes it; where the disk has failed, nobody does."""
        for folder in tuple(self.folders):
            moved = [log for log in logs if log.folder.startswith(folder.path + "/")]
            if not moved:
                continue
            starts, save = [log.start_offset for log in moved], folder.saving(folder.starts())
            try:
                with suppress(DiskFull):
                    await self.work.in_folder(folder, save)
            except DiskFailed as error:
                self.failed(error)
                continue
            for log, start in zip(moved, starts):
                log.noted_start = max(log.noted_start, start)

    # -- what a partition tells

    def grew(self, partition: Partition) -> None:
        """Something was appended."""
        log = partition.log
        if partition.leader.appended(log.end_offset, self.monotonic_ms()):
            self.committed(partition)
        if partition.followers:
            self._wake_soon(self.grown, partition)
        self.work.flush_rolled(log)

    def committed(self, partition: Partition) -> None:
        """The high watermark has moved."""
        partition.log.move_high_watermark(partition.leader.high_watermark)
        if partition.readers:
            self._wake_soon(self.changed, partition)

    def _moved(self, leader: Leader) -> None:
        """An answer to a change of the ISR has moved its high watermark."""
        if (partition := self.by_leader.get(leader)) is not None:
            self.committed(partition)

    def tick(self) -> None:
        """To be called twice in `replica.lag.time.max.ms`: looks for followers that have fallen behind, and waits for them no
        longer."""
        now_ms = self.monotonic_ms()
        for leader, partition in self.by_leader.items():
            leader.tick(now_ms)
            if leader.unsent is not None:
                self.isr_reports.changed(partition)
            if leader.advance(now_ms):
                self.committed(partition)

    def advance(self) -> None:
        """The session of this node is certain again, or others have come or gone: what waited for that goes on."""
        now_ms = self.monotonic_ms()
        for leader, partition in self.by_leader.items():
            if leader.advance(now_ms):
                self.committed(partition)
            partition.look_at_deletions()

    def _wake_soon(self, waiting: dict[Partition, None], partition: Partition) -> None:
        if not self.changed and not self.grown:
            self.loop.call_soon(self._wake)
        waiting[partition] = None

    def _wake(self) -> None:
        changed, self.changed = self.changed, {}
        grown, self.grown = self.grown, {}
        for partition in grown:
            for follower in list(partition.followers):
                follower.partition_changed(partition)
        for partition in changed:
            for reader in list(partition.readers):
                reader.partition_changed(partition)

    def refused(self, partition: Readable, error: OSError) -> Refused:
        if isinstance(error, DiskFailed):
            self.failed(error)
        elif isinstance(error, DiskFull):
            self.filled(self.folder_of(partition.log))
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition}: {error.strerror or error}")

    # -- folders that are full

    def filled(self, folder: LogFolder) -> None:
        """There was no room: others lead what is in the folder, where others are in sync, until there is."""
        if folder in self.folders and folder not in self.full:
            logger.error("%s is full: others lead its partitions, as far as others have them, until there is room", folder.path)
            self.full[folder] = None
            self.loop.call_soon(self._step_back, folder)

    def reserve(self, path: str, is_reserved: bool) -> None:
        """Says whether only the metadata may be written to a folder, if that is one of ours."""
        for folder in [each for each in self.folders if each.path == path]:
            self.writings[folder].reserve(is_reserved)
            if is_reserved:
                self.filled(folder)

    def has_room(self, folder: LogFolder) -> None:
        logger.info("%s has room again", folder.path)
        del self.full[folder]
        self.unmade |= {(topic.id, index): None for topic, index in self._known_in(folder)}

    def _step_back(self, folder: LogFolder) -> None:
        for key, (follower, _) in list(self.replication.followers.items()):
            if self.folder_of(self.replication.logs[follower]) is folder:
                self.replication.stop(key)
        for topic, index in self._known_in(folder):
            self._report_directory(topic, index)

    def _known_in(self, folder: LogFolder) -> Iterator[tuple[Topic, int]]:
        """The partitions whose logs are in a folder, by their names: one may be of a topic that was deleted, and made anew, until
        the metadata is followed as far."""
        for name in folder.logs:
            topic = self.image.topics.get(name.topic)
            if topic is not None and name.partition in topic.partitions:
                yield topic, name.partition

    # -- folders that fail

    def failed(self, error: OSError) -> None:
        """A disk has failed, it says which: in a turn of its own it is looked whose, because whoever tells this may be about to
        use what is taken away then."""
        logger.debug("a disk has failed: %s", error)
        self.loop.call_soon(self.look_for_failures)

    def look_for_failures(self) -> None:
        """Now and then too: a disk may fail where nobody is told, as when an answer is sent from a file."""
        for folder in [each for each in self.folders if each.disk.failure is not None]:
            self._take_offline(folder)

    def _take_offline(self, folder: LogFolder) -> None:
        """Goes on without a folder: who waits for its partitions is told, and others may lead them."""
        self.folders.remove(folder)
        self.full.pop(folder, None)
        self.offline_folders.append(folder.path)
        logger.error(
            "%s has failed, and its %d partitions are offline: %s; look at its disk, then start the node again",
            folder.path,
            len(folder.logs),
            folder.disk.failure,
        )
        logs = {log: name for name, log in folder.logs.items()}
        for partition in [each for each in self.by_leader.values() if each.log in logs]:
            del logs[partition.log]
            self.offline[partition.topic_id, partition.index] = None
            self._close(partition)
        for key, (follower, _) in list(self.replication.followers.items()):
            if logs.pop(self.replication.logs[follower], None) is not None:
                self.offline[key] = None
                self.replication.stop(key)
        for name in logs.values():  # of the others only their names are known
            if (topic := self.image.topics.get(name.topic)) is not None:
                self.offline[topic.id, name.partition] = None
        folder.give_up()
        self.folder_failed(folder)

    # -- the end

    async def close(self, broker_epoch: int) -> None:
        """Syncs everything and leaves the mark of a clean stop."""
        await self.replication.close()
        for partitions in self.by_name.values():
            for partition in partitions.values():
                partition.close()
        for writing in self.writings.values():
            await writing.close()
        await self.work.finish()
        failures = []
        for folder in self.folders:
            is_whole = not any((topic.id, index) in self.copied_anew for topic, index in self._known_in(folder))
            close = partial(folder.close, self.now_ms(), broker_epoch, is_whole=is_whole)
            try:
                await self.work.in_folder(folder, close)
            except DiskFull:
                logger.error(
                    "%s: there is no room on the disk to stop cleanly: the next start takes longer, and counts as after a crash",
                    folder.path,
                )
            except DiskFailed as error:  # the others are closed first
                failures.append(error)
        self.work.close()
        if failures:
            raise failures[0]
