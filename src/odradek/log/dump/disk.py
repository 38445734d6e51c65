"""A disk that is only looked at: files that belong to somebody else, perhaps to a node that is running."""

import os

from odradek.log.disk import DiskFailed, RealDisk, RealFile


class ReadOnlyDisk(RealDisk):
    """Opens files without asking for the right to write them. One that cannot be read says nothing of the others."""

    def fail(self, error: OSError) -> DiskFailed:
        return DiskFailed(*error.args)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        assert not create
        self.check()
        return RealFile(self, path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
