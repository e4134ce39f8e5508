"""Removes virtual environments that were unused for longest, but none that is in use.

How this works: who uses a virtual environment holds a shared lock on its folder, which the system drops when the
process dies. It is removed only under an exclusive lock, and is first renamed to the name of a temporary folder: so a
half-removed one is never taken for a whole one, and what a killed hub leaves is removed at the next start.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Final

from ludus.sandbox.core.stale import OWNER

SIZE_FILE: Final = "ludus-size"
"""The file in a virtual environment with its size in bytes."""

_NAME: Final = re.compile(r"[0-9a-f]{64}")


def lock_folder(folder: Path) -> int | None:
    """Return a descriptor that keeps a folder from being removed until it is closed; None if it is being removed."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.stat(folder).st_ino == os.fstat(descriptor).st_ino:  # not renamed meanwhile
            os.utime(folder)
            return descriptor
    os.close(descriptor)
    return None


def remove_unused(folder: Path, most: int, most_bytes: int, keep: Path | None = None) -> list[str]:
    """Remove those unused for longest until there are few and small enough; return the names of those removed.

    Args:
        folder: the folder of all virtual environments.
        most: how many may stay.
        most_bytes: how many bytes may stay.
        keep: one that stays.
    """
    found = sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), key=_used_at)
    sizes = {path: size_of(path) for path in found}
    count, total, removed = len(found), sum(sizes.values()), []
    for path in found:
        if count <= most and total <= most_bytes:
            break
        if path != keep and _remove(path):
            count, total = count - 1, total - sizes[path]
            removed.append(path.name)
    return removed


def note_size(folder: Path) -> None:
    """Write the size of a virtual environment into it."""
    size = sum(os.lstat(os.path.join(place, name)).st_size for place, _, files in os.walk(folder) for name in files)
    (folder / SIZE_FILE).write_text(str(size))


def size_of(folder: Path) -> int:
    """Return the size of a virtual environment; 0 for one that is being removed."""
    try:
        return int((folder / SIZE_FILE).read_text())
    except (OSError, ValueError):
        return 0


def _used_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _remove(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    draft = path.with_name(f".{OWNER}-{secrets.token_hex(4)}")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.rename(draft)
    except OSError:  # it is in use
        return False
    finally:
        os.close(descriptor)
    shutil.rmtree(draft, ignore_errors=True)
    return True
