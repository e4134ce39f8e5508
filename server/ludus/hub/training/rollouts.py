"""Sample rollouts of training runs. All methods block, and any thread may call them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import undefer

from ludus.hub.database.engine import Database
from ludus.hub.database.training_tables import TrainingSample
from ludus.hub.people.viewers import Viewer
from ludus.hub.training.limits import TrainingLimits
from ludus.hub.training.store import check_bytes, find_run, find_sent
from ludus.protocol.errors import CapacityError, InvalidParams, NotFound, PayloadTooLarge
from ludus.protocol.text import printable
from ludus.protocol.trajectory import Trajectory, describe_invalid_line
from ludus.registry.types.training import ROLLOUT_BYTES, TrainingRollout
from ludus.viewing.conversation import reward_text


class SampleLine(NamedTuple):
    """A sample rollout in a list."""

    number: int
    step: int
    environment: str
    task: str
    reward: str
    outcome: str


class SampleStore:
    """The sample rollouts of training runs.

    Args:
        database: the hub's database.
        limits: the limits.
    """

    def __init__(self, database: Database, limits: TrainingLimits) -> None:
        self._database = database
        self._limits = limits

    def add(self, viewer: Viewer, key: str, sent: TrainingRollout) -> int:
        """Keep a rollout, and return its number in the run; one that was kept before keeps its number.

        Raises:
            NotFound, Forbidden: the viewer has no such run.
            Conflict: another process has continued the run.
            InvalidParams: it is not a trajectory.
            PayloadTooLarge: it is too large.
            CapacityError: the run has too many, or the account too many bytes.
        """
        text, trajectory = _checked(sent)
        digest = hashlib.sha256(f"{sent.step}\n{text}".encode()).hexdigest()
        with self._database.writing() as session:
            run = find_sent(session, viewer, key, sent.attempt)
            same = select(TrainingSample.number).where(TrainingSample.run_id == run.id, TrainingSample.digest == digest)
            known = session.scalar(same)
            if known is not None:
                return known
            if run.rollouts >= self._limits.rollouts:
                raise CapacityError(
                    f"the run has {run.rollouts} sample rollouts, the most of a run", limit="training_rollouts"
                )
            check_bytes(session, self._limits, run.principal, len(text))
            run.rollouts += 1
            run.size += len(text)
            session.add(
                TrainingSample(
                    run_id=run.id, number=run.rollouts, digest=digest, step=sent.step,
                    environment=printable(trajectory.environment)[:100], task=printable(trajectory.task.id)[:100],
                    reward=printable(reward_text(trajectory))[:80], outcome=printable(trajectory.outcome)[:60],
                    data=zlib.compress(text.encode()),
                )
            )  # fmt: skip
            return run.rollouts

    def list(self, viewer: Viewer, key: str) -> Sequence[SampleLine]:
        """Return the rollouts of a run in the order in which they came.

        Raises:
            NotFound: there is no run that the viewer sees.
        """
        with self._database.reading() as session:
            run = find_run(session, viewer, key)
            query = select(TrainingSample).where(TrainingSample.run_id == run.id).order_by(TrainingSample.number)
            return [
                SampleLine(row.number, row.step, row.environment, row.task, row.reward, row.outcome)
                for row in session.scalars(query)
            ]

    def rollout(self, viewer: Viewer, key: str, number: int) -> tuple[SampleLine, Trajectory, int]:
        """Return a rollout, its trajectory, and how many rollouts the run has.

        Raises:
            NotFound: there is none that the viewer sees.
        """
        with self._database.reading() as session:
            run = find_run(session, viewer, key)
            query = select(TrainingSample).where(TrainingSample.run_id == run.id, TrainingSample.number == number)
            found = query.options(undefer(TrainingSample.data))
            row = session.scalars(found).first() if number <= run.rollouts else None  # a database takes no larger ones
            if row is None:
                raise NotFound(f"the training run {run.key} has no rollout {number}")
            line = SampleLine(row.number, row.step, row.environment, row.task, row.reward, row.outcome)
            return line, Trajectory.model_validate_json(zlib.decompress(row.data)), run.rollouts

    def lines(self, viewer: Viewer, key: str) -> Iterator[bytes]:
        """Return all rollouts of a run as JSON lines, such as `ludus view` reads.

        Raises:
            NotFound: there is no run that the viewer sees.
        """
        with self._database.reading() as session:
            run_id, count = (run := find_run(session, viewer, key)).id, run.rollouts

        def read() -> Iterator[bytes]:
            for number in range(1, count + 1):
                with self._database.reading() as session:
                    query = select(TrainingSample.data).where(
                        TrainingSample.run_id == run_id, TrainingSample.number == number
                    )
                    data = session.scalar(query)
                if data is not None:
                    yield zlib.decompress(data) + b"\n"

        return read()

    def kept(self) -> int:
        """Return the number of all rollouts."""
        with self._database.reading() as session:
            return session.scalar(select(func.count()).select_from(TrainingSample)) or 0


def _checked(sent: TrainingRollout) -> tuple[str, Trajectory]:
    text = json.dumps(sent.trajectory, separators=(",", ":"))
    if len(text) > ROLLOUT_BYTES:
        raise PayloadTooLarge(
            f"the rollout has {len(text):,} bytes; {ROLLOUT_BYTES:,} are possible", limit="rollout_bytes"
        )
    try:
        return text, Trajectory.model_validate(sent.trajectory)
    except ValidationError as error:
        raise InvalidParams(f"this is not a trajectory: {describe_invalid_line(error)[:300]}") from None
