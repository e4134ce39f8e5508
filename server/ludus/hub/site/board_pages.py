"""The pages of results: boards, runs, and the log of removals; and the charts on an environment's page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.results.access import Access
from ludus.hub.results.rollouts import RunRollouts
from ludus.hub.results.store import LOG_LINES, ResultStore
from ludus.hub.site.charts import Bar, bar_chart, histogram
from ludus.hub.site.site import Site, short_text, whole_number
from ludus.protocol.errors import InvalidParams, LudusError, NotFound
from ludus.registry.types.results import LEVELS, USUAL_LEVEL, Board, BoardKey, BoardRow, Level, RunInfo

ROWS: Final = 30
"""The most rows of a board on one page."""

CHARTED: Final = 10
"""The most bars of a chart."""

EPISODES: Final = 60
"""The most episodes of a run on one page."""

SHOWN_BOARDS: Final = 6
"""The most boards on an environment's page."""

SHOWN_ROWS: Final = 8
"""The most rows of each of them."""

ABOUT: Final = {
    "played": "The hub drew the tasks, started every episode and read the rewards itself. That proves the score. It "
    "does not prove which model chose the actions: model and harness are as declared.",
    "reported": "Uploaded by those who evaluated. Nothing here is proved.",
}  # fmt: skip
"""What each level proves, for the pages."""


class BoardPages:
    """The pages of results.

    Args:
        site: the site.
        store: the results.
        rollouts: the trajectories that were uploaded with runs.
    """

    def __init__(self, site: Site, store: ResultStore, rollouts: RunRollouts) -> None:
        self._site = site
        self._store = store
        self._rollouts = rollouts
        self._access = Access(site.hub)

    def board(self, request: Request) -> Response:
        """Return one page of a board."""
        parts = request.path_params
        record = self._access.version(request, parts["owner"], parts["name"], parts["version"])
        environment, split = short_text(request, "environment", 300), short_text(request, "split", 300)
        level = _level(short_text(request, "level", 20) or USUAL_LEVEL)
        names = {split.name for one in record.environments if one.name == environment for split in one.splits}
        number = whole_number(request, "page", 1)
        board = self._store.board(_key(record.id, record.version, environment, split, level), number, ROWS)
        if board is None:
            if split not in names:
                raise NotFound("this version has no such environment and split")
            board = Board(
                **_key(record.id, record.version, environment, split, level).model_dump(), sha256=record.sha256
            )
        return self._site.page(
            request, "board.html", record=record, board=board, rows=board.rows, first=(number - 1) * ROWS + 1,
            page=number, pages=max(1, -(-board.lines // ROWS)), about=ABOUT[level], address=board_address(board),
            others=[(one, board_address(board, one)) for one in LEVELS if one != level],
            chart=mean_chart(board, board.rows[:CHARTED]), difficulty=difficulty_chart(board),
        )  # fmt: skip

    def run(self, request: Request) -> Response:
        """Return one page of a run."""
        key = request.path_params["run"]
        number = whole_number(request, "page", 1)
        run, rows, total, opening, account_runs = self._store.run_view(key, number, EPISODES)
        self._access.check_run(request, run)
        lines, problem = {}, ""
        try:
            lines = self._rollouts.lines(run, rows)
        except LudusError as error:  # the rest of the page does not need the files
            problem = error.message
        return self._site.page(
            request, "run.html", run=run, rows=rows, lines=lines, rollouts_problem=problem, page=number,
            pages=max(1, -(-total // EPISODES)),
            secret=opening.secret if opening is not None else "", count=opening.count if opening is not None else None,
            about=ABOUT[run.level], address=run_board_address(run), account_runs=account_runs,
        )  # fmt: skip

    def log(self, request: Request) -> Response:
        """Return one page of the log."""
        number = whole_number(request, "page", 1)
        entries, total = self._store.log(number, self._access.hidden(request))
        return self._site.page(
            request, "results_log.html", entries=entries, page=number, pages=max(1, -(-total // LOG_LINES))
        )


def environment_results(store: ResultStore, package: str, version: str) -> list[dict[str, Any]]:
    """Return what an environment's page shows of the results of a version."""
    found = store.boards(package, version, SHOWN_BOARDS, SHOWN_ROWS)
    boards = [one for one in found if one.rows or one.open_runs]
    return [
        {
            "board": board,
            "address": board_address(board),
            "rates": rate_chart(board),
            "difficulty": difficulty_chart(board),
        }
        for board in boards
    ]


def mean_chart(board: Board, rows: Sequence[BoardRow]) -> Markup | None:
    """Return the chart of the mean rewards of rows; None without rows."""
    low, high = board.reward_range or (0.0, 0.0)
    bars = [Bar(row.model, row.mean.value, *(row.mean.interval or (None, None))) for row in rows]
    return bar_chart(f"Mean reward by model, {board.level}", bars, low, high) if bars else None


def rate_chart(board: Board) -> Markup | None:
    """Return the chart of the pass rates of a board's first rows; None without rows."""
    bars = [Bar(row.model, row.success.value, *(row.success.interval or (None, None))) for row in board.rows]
    return bar_chart(f"Pass rate by model, {board.level}", bars, 0.0, 1.0) if bars else None


def difficulty_chart(board: Board) -> Markup | None:
    """Return the distribution of the tasks' pass rates over all runs of a board; None without runs."""
    return histogram(f"Number of tasks by pass rate, {board.level}", board.difficulty) if board.difficulty else None


def board_address(board: BoardKey, level: Level | None = None) -> str:
    """Return the path of a board's page."""
    query = {"environment": board.environment, "split": board.split, "level": level or board.level}
    return f"/{board.package}/versions/{board.version}/board?{urlencode(query)}"


def run_board_address(run: RunInfo) -> str:
    """Return the path of the page of a run's board."""
    return board_address(_key(run.package, run.version, run.environment, run.split, run.level))


def _key(package: str, version: str, environment: str, split: str, level: Level) -> BoardKey:
    return BoardKey(package=package, version=version, environment=environment, split=split, level=level)


def _level(text: str) -> Level:
    for level in LEVELS:
        if text == level:
            return level
    raise InvalidParams(f"'level' in the address must be one of {', '.join(LEVELS)}, not {text!r}")
