"""What a verified run has in addition to a played one, as the other parts of the results need it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from ludus.hub.database.verified_tables import VerifiedAttempt, VerifiedCall, VerifiedRun
from ludus.registry.types.results import VerifiedInfo
from ludus.registry.types.verified import CallRecord


def verified_of(session: Session, run_id: int) -> VerifiedInfo | None:
    """Return what ran in a verified run."""
    row = session.get(VerifiedRun, run_id)
    if row is None:
        return None
    return VerifiedInfo(harness=row.harness, harness_sha256=row.harness_sha256, host=row.host, model=row.model)


def calls_of(session: Session, run_id: int, first: int = 0, most: int | None = None) -> list[CallRecord]:
    """Return records of the calls of a run, by episode, start and number.

    Args:
        session: a session.
        run_id: the run.
        first: how many to leave out.
        most: the most to return; None for all.
    """
    query = select(VerifiedCall).where(VerifiedCall.run_id == run_id)
    order = (VerifiedCall.place, VerifiedCall.attempt, VerifiedCall.number)
    return [
        CallRecord(
            place=row.place, attempt=row.attempt, number=row.number, request=row.request, answer=row.answer,
            status=row.status, input_tokens=row.input_tokens, output_tokens=row.output_tokens,
        )
        for row in session.scalars(query.order_by(*order).offset(first).limit(most))
    ]  # fmt: skip


def remove_verified(session: Session, run_ids: Sequence[int], *, keep_runs: bool) -> None:
    """Remove what verified runs have: the calls, the outputs of the harness, and the runs' own rows unless kept."""
    session.execute(delete(VerifiedAttempt).where(VerifiedAttempt.run_id.in_(run_ids)))
    session.execute(delete(VerifiedCall).where(VerifiedCall.run_id.in_(run_ids)))
    if not keep_runs:
        session.execute(delete(VerifiedRun).where(VerifiedRun.run_id.in_(run_ids)))
