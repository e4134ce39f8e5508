"""The files of trajectories that people keep on the hub, each owner's in a folder of its own.

A kept file is the JSON lines as they came, and an index: one summary and one position for each line. So a page reads
one line and not the file. Files are written under a temporary name first.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import IO, Any, Final

from ludus.hub.rollout_index import RolloutFile, index_of, read_episode
from ludus.protocol.errors import InvalidParams, NotFound, PayloadTooLarge
from ludus.protocol.registry import OWNER_PATTERN
from ludus.protocol.trajectory import Trajectory

MEGABYTE: Final = 1024 * 1024
FILE_BYTES: Final = 32 * MEGABYTE
"""The largest file."""

OWNER_BYTES: Final = 256 * MEGABYTE
"""The most bytes of all files of an owner."""

OWNER_FILES: Final = 100
"""The most files of an owner."""

_ID: Final = re.compile(r"[a-z0-9]{16}")
_OWNER: Final = re.compile(OWNER_PATTERN)


class Rollouts:
    """The kept files. All methods block.

    Args:
        folder: the folder of all owners' folders.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, owner: str, name: str, data: IO[bytes]) -> RolloutFile:
        """Keep a file, and return it.

        Raises:
            PayloadTooLarge: it is too large, has too many lines, or the owner has no room left.
            InvalidParams: it has no episode.
        """
        self._check_room(owner)
        folder = self._of(owner)
        folder.mkdir(parents=True, exist_ok=True)
        new = f"{secrets.randbits(64):016x}"
        temporary = folder / f"{new}.new"
        try:
            with temporary.open("xb") as file:
                size = _copy(data, file)
            lines = tuple(index_of(temporary))
            if all(line.problem for line in lines):
                why = lines[0].problem if lines else "it is empty"
                raise InvalidParams(f"this file has no episode; it takes lines of `ludus run --out`: {why[:300]}")
            kept = RolloutFile(id=new, name=_plain_name(name), size=size, kept_at=time.time(), lines=lines)
            (folder / f"{new}.index").write_text(kept.model_dump_json(), encoding="utf-8")
            os.replace(temporary, folder / f"{new}.jsonl")
        except BaseException:
            temporary.unlink(missing_ok=True)
            (folder / f"{new}.index").unlink(missing_ok=True)
            raise
        return kept

    def files(self, owner: str) -> list[RolloutFile]:
        """Return the files of an owner, the newest first."""
        found = [self._read(path) for path in self._of(owner).glob("*.jsonl")]
        return sorted((one for one in found if one is not None), key=lambda one: one.kept_at, reverse=True)

    def file(self, owner: str, file_id: str) -> RolloutFile:
        """Return a file.

        Raises:
            NotFound: the owner has no such file.
        """
        found = self._read(self._path(owner, file_id))
        if found is None:
            raise NotFound("you keep no such file of rollouts")
        return found

    def episode(self, owner: str, file: RolloutFile, number: int) -> Trajectory:
        """Return the episode of a line.

        Raises:
            NotFound: the file has no such episode.
        """
        line = file.line(number)
        try:
            with self._path(owner, file.id).open("rb") as lines:
                return read_episode(lines, line)
        except FileNotFoundError:
            raise NotFound("you keep no such file of rollouts") from None

    def export(self, owner: str) -> list[dict[str, Any]]:
        """Return what is kept of an owner, as JSON: each file with its lines."""
        return [
            {"name": one.name, "keptAt": one.kept_at, "lines": self.path(owner, one).read_text("utf-8", "replace")}
            for one in self.files(owner)
        ]

    def delete(self, owner: str) -> None:
        """Remove all files of an owner."""
        shutil.rmtree(self._of(owner), ignore_errors=True)

    def path(self, owner: str, file: RolloutFile) -> Path:
        """Return where a file is."""
        return self._path(owner, file.id)

    def remove(self, owner: str, file_id: str) -> None:
        """Remove a file.

        Raises:
            NotFound: the owner has no such file.
        """
        path = self._path(owner, file_id)
        try:
            path.unlink()
        except FileNotFoundError:
            raise NotFound("you keep no such file of rollouts") from None
        path.with_suffix(".index").unlink(missing_ok=True)

    def _check_room(self, owner: str) -> None:
        sizes = [path.stat().st_size for path in self._of(owner).glob("*.jsonl")]
        if len(sizes) >= OWNER_FILES or sum(sizes) >= OWNER_BYTES:
            raise PayloadTooLarge(
                f"you keep {len(sizes)} files with {sum(sizes) // MEGABYTE} MiB; the hub keeps {OWNER_FILES} files and "
                f"{OWNER_BYTES // MEGABYTE} MiB for each owner: remove some first",
                limit="rollouts",
            )

    def _of(self, owner: str) -> Path:
        """Return the folder of an owner; names that could lead elsewhere are never used as they are."""
        name = owner if _OWNER.fullmatch(owner) else "x-" + owner.encode().hex()[:120]
        return self._folder / name

    def _path(self, owner: str, file_id: str) -> Path:
        if not _ID.fullmatch(file_id):
            raise NotFound("you keep no such file of rollouts")
        return self._of(owner) / f"{file_id}.jsonl"

    def _read(self, path: Path) -> RolloutFile | None:
        """Return a kept file; None if it is gone."""
        try:
            if not path.exists():
                return None
            return RolloutFile.model_validate_json(path.with_suffix(".index").read_bytes())
        except FileNotFoundError:
            return None


def _copy(source: IO[bytes], target: IO[bytes]) -> int:
    """Copy a file, and return its size."""
    source.seek(0, os.SEEK_END)
    size = source.tell()
    if size > FILE_BYTES:
        raise PayloadTooLarge(f"the file is larger than the {FILE_BYTES // MEGABYTE} MiB kept here", limit="rollouts")
    source.seek(0)
    shutil.copyfileobj(source, target)
    return size


def _plain_name(name: str) -> str:
    """Return the last part of a file's name, short and without control characters."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(character for character in last if character.isprintable())[:80] or "rollouts.jsonl"
