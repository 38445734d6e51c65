"""A disk that is only looked at: files that belong to somebody else, perhaps to a node that is running."""

import os
from contextlib import suppress

from odradek.log.disk import RealDisk, RealFile


class ReadOnlyDisk(RealDisk):
    """Opens files without asking for the right to write them, and does not mind that some vanish while it looks."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        assert not create
        self.check()
        return RealFile(self, path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def names(self, folder: str) -> list[tuple[str, int]]:
        self.check()
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    found.append((entry.name, -1 if entry.is_dir() else entry.stat().st_size))
        return sorted(found)
