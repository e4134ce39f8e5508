"""The training runs of a person.

An export holds all of them with their points, and a deleted account takes them along.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import undefer

from ludus.hub.database.engine import Database
from ludus.hub.database.times import aware
from ludus.hub.database.training_tables import TrainingBatch, TrainingRun, TrainingSample
from ludus.hub.training.columns import text_of
from ludus.hub.training.store import delete_runs


class PersonalTraining:
    """Exports and deletes the training runs of a person. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def export(self, owner: str) -> list[dict[str, Any]]:
        """Return the runs of an owner as JSON: points and rollouts as lines of JSON, points by column."""
        with self._database.reading() as session:
            runs = session.scalars(select(TrainingRun).where(TrainingRun.principal == owner).order_by(TrainingRun.id))
            found = []
            for run in runs.all():
                batches = select(TrainingBatch.data).where(TrainingBatch.run_id == run.id)
                samples = select(TrainingSample).where(TrainingSample.run_id == run.id)
                rows = session.scalars(samples.order_by(TrainingSample.number).options(undefer(TrainingSample.data)))
                found.append(
                    {
                        "run": run.key, "name": run.name, "public": run.public, "state": run.state,
                        "trainer": run.trainer, "config": json.loads(run.config),
                        "environments": json.loads(run.environments),
                        "createdAt": aware(run.created_at).isoformat(),
                        "points": [text_of(data) for data in session.scalars(batches.order_by(TrainingBatch.number))],
                        "rollouts": [{"step": row.step, "line": zlib.decompress(row.data).decode()} for row in rows],
                    }
                )  # fmt: skip
            return found

    def delete(self, owner: str) -> None:
        """Delete all runs of an owner."""
        with self._database.writing() as session:
            query = select(TrainingRun.id).where(TrainingRun.principal == owner).with_for_update()
            delete_runs(session, session.scalars(query).all())
