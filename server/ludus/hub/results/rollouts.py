"""The uploaded trajectories of reported runs, which all may see."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from fastapi.concurrency import run_in_threadpool

from ludus.hub.settings import MEGABYTE
from ludus.protocol.errors import InvalidParams, PayloadTooLarge
from ludus.viewing.reading import BrokenLine, read_lines

FILE_BYTES: Final = 32 * MEGABYTE
"""The largest file."""


class RunRollouts:
    """The files, under their digests.

    Args:
        folder: where they lie.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def receive(self, pieces: AsyncIterator[bytes]) -> str:
        """Keep a file, and return its digest.

        Raises:
            PayloadTooLarge: it is larger than `FILE_BYTES`.
            InvalidParams: one of its lines is not a trajectory.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f"{secrets.token_hex(8)}.new"
        digest, size = hashlib.sha256(), 0
        try:
            with draft.open("xb") as file:
                async for piece in pieces:
                    size += len(piece)
                    if size > FILE_BYTES:
                        raise PayloadTooLarge(f"a hub keeps at most {FILE_BYTES >> 20} MiB of a run", limit="rollouts")
                    digest.update(piece)
                    file.write(piece)
            await run_in_threadpool(_check, draft)
            os.replace(draft, self.path(digest.hexdigest()))
        finally:
            draft.unlink(missing_ok=True)
        return digest.hexdigest()

    def path(self, digest: str) -> Path:
        """Return where a file is."""
        return self._folder / f"{digest}.jsonl"

    def remove(self, digest: str) -> None:
        """Remove a file, if it is there."""
        self.path(digest).unlink(missing_ok=True)


def _check(path: Path) -> None:
    lines = 0
    for viewed in read_lines(path):
        lines += 1
        if isinstance(viewed, BrokenLine):
            raise InvalidParams(f"line {viewed.number} of the rollouts is not a trajectory: {viewed.problem[:300]}")
    if not lines:
        raise InvalidParams("the file of rollouts is empty")
