"""Verified runs in the database. All methods block, and any thread may call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.orm import Session

from ludus.hub.database.engine import Database
from ludus.hub.database.result_tables import ResultRun
from ludus.hub.database.verified_tables import VerifiedAttempt, VerifiedCall, VerifiedRun
from ludus.hub.results.processes import is_other
from ludus.hub.results.store import no_run
from ludus.hub.results.verified_rows import calls_of
from ludus.protocol.errors import CapacityError
from ludus.registry.types.results import VerifiedInfo
from ludus.registry.types.verified import CallRecord, HarnessOutput

PAGE_CALLS: Final = 500
"""The number of calls on one page."""

PAGE_OUTPUTS: Final = 50
"""The number of endings of a harness on one page."""


@dataclass(frozen=True)
class Setup:
    """What a verified run runs with.

    Attributes:
        verified: the harness and the model endpoint, as all may see them.
        base_url: the address of the endpoint.
        sealed: the account's key for it, encrypted.
        most_tokens: the most tokens of all calls.
        spent: the tokens of all calls so far.
    """

    verified: VerifiedInfo
    base_url: str
    sealed: str = field(repr=False)
    most_tokens: int
    spent: int = 0


@dataclass(frozen=True)
class MostOpen:
    """The most open verified runs."""

    of_account: int
    of_hub: int


class VerifiedStore:
    """What verified runs have in addition to played ones.

    Args:
        database: the hub's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def may_open(self, principal: str, most: MostOpen) -> None:
        """Check that an account may open one more verified run.

        Raises:
            CapacityError: it has too many, or the hub has.
        """
        with self._database.reading() as session:
            _check_open(session, principal, most)

    def attaching(self, setup: Setup, principal: str, most: MostOpen) -> Callable[[Session, int], None]:
        """Return the function that writes a setup in the transaction that registers its run.

        Args:
            setup: what the run runs with.
            principal: its account.
            most: checked again there, because the account may have registered others meanwhile.
        """

        def attach(session: Session, run_id: int) -> None:
            _check_open(session, principal, most)
            one = setup.verified
            session.add(
                VerifiedRun(
                    run_id=run_id, harness=one.harness, harness_sha256=one.harness_sha256, host=one.host,
                    model=one.model, base_url=setup.base_url, sealed=setup.sealed, most_tokens=setup.most_tokens,
                )
            )  # fmt: skip

        return attach

    def setup(self, key: str) -> Setup | None:
        """Return what an open run runs with; None if it has ended."""
        with self._database.reading() as session:
            row = session.get(VerifiedRun, _id(session, key))
            if row is None or row.base_url is None or row.sealed is None:
                return None
            calls = select(
                func.coalesce(func.sum(VerifiedCall.input_tokens), 0)
                + func.coalesce(func.sum(VerifiedCall.output_tokens), 0)
            )
            spent = session.scalar(calls.where(VerifiedCall.run_id == row.run_id)) or 0
            info = VerifiedInfo(harness=row.harness, harness_sha256=row.harness_sha256, host=row.host, model=row.model)
            return Setup(info, row.base_url, row.sealed, row.most_tokens, int(spent))

    def driver(self, key: str, own: str, *, take: bool = False) -> str | None:
        """Return which other process of the hub plays a run; None if it is this one, or none.

        Args:
            key: the run.
            own: the id of this process.
            take: whether this process plays it from now on, if no other one does.

        Raises:
            NotFound: there is no such run.
        """
        with self._database.writing() if take else self._database.reading() as session:
            query = select(VerifiedRun).where(VerifiedRun.run_id == _id(session, key))
            row = session.scalars(query.with_for_update() if take else query).first()
            if row is None:
                return None
            if is_other(session, row.process, own):
                return row.process
            if take:
                row.process = own
            return None

    def keep_call(self, key: str, call: CallRecord) -> bool:
        """Write the record of a call, in place of an earlier one of the same call; return whether the run is open."""
        with self._database.writing() as session:
            run = session.scalars(select(ResultRun).where(ResultRun.key == key).with_for_update()).first()
            if run is None or run.state != "open":
                return False
            session.merge(VerifiedCall(run_id=run.id, **call.model_dump(by_alias=False)))
            return True

    def add_attempt(self, key: str, ended: HarnessOutput, calls: Sequence[CallRecord]) -> bool:
        """Write how the harness of one start of an episode ended, with its calls; return whether the run was open.

        Records of these calls that were kept before are replaced.
        """
        with self._database.writing() as session:
            query = select(ResultRun).where(ResultRun.key == key).with_for_update()
            run = session.scalars(query).first()
            if run is None or run.state != "open":
                return False
            if calls:
                numbers = [call.number for call in calls]
                kept = VerifiedCall.place == ended.place, VerifiedCall.attempt == ended.attempt
                before = delete(VerifiedCall).where(VerifiedCall.run_id == run.id, *kept)
                session.execute(before.where(VerifiedCall.number.in_(numbers)))
                session.execute(
                    insert(VerifiedCall), [{"run_id": run.id, **call.model_dump(by_alias=False)} for call in calls]
                )
            session.add(
                VerifiedAttempt(
                    run_id=run.id, place=ended.place, attempt=ended.attempt, ending=ended.ending, output=ended.output
                )
            )
            return True

    def calls(self, key: str) -> list[CallRecord]:
        """Return the records of all calls of a run."""
        with self._database.reading() as session:
            return calls_of(session, _id(session, key))

    def call_page(self, key: str, page: int) -> tuple[list[CallRecord], int]:
        """Return one page of the records, and the number of all."""
        with self._database.reading() as session:
            run_id = _id(session, key)
            total = session.scalar(select(func.count()).where(VerifiedCall.run_id == run_id)) or 0
            return calls_of(session, run_id, (page - 1) * PAGE_CALLS, PAGE_CALLS), total

    def outputs(self, key: str, page: int) -> list[HarnessOutput]:
        """Return one page of the endings of a run's harness, the last episode first."""
        with self._database.reading() as session:
            query = select(VerifiedAttempt).where(VerifiedAttempt.run_id == _id(session, key))
            query = query.order_by(VerifiedAttempt.place.desc(), VerifiedAttempt.attempt.desc())
            return [
                HarnessOutput(place=one.place, attempt=one.attempt, ending=one.ending, output=one.output)
                for one in session.scalars(query.offset((page - 1) * PAGE_OUTPUTS).limit(PAGE_OUTPUTS))
            ]

    def forget_keys(self) -> None:
        """Delete the addresses and keys of the endpoints of all ended runs."""
        ended = select(ResultRun.id).where(ResultRun.state == "ended")
        kept = VerifiedRun.run_id.in_(ended), VerifiedRun.sealed.is_not(None)
        with self._database.writing() as session:
            session.execute(update(VerifiedRun).where(*kept).values(sealed=None, base_url=None))


def _check_open(session: Session, principal: str, most: MostOpen) -> None:
    joined = select(func.count()).select_from(VerifiedRun).join(ResultRun, ResultRun.id == VerifiedRun.run_id)
    is_open = joined.where(ResultRun.state == "open")
    if (count := session.scalar(is_open) or 0) >= most.of_hub:
        raise CapacityError(
            f"{count} verified runs are open on this hub; try again later", limit="open_runs_of_hub", retryAfter=600.0
        )
    if (session.scalar(is_open.where(ResultRun.principal == principal)) or 0) >= most.of_account:
        raise CapacityError(
            f"{principal} has {most.of_account} open verified runs: wait for the end of one, or end it",
            limit="open_runs",
        )


def _id(session: Session, key: str) -> int:
    found = session.scalar(select(ResultRun.id).where(ResultRun.key == key))
    if found is None:
        raise no_run(key)
    return found
