"""Checks that the points of training runs are whole: each batch has its digest, and none is missing."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator

from sqlalchemy import Connection, select

from ludus.hub.database.training_tables import TrainingBatch, TrainingRun


def broken_runs(connection: Connection) -> Iterator[tuple[str, str]]:
    """Yield the key of each run whose points are not as they were kept, and what is wrong."""
    for row in connection.execute(select(TrainingRun.id, TrainingRun.key, TrainingRun.next_batch, TrainingRun.points)):
        batches = select(TrainingBatch.number, TrainingBatch.digest, TrainingBatch.points, TrainingBatch.data)
        found = batches.where(TrainingBatch.run_id == row.id).order_by(TrainingBatch.number)
        expected = points = 0
        for batch in connection.execute(found.execution_options(yield_per=20)):
            if batch.number != expected:
                yield row.key, f"batch {expected} of its points is missing"
                break
            if not _is_whole(batch.data, batch.digest, batch.points):
                yield row.key, f"batch {expected} of its points was changed"
                break
            expected, points = expected + 1, points + batch.points
        else:
            if (expected, points) != (row.next_batch, row.points):
                yield row.key, f"it has {points:,} points, and {row.points:,} were kept"


def _is_whole(data: bytes, digest: str, points: int) -> bool:
    try:
        text = zlib.decompress(data)
        return hashlib.sha256(text).hexdigest() == digest and len(json.loads(text)["step"]) == points
    except (zlib.error, ValueError, LookupError, TypeError):
        return False
