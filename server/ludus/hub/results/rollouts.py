"""The uploaded trajectories of reported runs, which all may see. They lie among the hub's blobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from fastapi.concurrency import run_in_threadpool

from ludus.hub.blobs import BlobStore, Incoming
from ludus.hub.settings import MEGABYTE
from ludus.protocol.errors import InvalidParams
from ludus.viewing.reading import BrokenLine, read_lines

FILE_BYTES: Final = 32 * MEGABYTE
"""The largest file."""


async def receive_rollouts(blobs: BlobStore, pieces: AsyncIterator[bytes]) -> str:
    """Keep a file of trajectories, and return its digest.

    Raises:
        PayloadTooLarge: it is larger than `FILE_BYTES`.
        InvalidParams: one of its lines is not a trajectory.
        HubUnavailable: the object store cannot be used.
    """
    with blobs.receiving(FILE_BYTES, "rollouts") as incoming:
        async for piece in pieces:
            incoming.write(piece)
        return await run_in_threadpool(_keep, blobs, incoming)


def _keep(blobs: BlobStore, incoming: Incoming) -> str:
    incoming.flush()
    _check(incoming.path)
    return blobs.keep(incoming)


def _check(path: Path) -> None:
    lines = 0
    for viewed in read_lines(path):
        lines += 1
        if isinstance(viewed, BrokenLine):
            raise InvalidParams(f"line {viewed.number} of the rollouts is not a trajectory: {viewed.problem[:300]}")
    if not lines:
        raise InvalidParams("the file of rollouts is empty")
