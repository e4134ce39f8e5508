"""Disks without room: a small file system in memory, or a limit on the size of a server's files."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

ROOM = 64 * 1024 * 1024


class SmallDisk:
    """A file system in memory, mounted at a folder. It needs root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)], check=True)
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no byte free."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1024 * 1024, 4096, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        """Make room again."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it; files that are still open stay until they are closed."""
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


def can_mount() -> bool:
    """Return whether this process may mount a file system."""
    return os.geteuid() == 0 and subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False, capture_output=True
    ).returncode == 0  # fmt: skip


def limit_files(pid: int, size: int) -> None:
    """Let no file of a process grow beyond a size, so that writing fails as on a disk with an error."""
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def allow_files(pid: int) -> None:
    """Let the files of a process grow again."""
    limit_files(pid, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1])
