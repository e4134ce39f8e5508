"""Boards, runs and episodes in the database. All methods block, and any thread may call them.

A board's row is locked while its runs change, so numbers of runs are without gaps, and the board's document always fits
its runs. A played run is written in three steps: registered with all its episodes, each episode settled when it ends,
and the figures when the last one has ended. A hub that is killed in between loses no settled episode.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import Select, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ludus.hub.database.engine import Database
from ludus.hub.database.result_tables import ResultBoard, ResultEpisode, ResultLogLine, ResultRun
from ludus.hub.database.times import aware
from ludus.hub.results.boards import add_ended, count_again, level_of, range_of, read_board
from ludus.hub.results.processes import check_here, played_elsewhere
from ludus.hub.settings.results import ResultLimits
from ludus.protocol.errors import CapacityError, Conflict, Forbidden, NotFound
from ludus.registry.types.receipts import SignedReceipt
from ludus.registry.types.results import (
    NOT_BEGUN,
    Board,
    BoardKey,
    Declared,
    LogEntry,
    Opening,
    Removal,
    RunEpisode,
    RunFigures,
    RunInfo,
    counted_value,
    lowest_value,
)

OPENING_LOCK: Final = 7_358
"""The kind of the lock that an account's registrations hold; see `Database.lock_name`."""

PAGE_ROWS: Final = 200
"""The number of episodes on one page of a run."""

PAGE_LINES: Final = 100
"""The number of lines on one page of a board."""

ACCOUNT_RUNS: Final = 50
"""The most runs of its account that the page of a run names."""

LOG_LINES: Final = 50
"""The number of lines on one page of the log."""


@dataclass(frozen=True)
class NewRun:
    """A run to register."""

    board: BoardKey
    sha256: str
    principal: str
    by_publisher: bool
    declared: Declared
    tasks: int
    samples: int
    success_at: float
    reward_range: tuple[float, float] | None
    created_at: datetime
    deadline: datetime | None = None
    opening: Opening | None = None
    commitment: str | None = None
    digest: str | None = None


@dataclass(frozen=True)
class Claim:
    """An episode that was given out."""

    place: int
    index: int
    seed: int | None


@dataclass(frozen=True)
class Outcome:
    """How an episode ended."""

    end: str
    reward: float | None
    value: float
    steps: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class RunView(NamedTuple):
    """What the page of a run shows."""

    run: RunInfo
    rows: list[RunEpisode]
    total: int
    """The number of all rows."""
    opening: Opening | None
    """None while the run is open."""
    account_runs: list[RunInfo]
    """The first runs of the same account on the same board."""


class Conclusion(NamedTuple):
    """What is computed when a run ends."""

    figures: RunFigures
    per_task: str
    """The sums of the tasks as JSON."""
    receipt: SignedReceipt | None


Conclude = Callable[[RunInfo, Sequence[RunEpisode], Opening | None], Conclusion]
"""Computes the conclusion of a run from its rows."""


class ResultStore:
    """The results of a hub.

    Args:
        database: the hub's database.
        limits: the limits on runs.
    """

    def __init__(self, database: Database, limits: ResultLimits) -> None:
        self._database = database
        self._limits = limits
        self.process: str | None = None  # the id of this process, which `PlayedRuns` keeps up to date

    # ── runs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, new: NewRun, rows: Sequence[RunEpisode], state: str = "waiting") -> str:
        """Add a run with its episodes, and return its key.

        Raises:
            CapacityError: the account has too many runs, open or on this board.
            IntegrityError: the board has a run with the same digest.
        """
        self._ensure_board(new)
        with self._database.writing() as session:
            self._database.lock_name(session, OPENING_LOCK, new.principal)
            board = _board(session, new.board, lock=True)
            assert board is not None
            mine = select(func.count()).where(ResultRun.board_id == board.id, ResultRun.principal == new.principal)
            number = session.scalar(mine) or 0
            if number >= self._limits.runs_of_board:
                raise CapacityError(
                    f"{new.principal} has {number} runs on this board, which is the most of an account",
                    limit="runs_of_board",
                )
            if new.opening is not None:
                self.check_open(session, new.principal)
            run = _row_of(new, board.id, number + 1)
            session.add(run)
            session.flush()
            session.execute(insert(ResultEpisode), [_episode_row(run.id, row, state, new.created_at) for row in rows])
            return run.key

    def check_open(self, session: Session, principal: str) -> None:
        """Check that an account may open one more played run.

        Raises:
            CapacityError: it has too many, or the hub has.
        """
        is_open = select(func.count()).where(ResultRun.state == "open")
        if (session.scalar(is_open.where(ResultRun.principal == principal)) or 0) >= self._limits.open_runs:
            raise CapacityError(
                f"{principal} has {self._limits.open_runs} open runs: finish or end one first", limit="open_runs"
            )
        if (session.scalar(is_open) or 0) >= self._limits.open_runs_of_hub:
            raise CapacityError(
                f"{self._limits.open_runs_of_hub} runs are open on this hub; try again later",
                limit="open_runs_of_hub", retryAfter=60.0,
            )  # fmt: skip

    def may_open(self, principal: str) -> None:
        """Check that an account may open one more played run; see `check_open`."""
        with self._database.reading() as session:
            self.check_open(session, principal)

    def run(self, key: str) -> RunInfo:
        """Return a run.

        Raises:
            NotFound: there is none with this key.
        """
        with self._database.reading() as session:
            return _info(session, *_find(session, key))

    def run_view(self, key: str, page: int, size: int) -> RunView:
        """Return what the page of a run shows, with one page of its rows if it has ended.

        Raises:
            NotFound: there is no run with this key.
        """
        with self._database.reading() as session:
            run, board = _find(session, key)
            same = select(ResultRun).where(ResultRun.board_id == board.id, ResultRun.principal == run.principal)
            runs = session.scalars(same.order_by(ResultRun.number)).all()
            rows: list[RunEpisode] = []
            if run.state == "ended":
                query = select(ResultEpisode).where(ResultEpisode.run_id == run.id).order_by(ResultEpisode.place)
                found = session.scalars(query.offset((page - 1) * size).limit(size))
                rows = [_public_row(row, lowest_value(range_of(run))) for row in found]
            opening = Opening.model_validate_json(run.opening) if run.opening and run.state == "ended" else None
            info = _info(session, run, board, len(runs))
            others = [_info(session, one, board, len(runs)) for one in runs[:ACCOUNT_RUNS]]
            return RunView(info, rows, run.tasks * run.samples, opening, others)

    def find_digest(self, board: BoardKey, digest: str) -> RunInfo | None:
        """Return the run of a board with this digest."""
        with self._database.reading() as session:
            found = _board(session, board)
            if found is None:
                return None
            query = select(ResultRun).where(ResultRun.board_id == found.id, ResultRun.digest == digest)
            run = session.scalars(query).first()
            return _info(session, run, found) if run is not None else None

    def opening(self, key: str) -> Opening | None:
        """Return the opening of a run's commitment, whether or not it may be shown yet."""
        with self._database.reading() as session:
            run, _ = _find(session, key)
            return Opening.model_validate_json(run.opening) if run.opening is not None else None

    def receipt(self, key: str) -> str | None:
        """Return the signed receipt of a run as JSON; None if it has none."""
        with self._database.reading() as session:
            return _find(session, key)[0].receipt

    def rows(self, key: str, page: int | None = None, size: int = PAGE_ROWS) -> tuple[list[RunEpisode], int]:
        """Return the rows of a run in order of their places, one page of them or all, and their number."""
        with self._database.reading() as session:
            run, _ = _find(session, key)
            query = select(ResultEpisode).where(ResultEpisode.run_id == run.id).order_by(ResultEpisode.place)
            if page is not None:
                query = query.offset((page - 1) * size).limit(size)
            lowest = lowest_value(range_of(run))
            return [_public_row(row, lowest) for row in session.scalars(query)], run.tasks * run.samples

    # ── episodes of open runs ──────────────────────────────────────────────────────────────────────────────────────

    def claim(self, key: str, now: datetime) -> Claim | None:
        """Give out the next waiting episode of a run; None if there is none, or the run has ended meanwhile.

        Raises:
            NotFound: there is no such run.
            RunElsewhere: another process of the hub plays it.
        """
        with self._database.writing() as session:
            run, _ = _find(session, key, lock=True)
            if run.state != "open":
                return None
            check_here(session, run, self.process)
            query = select(ResultEpisode).where(ResultEpisode.run_id == run.id, ResultEpisode.state == "waiting")
            row = session.scalars(query.order_by(ResultEpisode.place).limit(1)).first()
            if row is None:
                return None
            row.state, row.attempts, row.started_at, row.process = "open", row.attempts + 1, now, self.process
            return Claim(row.place, row.task_index, row.seed)

    def counts(self, key: str) -> dict[str, int]:
        """Return the number of episodes of a run by state."""
        with self._database.reading() as session:
            run, _ = _find(session, key)
            query = select(ResultEpisode.state, func.count()).where(ResultEpisode.run_id == run.id)
            return {state: count for state, count in session.execute(query.group_by(ResultEpisode.state))}

    def release(self, key: str, place: int, *, is_rerun: bool) -> bool:
        """Put an open episode back, and return whether it was done.

        Args:
            key: the run.
            place: the episode.
            is_rerun: whether the episode had begun and broke. Such episodes are bounded: by attempts, and by the share
                of the run that is started again.
        """
        with self._database.writing() as session:
            run, _ = _find(session, key, lock=True)
            row = session.get(ResultEpisode, (run.id, place))
            if row is None or (row.state, row.process) != ("open", self.process) or run.state != "open":
                return False
            if is_rerun:
                most = max(2, int(run.tasks * run.samples * self._limits.reruns_share))
                if row.attempts >= self._limits.attempts or run.reruns >= most:
                    return False
                run.reruns += 1
            else:
                row.attempts -= 1
            row.state, row.started_at, row.process = "waiting", None, None
            return True

    def settle(self, key: str, place: int, outcome: Outcome, now: datetime) -> str:
        """Write how an open episode of this process ended, and return its end; one that had ended before stays.

        Raises:
            NotFound: the run has no such episode.
        """
        with self._database.writing() as session:
            run, _ = _find(session, key, lock=True)
            row = session.get(ResultEpisode, (run.id, place))
            if row is None:
                raise NotFound(f"the run {key} has no episode {place}")
            if (row.state, row.process) != ("open", self.process):
                return row.end or ""
            row.state, row.ended_at, row.end, row.process = "ended", now, outcome.end, None
            row.reward, row.value, row.steps = outcome.reward, outcome.value, outcome.steps
            row.input_tokens, row.output_tokens = outcome.input_tokens, outcome.output_tokens
            return outcome.end

    def episode_state(self, key: str, place: int) -> tuple[str, str | None]:
        """Return the state and the end of an episode.

        Raises:
            NotFound: the run has no such episode.
        """
        with self._database.reading() as session:
            run, _ = _find(session, key)
            row = session.get(ResultEpisode, (run.id, place))
            if row is None:
                raise NotFound(f"the run {key} has no episode {place}")
            return row.state, row.end

    def finish(self, key: str, missing_end: str, now: datetime, conclude: Conclude) -> None:
        """End a run: what has not ended counts with the lowest reward. A run that has ended stays as it is.

        Args:
            key: the run.
            missing_end: the end of episodes that had begun and have not ended.
            now: the time.
            conclude: computes the figures, the sums of the tasks and the receipt.
        """
        with self._database.writing() as session:
            run, board = _locked(session, key)
            if run.state == "ended":
                return
            lowest = lowest_value(range_of(run))
            missing = update(ResultEpisode).where(ResultEpisode.run_id == run.id, ResultEpisode.state != "ended")
            ended = {"state": "ended", "value": lowest, "ended_at": now, "process": None}
            session.execute(missing.where(ResultEpisode.attempts == 0).values(end=NOT_BEGUN, **ended))
            session.execute(missing.where(ResultEpisode.attempts > 0).values(end=missing_end, **ended))
            run.state, run.ended_at = "ended", now
            if run.digest is not None:
                run.deadline = None
            _conclude(session, run, board, conclude)
            add_ended(session, board, run)

    def check_here(self, key: str) -> None:
        """Check that no other process of the hub plays a run; see `ludus.hub.results.processes.check_here`."""
        with self._database.reading() as session:
            check_here(session, _find(session, key)[0], self.process)

    def overdue(self, now: datetime) -> list[str]:
        """Return the open runs whose deadline has passed, and that no other process of the hub plays, the oldest first.

        Uploads that were cut off are among them.
        """
        with self._database.reading() as session:
            others = exists().where(ResultEpisode.run_id == ResultRun.id, played_elsewhere(self.process))
            late = select(ResultRun.key).where(ResultRun.state == "open", ResultRun.deadline <= now, ~others)
            return list(session.scalars(late.order_by(ResultRun.id)))

    # ── boards and the log ─────────────────────────────────────────────────────────────────────────────────────────

    def board(self, key: BoardKey, page: int = 1, size: int = PAGE_LINES) -> Board | None:
        """Return one page of a board; None if nothing was ever registered on it."""
        with self._database.reading() as session:
            found = _board(session, key)
            return read_board(session, found, page, size) if found is not None else None

    def boards(self, package: str, version: str, most: int = 100, rows: int = 0) -> list[Board]:
        """Return boards of a version, by environment, split and level, each with its first rows.

        Args:
            package: the package.
            version: the version.
            most: the most boards.
            rows: how many rows of each.
        """
        with self._database.reading() as session:
            query = select(ResultBoard).where(ResultBoard.package == package, ResultBoard.version == version)
            order = (ResultBoard.environment, ResultBoard.split, ResultBoard.level)
            found = session.scalars(query.order_by(*order).limit(most)).all()
            return [read_board(session, one, 1, rows) for one in found]

    def remove(self, key: str, by: str, reason: str, now: datetime, *, is_moderator: bool) -> None:
        """Take a run off its board. It stays known, with the reason.

        An account that takes back one of its own runs takes back all ended ones with the same model and harness on the
        board: otherwise it could keep the best of many.

        Raises:
            Forbidden: the run is another account's.
            Conflict: the run is open, or was removed before.
        """
        with self._database.writing() as session:
            run, board = _locked(session, key)
            if run.principal != by and not is_moderator:
                raise Forbidden(f"the run {key} is of {run.principal!r}; only they or the hub's operator may remove it")
            if run.state == "open":
                raise Conflict(f"the run {key} is open: end it first")
            if run.removed_at is not None:
                raise Conflict(f"the run {key} was removed by {run.removed_by!r}: {run.removed_reason}")
            chosen = [run]
            if run.principal == by:
                same = select(ResultRun).where(
                    ResultRun.board_id == board.id, ResultRun.principal == by, ResultRun.model == run.model,
                    ResultRun.harness == run.harness, ResultRun.state == "ended", ResultRun.removed_at.is_(None),
                )  # fmt: skip
                chosen = list(session.scalars(same.with_for_update()))
            for one in chosen:
                one.removed_at, one.removed_by, one.removed_reason = now, by, reason
                session.add(ResultLogLine(at=now, kind="removed", run_id=one.id, by=by, reason=reason))
            session.flush()
            count_again(session, board, chosen)

    def rescore(self, key: str, by: str, reason: str, now: datetime, conclude: Conclude) -> None:
        """Compute what the rows of an ended run count again, by the rules of this version, and log both means.

        Raises:
            Conflict: the run is open, or was removed.
        """
        with self._database.writing() as session:
            run, board = _locked(session, key)
            if run.state == "open" or run.removed_at is not None or run.figures is None:
                raise Conflict(f"the run {key} is open or removed, so it has no score")
            before = RunFigures.model_validate_json(run.figures).mean.value
            query = select(ResultEpisode).where(ResultEpisode.run_id == run.id)
            for row in session.scalars(query):
                row.value = counted_value(row.reward, row.end or "", range_of(run))
            session.flush()
            done = _conclude(session, run, board, conclude)
            after = done.figures.mean.value
            session.add(
                ResultLogLine(at=now, kind="rescored", run_id=run.id, by=by, reason=reason, before=before, after=after)
            )
            session.flush()
            count_again(session, board, [run])

    def set_rollouts(self, key: str, digest: str) -> None:
        """Note that the trajectories of a run were uploaded."""
        with self._database.writing() as session:
            _find(session, key, lock=True)[0].rollouts = digest

    def rollouts(self, key: str) -> str | None:
        """Return the digest of the uploaded trajectories of a run; None if there are none."""
        with self._database.reading() as session:
            return _find(session, key)[0].rollouts

    def log(self, page: int, hidden: Select[str]) -> tuple[list[LogEntry], int]:
        """Return one page of the log, the newest line first, and the number of all lines.

        Args:
            page: the number of the page, from 1.
            hidden: the query for the packages whose lines are left out.
        """
        with self._database.reading() as session:
            joined = (
                select(ResultLogLine, ResultRun, ResultBoard)
                .join(ResultRun, ResultRun.id == ResultLogLine.run_id)
                .join(ResultBoard, ResultBoard.id == ResultRun.board_id)
                .where(ResultBoard.package.not_in(hidden))
            )
            lines = joined.with_only_columns(ResultLogLine.id).subquery()
            total = session.scalar(select(func.count()).select_from(lines))
            query = joined.order_by(ResultLogLine.id.desc()).offset((page - 1) * LOG_LINES).limit(LOG_LINES)
            return [_log_entry(line, run, board) for line, run, board in session.execute(query)], total or 0

    def _ensure_board(self, new: NewRun) -> None:
        key = new.board
        with self._database.reading() as session:
            if _board(session, key) is not None:
                return
        low, high = new.reward_range or (None, None)
        try:
            with self._database.writing() as session:
                made = ResultBoard(
                    package=key.package, version=key.version, sha256=new.sha256, environment=key.environment,
                    split=key.split, level=key.level, lowest=low, highest=high, tasks="[]", difficulty="[]",
                )  # fmt: skip
                session.add(made)
        except IntegrityError:
            return  # another request has made it meanwhile


def _conclude(session: Session, run: ResultRun, board: ResultBoard, conclude: Conclude) -> Conclusion:
    """Write what the rows of a run lead to."""
    query = select(ResultEpisode).where(ResultEpisode.run_id == run.id).order_by(ResultEpisode.place)
    rows = [_public_row(row, lowest_value(range_of(run))) for row in session.scalars(query)]
    opening = Opening.model_validate_json(run.opening) if run.opening is not None else None
    done = conclude(_info(session, run, board), rows, opening)
    run.figures, run.per_task, run.receipt = done.figures.model_dump_json(by_alias=True), done.per_task, None
    if done.receipt is not None:
        run.receipt = done.receipt.model_dump_json(by_alias=True)
    session.flush()
    return done


def _board(session: Session, key: BoardKey, *, lock: bool = False) -> ResultBoard | None:
    query = select(ResultBoard).where(
        ResultBoard.package == key.package, ResultBoard.version == key.version,
        ResultBoard.environment == key.environment, ResultBoard.split == key.split, ResultBoard.level == key.level,
    )  # fmt: skip
    return session.scalars(query.with_for_update() if lock else query).first()


def _locked(session: Session, key: str) -> tuple[ResultRun, ResultBoard]:
    """Return a run and its board, both locked: the board first, so that two transactions do not wait for each other."""
    board_id = _find(session, key)[1].id
    board = session.scalars(select(ResultBoard).where(ResultBoard.id == board_id).with_for_update()).one()
    query = select(ResultRun).where(ResultRun.key == key).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one(), board


def no_run(key: str) -> NotFound:
    """Return the error for a run that does not exist, or that its reader may not see."""
    return NotFound(f"this hub has no run {key[:40]!r}")


def _find(session: Session, key: str, *, lock: bool = False) -> tuple[ResultRun, ResultBoard]:
    query = select(ResultRun).where(ResultRun.key == key)
    run = session.scalars(query.with_for_update() if lock else query).first()
    if run is None:
        raise no_run(key)
    board = session.get(ResultBoard, run.board_id)
    assert board is not None
    return run, board


def _row_of(new: NewRun, board_id: int, number: int) -> ResultRun:
    low, high = new.reward_range or (None, None)
    return ResultRun(
        key=secrets.token_urlsafe(16), board_id=board_id, principal=new.principal, by_publisher=new.by_publisher,
        number=number, model=new.declared.model, harness=new.declared.harness,
        declared=new.declared.model_dump_json(by_alias=True), tasks=new.tasks, samples=new.samples,
        success_at=new.success_at, lowest=low, highest=high, state="open", created_at=new.created_at,
        deadline=new.deadline, commitment=new.commitment, digest=new.digest, reruns=0,
        opening=new.opening.model_dump_json(by_alias=True) if new.opening is not None else None,
    )  # fmt: skip


def _info(session: Session, run: ResultRun, board: ResultBoard, of: int | None = None) -> RunInfo:
    if of is None:
        mine = select(func.count()).where(ResultRun.board_id == board.id, ResultRun.principal == run.principal)
        of = session.scalar(mine) or 1
    removal = None
    if run.removed_at is not None:
        removal = Removal(at=aware(run.removed_at), by=run.removed_by or "", reason=run.removed_reason or "")
    figures = RunFigures.model_validate_json(run.figures) if run.figures and removal is None else None
    return RunInfo(
        key=run.key, level=level_of(board), package=board.package, version=board.version, sha256=board.sha256,
        environment=board.environment, split=board.split, by=run.principal, by_publisher=run.by_publisher,
        number=run.number, of=of, declared=Declared.model_validate_json(run.declared),
        tasks=run.tasks, samples=run.samples, success_at=run.success_at, reward_range=range_of(run),
        state="open" if run.state == "open" else "ended", created_at=aware(run.created_at),
        deadline=aware(run.deadline) if run.deadline is not None else None,
        ended_at=aware(run.ended_at) if run.ended_at is not None else None, commitment=run.commitment,
        reruns=run.reruns, figures=figures, removal=removal, rollouts=run.rollouts is not None,
    )  # fmt: skip


def _episode_row(run_id: int, row: RunEpisode, state: str, now: datetime) -> dict[str, object]:
    """Return the columns of a new episode."""
    ended = state == "ended"
    return {
        "run_id": run_id, "place": row.place, "task": row.task, "task_index": row.index, "sample": row.sample,
        "seed": row.seed, "state": state, "attempts": row.attempts, "reward": row.reward,
        "value": row.value if ended else None, "end": row.end if ended else None, "steps": row.steps,
        "ended_at": now if ended else None, "input_tokens": row.input_tokens, "output_tokens": row.output_tokens,
    }  # fmt: skip


def _public_row(row: ResultEpisode, lowest: float) -> RunEpisode:
    """Return an episode as all may see it; one that has not ended counts `lowest`."""
    return RunEpisode(
        place=row.place, task=row.task, index=row.task_index, sample=row.sample, seed=row.seed, reward=row.reward,
        value=row.value if row.value is not None else lowest, end=row.end or row.state, steps=row.steps,
        attempts=row.attempts, input_tokens=row.input_tokens, output_tokens=row.output_tokens,
    )  # fmt: skip


def _log_entry(line: ResultLogLine, run: ResultRun, board: ResultBoard) -> LogEntry:
    return LogEntry(
        at=aware(line.at), kind="rescored" if line.kind == "rescored" else "removed", run=run.key,
        package=board.package, version=board.version, environment=board.environment, split=board.split,
        level=level_of(board), by=line.by, reason=line.reason, before=line.before,
        after=line.after,
    )  # fmt: skip
