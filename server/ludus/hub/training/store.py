"""Training runs and their points in the database. All methods block, and any thread may call them.

How this works: a run's row is locked while a batch is added, and the batch and the run's counts are written in one
transaction. So a hub that is killed has either kept a batch or not, and a sender that repeats one gets the same answer.
Curves are made of a summary in the run's row and of the batches that came after it; once these hold `TAIL_VALUES`
values, the summary is renewed in a transaction of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Select, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, undefer

from ludus.hub.database.engine import Database
from ludus.hub.database.times import aware
from ludus.hub.database.training_tables import TrainingBatch, TrainingRun, TrainingSample
from ludus.hub.people.audit import note
from ludus.hub.people.viewers import Viewer
from ludus.hub.training.access import no_run, own_of, require_owner, visible_to
from ludus.hub.training.columns import pack, points_of, values_of
from ludus.hub.training.curves import Curves, limits_of_attempts
from ludus.hub.training.limits import TrainingLimits
from ludus.hub.training.opening import check_config, check_environments, open_run
from ludus.protocol.errors import CapacityError, Conflict
from ludus.registry.types.training import (
    METRICS,
    BatchKept,
    EndTraining,
    OpenTraining,
    PointBatch,
    PointPage,
    Restart,
    TrainingEnvironment,
    TrainingInfo,
    TrainingState,
    Visibility,
)

PAGE_RUNS: Final = 25
"""The number of runs on one page of a list."""

PAGE_BATCHES: Final = 20
"""The number of batches on one page of points."""

TAIL_VALUES: Final = 50_000
"""With how many values after the summary it is renewed."""

TAIL_BATCHES: Final = 200
"""With how many batches after the summary it is renewed."""


class RunCurves(NamedTuple):
    """A run and its curves, of one moment."""

    info: TrainingInfo
    curves: Curves


class TrainingStore:
    """The training runs of a hub.

    Args:
        database: the hub's database.
        limits: the limits.
    """

    def __init__(self, database: Database, limits: TrainingLimits) -> None:
        self._database = database
        self._limits = limits

    # ── senders ────────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, viewer: Viewer, sent: OpenTraining, address: str) -> tuple[TrainingInfo, bool]:
        """Open a run or continue it, and return it and whether it is new.

        Raises:
            PayloadTooLarge, InvalidParams: the configuration is too large, or has a secret.
            VersionBlocked: it trains on a version whose wheel is blocked.
            CapacityError: the account has too many runs, or this one was continued too often.
        """
        config = check_config(sent)
        try:
            info, is_new = self._open(viewer, sent, config, address)
        except IntegrityError:  # another request has opened it meanwhile
            info, is_new = self._open(viewer, sent, config, address)
        if not is_new:
            self._renew_summary(info.key)
        return info, is_new

    def _open(self, viewer: Viewer, sent: OpenTraining, config: str, address: str) -> tuple[TrainingInfo, bool]:
        now = datetime.now(UTC)
        with self._database.writing() as session:
            check_environments(session, viewer, sent)
            run, is_new = open_run(session, self._limits, viewer.name, sent, config, now, address)
            return self._info(run, now), is_new

    def append(self, viewer: Viewer, key: str, batch: PointBatch) -> BatchKept:
        """Keep a batch. One that was kept before is answered in the same way.

        Raises:
            NotFound, Forbidden: the viewer has no such run.
            Conflict: another process has continued the run, the run has ended, or another batch is expected; the
                error's data then has its number as `expected`.
            CapacityError: the run or the account has too many points, values, metrics or bytes.
        """
        packed, now = pack(batch.points), datetime.now(UTC)
        with self._database.writing() as session:
            run = find_sent(session, viewer, key, batch.attempt)
            if batch.number < run.next_batch:
                return _repeated(session, run, batch, packed.digest)
            if batch.number > run.next_batch:
                raise Conflict(
                    f"batch {batch.number} came, and batch {run.next_batch} is expected", expected=run.next_batch
                )
            _require_running(run)
            self._check_room(session, run, batch, packed.size)
            attempt = len(json.loads(run.attempts)) - 1
            session.add(
                TrainingBatch(
                    run_id=run.id, number=batch.number, attempt=attempt, digest=packed.digest,
                    points=len(batch.points), data=packed.data,
                )
            )  # fmt: skip
            run.next_batch += 1
            run.points += len(batch.points)
            run.values += sum(len(point.metrics) for point in batch.points)
            run.size += packed.size
            run.last_step = max(run.last_step or 0, *(point.step for point in batch.points))
            run.heard_at = now
            due = run.values - run.summary_values >= TAIL_VALUES or run.next_batch - run.summary_upto >= TAIL_BATCHES
        if due:
            self._renew_summary(key)
        return BatchKept(number=batch.number, points=len(batch.points))

    def hear(self, viewer: Viewer, key: str, attempt: str) -> TrainingInfo:
        """Note a sign of life.

        Raises:
            NotFound, Forbidden, Conflict: as for `append`.
        """
        now = datetime.now(UTC)
        with self._database.writing() as session:
            run = find_sent(session, viewer, key, attempt)
            _require_running(run)
            run.heard_at = now
            return self._info(run, now)

    def end(self, viewer: Viewer, key: str, sent: EndTraining) -> TrainingInfo:
        """End a run. One that has ended stays as it is.

        Raises:
            NotFound, Forbidden, Conflict: as for `append`.
        """
        now = datetime.now(UTC)
        with self._database.writing() as session:
            run = find_sent(session, viewer, key, sent.attempt)
            if run.state == "running":
                run.state, run.reason, run.ended_at, run.heard_at = sent.state, sent.reason, now, now
                run.dropped += sent.dropped
            return self._info(run, now)

    def _check_room(self, session: Session, run: TrainingRun, batch: PointBatch, size: int) -> None:
        known: list[str] = json.loads(run.metrics)
        names = dict.fromkeys([*known, *(name for point in batch.points for name in point.metrics)])
        if len(names) > METRICS:
            raise CapacityError(
                f"the run would have {len(names)} metrics; {METRICS} are possible", limit="metrics", maximum=METRICS
            )
        values = run.values + sum(len(point.metrics) for point in batch.points)
        if run.points + len(batch.points) > self._limits.run_points:
            raise CapacityError(
                f"the run has {run.points:,} points; {self._limits.run_points:,} are possible: report less often",
                limit="run_points",
            )
        if values > self._limits.run_values:
            raise CapacityError(
                f"the run has {run.values:,} values; {self._limits.run_values:,} are possible: report less often",
                limit="run_values",
            )
        check_bytes(session, self._limits, run.principal, size)
        if len(names) > len(known):
            run.metrics = json.dumps(list(names))

    # ── readers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def info(self, viewer: Viewer, key: str) -> TrainingInfo:
        """Return a run that a viewer sees.

        Raises:
            NotFound: there is none.
        """
        with self._database.reading() as session:
            return self._info(find_run(session, viewer, key), datetime.now(UTC))

    def runs(self, viewer: Viewer, page: int = 1, *, own: bool = False) -> tuple[list[TrainingInfo], int]:
        """Return one page of the runs that a viewer sees, the newest first, and the number of all of them.

        Args:
            viewer: who looks.
            page: the number of the page, from 1.
            own: whether to leave out the public runs of others.
        """
        seen = visible_to(viewer)
        if own:
            seen = own_of(viewer) & (TrainingRun.principal == viewer.name)
        now = datetime.now(UTC)
        with self._database.reading() as session:
            total = session.scalar(select(func.count()).select_from(TrainingRun).where(seen)) or 0
            query = select(TrainingRun).where(seen).order_by(TrainingRun.id.desc())
            rows = session.scalars(query.offset((page - 1) * PAGE_RUNS).limit(PAGE_RUNS))
            return [self._info(row, now).model_copy(update={"config": {}}) for row in rows], int(total)

    def curves(self, viewer: Viewer, key: str) -> RunCurves:
        """Return a run and its curves.

        Raises:
            NotFound: there is none that the viewer sees.
        """
        with self._database.reading() as session:
            run = find_run(session, viewer, key, summary=True)
            return RunCurves(self._info(run, datetime.now(UTC)), _curves(session, run))

    def points(self, viewer: Viewer, key: str, start: int) -> PointPage:
        """Return the batches of a run from a number on, one page of them, as they were sent.

        Raises:
            NotFound: there is no run that the viewer sees.
        """
        with self._database.reading() as session:
            run = find_run(session, viewer, key)
            query = select(TrainingBatch).where(TrainingBatch.run_id == run.id, TrainingBatch.number >= start)
            rows = session.scalars(query.order_by(TrainingBatch.number).limit(PAGE_BATCHES)).all()
            batches = tuple(
                PointBatch(attempt=f"attempt-{row.attempt}", number=row.number, points=points_of(row.data))
                for row in rows
            )
            after = rows[-1].number + 1 if rows else run.next_batch
            return PointPage(batches=batches, next=after if after < run.next_batch else None)

    # ── owners ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def set_visibility(self, viewer: Viewer, key: str, visibility: Visibility, address: str) -> TrainingInfo:
        """Change who sees a run.

        Raises:
            NotFound, Forbidden: the viewer has no such run.
        """
        now = datetime.now(UTC)
        with self._database.writing() as session:
            run = find_run(session, viewer, key, lock=True)
            require_owner(viewer, run)
            if run.public != (visibility == "public"):
                run.public = visibility == "public"
                what = f"training run made {visibility}"
                note(session, what, f"{run.key} {run.name}", actor=viewer.name, account=run.principal, address=address)
            return self._info(run, now)

    def delete(self, viewer: Viewer, key: str, address: str) -> None:
        """Delete a run with all its points and rollouts.

        Raises:
            NotFound, Forbidden: the viewer has no such run.
        """
        with self._database.writing() as session:
            run = find_run(session, viewer, key, lock=True)
            require_owner(viewer, run, moderates=True)
            what = f"{run.key} {run.name}"
            note(session, "training run deleted", what, actor=viewer.name, account=run.principal, address=address)
            delete_runs(session, [run.id])

    # ── common ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _info(self, run: TrainingRun, now: datetime) -> TrainingInfo:
        heard = aware(run.heard_at)
        is_lost = run.state == "running" and (now - heard).total_seconds() > self._limits.lost_seconds
        state: TrainingState = "lost" if is_lost else run.state  # type: ignore[assignment]
        attempts: list[Any] = json.loads(run.attempts)
        return TrainingInfo(
            key=run.key, name=run.name, by=run.principal, visibility="public" if run.public else "private",
            state=state, reason=run.reason, trainer=run.trainer, config=json.loads(run.config),
            environments=tuple(TrainingEnvironment.model_validate(one) for one in json.loads(run.environments)),
            steps=run.steps, last_step=run.last_step, points=run.points, dropped=run.dropped, rollouts=run.rollouts,
            next_batch=run.next_batch,
            restarts=tuple(Restart(step=step, at=datetime.fromtimestamp(at, UTC)) for step, at in attempts[1:]),
            created_at=aware(run.created_at), heard_at=heard,
            ended_at=aware(run.ended_at) if run.ended_at is not None else None, url=f"/training/{run.key}",
        )  # fmt: skip

    def _renew_summary(self, key: str) -> None:
        """Put all batches into the summary, unless another request does."""
        query = select(TrainingRun).where(TrainingRun.key == key).options(undefer(TrainingRun.summary))
        with self._database.reading() as session:
            run = session.scalars(query).first()
            if run is None:
                return
            before, attempts = run.summary_upto, run.attempts
            curves = _curves(session, run)
        with self._database.writing() as session:
            same = update(TrainingRun).where(
                TrainingRun.key == key, TrainingRun.summary_upto == before, TrainingRun.attempts == attempts
            )
            session.execute(same.values(summary=curves.pack(), summary_upto=curves.upto, summary_values=curves.values))


def find_run(session: Session, viewer: Viewer, key: str, *, lock: bool = False, summary: bool = False) -> TrainingRun:
    """Return a run that a viewer sees.

    Raises:
        NotFound: there is none.
    """
    query: Select[TrainingRun] = select(TrainingRun).where(TrainingRun.key == key, visible_to(viewer))
    if summary:
        query = query.options(undefer(TrainingRun.summary))
    run = session.scalars(query.with_for_update() if lock else query).first()
    if run is None:
        raise no_run(key)
    return run


def find_sent(session: Session, viewer: Viewer, key: str, attempt: str) -> TrainingRun:
    """Return the run of a sender, and lock it.

    Raises:
        NotFound, Forbidden: the viewer has no such run.
        Conflict: another process has continued the run.
    """
    run = find_run(session, viewer, key, lock=True)
    require_owner(viewer, run)
    if run.attempt != attempt:
        raise Conflict(f"another process has continued the training run {run.key}, so this one is not its sender")
    return run


def check_bytes(session: Session, limits: TrainingLimits, principal: str, size: int) -> None:
    """Check that an account may keep some bytes more.

    Raises:
        CapacityError: it has too many.
    """
    kept = session.scalar(select(func.sum(TrainingRun.size)).where(TrainingRun.principal == principal)) or 0
    if int(kept) + size > limits.account_bytes:
        raise CapacityError(
            f"{principal} has {int(kept) >> 20:,} MiB of training runs, and {limits.account_bytes >> 20:,} MiB are "
            "possible; delete some on the page /training",
            limit="training_bytes",
        )


def delete_runs(session: Session, ids: Sequence[int]) -> None:
    """Delete runs with all that belongs to them."""
    for table in (TrainingBatch, TrainingSample):
        session.execute(delete(table).where(table.run_id.in_(ids)))
    session.execute(delete(TrainingRun).where(TrainingRun.id.in_(ids)))


def _require_running(run: TrainingRun) -> None:
    if run.state != "running":
        raise Conflict(f"the training run {run.key} has ended; open it again to continue it")


def _repeated(session: Session, run: TrainingRun, batch: PointBatch, digest: str) -> BatchKept:
    """Return the answer to a batch that was kept before.

    Raises:
        Conflict: another batch has this number.
    """
    kept = session.get_one(TrainingBatch, (run.id, batch.number))
    if kept.digest != digest:
        raise Conflict(
            f"another batch {batch.number} is kept, and batch {run.next_batch} is expected", expected=run.next_batch
        )
    return BatchKept(number=kept.number, points=kept.points)


def _curves(session: Session, run: TrainingRun) -> Curves:
    """Return the curves of a run from its summary and the batches after it."""
    starts = [step for step, _ in json.loads(run.attempts)]
    curves = Curves.unpack(run.summary) if run.summary is not None else Curves(len(starts))
    limits = limits_of_attempts(starts)
    after = select(TrainingBatch.attempt, TrainingBatch.data).where(
        TrainingBatch.run_id == run.id, TrainingBatch.number >= curves.upto, TrainingBatch.number < run.next_batch
    )
    for attempt, data in session.execute(after.order_by(TrainingBatch.number).execution_options(yield_per=20)):
        curves.add(values_of(data), limits[attempt])
    return curves
