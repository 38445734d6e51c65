"""The rules of topics that are made anew under a name that was used, and how to do without each: what is written, kept and served
for the one must not be for the other.
"""

from typing import Final

from odradek.core.groups import offset_requests
from odradek.log.folder import LogFolder
from odradek.log.log import Log
from odradek.log.names import TopicPartition
from odradek.log.write import Write
from tests.sim.mutants.mutant import Mutant, Patch

# -- logs


def file_of_the_log(patch: Patch) -> None:
    """A thread opens the file that it writes by its name."""

    def run(write: Write) -> None:
        write.segment._file = None
        write.file = write.segment.file
        write.file.append([write.data])

    patch.setattr(Write, "run", run)


def mark_of_a_log_that_is_gone(patch: Patch) -> None:
    """A flush writes the leader epochs of a log whose name may be another's."""
    known = LogFolder.forget

    def forget(folder: LogFolder, partition: TopicPartition) -> Log:
        log = known(folder, partition)
        log.is_gone = False
        return log

    patch.setattr(LogFolder, "forget", forget)


# -- committed offsets


def offsets_of_the_topic(patch: Patch) -> None:
    """Until they are deleted, a while later, offsets of one topic are told as those of the next one of its name."""
    patch.setattr(offset_requests, "is_of_other_topic", lambda *_: False)


MUTANTS: Final = (
    Mutant("a thread writes to the file of its log", file_of_the_log, "slow disks", "renewal"),
    Mutant("a flush writes no epochs of a log that is gone", mark_of_a_log_that_is_gone, "slow disks", "renewal"),
    Mutant("offsets are those of a topic, not of a name", offsets_of_the_topic, "slow disks", "renewal"),
)
