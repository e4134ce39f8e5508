"""The pages of matches: boards, entrants, and single matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from ludus.hub.database.engine import Database
from ludus.hub.results.matches.reading import read_board, read_boards, read_entrant, read_match, read_matches
from ludus.hub.results.matches.routes import MatchAccess
from ludus.hub.site.charts import Bar, bar_chart
from ludus.hub.site.site import Site, short_text, whole_number
from ludus.protocol.errors import NotFound
from ludus.registry.types.matches import EntrantInfo, MatchBoard, MatchBoardKey, MatchInfo, board_key

ROWS: Final = 30
"""The most entrants of a board on one page."""

CHARTED: Final = 10
"""The most bars of a chart."""

CROSSED: Final = 8
"""The most entrants in a table of results between each two."""

MATCHES: Final = 30
"""The most matches of an entrant on one page."""

SHOWN_BOARDS: Final = 6
"""The most boards on an environment's page."""

SHOWN_ROWS: Final = 8
"""The most rows of each of them."""

SCALE: Final = (1200.0, 1800.0)
"""The ends of a chart's scale, which grows if a rating is outside."""

MINUS: Final = "\N{MINUS SIGN}"


class MatchPages:
    """The pages of matches.

    Args:
        site: the site.
        database: the hub's database.
    """

    def __init__(self, site: Site, database: Database) -> None:
        self._site = site
        self._database = database
        self._access = MatchAccess(site.hub)

    def board(self, request: Request) -> Response:
        """Return one page of a board."""
        parts = request.path_params
        record = self._access.version(request, parts["owner"], parts["name"], parts["version"])
        environment, split = short_text(request, "environment", 300), short_text(request, "split", 300)
        key = MatchBoardKey(package=record.id, version=record.version, environment=environment, split=split)
        number = whole_number(request, "page", 1)
        board = read_board(self._database, key, number, ROWS)
        if board is None:
            names = {one.name for entry in record.environments if entry.name == environment for one in entry.splits}
            if split not in names:
                raise NotFound("this version has no such environment and split")
            board = MatchBoard(**key.model_dump(), sha256=record.sha256)
        return self._site.page(
            request, "match_board.html", record=record, board=board, rows=board.rows, page=number,
            first=(number - 1) * ROWS + 1, pages=max(1, -(-board.lines // ROWS)), address=match_board_address(board),
            chart=rating_chart(board), cross=cross_table(board), is_apart=any(_group(row) for row in board.rows),
        )  # fmt: skip

    def entrant(self, request: Request) -> Response:
        """Return the page of an entrant, with one page of its matches."""
        key, number = request.path_params["entrant"], whole_number(request, "page", 1)
        entrant = self._access.check_entrant(request, read_entrant(self._database, key))
        found = read_matches(self._database, key, number, MATCHES)
        return self._site.page(
            request, "entrant.html", entrant=entrant, rows=[_from_side(one, key) for one in found.matches], page=number,
            pages=max(1, -(-found.total // MATCHES)), board_address=match_board_address(board_key(entrant)),
        )  # fmt: skip

    def match(self, request: Request) -> Response:
        """Return the page of a match."""
        match = self._access.check_match(request, read_match(self._database, request.path_params["match"]))
        return self._site.page(request, "match.html", match=match, board_address=match_board_address(board_key(match)))


def environment_matches(database: Database, package: str, version: str) -> list[dict[str, Any]]:
    """Return what an environment's page shows of the matches of a version."""
    found = read_boards(database, package, version, SHOWN_BOARDS, SHOWN_ROWS)
    return [{"board": one, "address": match_board_address(one), "chart": rating_chart(one)} for one in found]


def rating_chart(board: MatchBoard) -> Markup | None:
    """Return the chart of the ratings of a board's first rows, of the largest group; None without rows."""
    rows = [row for row in board.rows if _group(row) == 0][:CHARTED]
    bars = [
        Bar(row.declared.model, row.rating.value, row.rating.low, row.rating.high)
        for row in rows
        if row.rating is not None
    ]
    return bar_chart("Rating by model", bars, *SCALE) if bars else None


def cross_table(board: MatchBoard) -> list[tuple[EntrantInfo, list[str]]]:
    """Return the first entrants, each with its wins, draws and losses against each of them."""
    shown = board.rows[:CROSSED]
    counts: dict[tuple[str, str], list[int]] = {}
    for one in board.pairs:
        for pair, results in (
            ((one.first, one.second), (one.wins, one.draws, one.losses)),
            ((one.second, one.first), (one.losses, one.draws, one.wins)),
        ):
            before = counts.setdefault(pair, [0, 0, 0])
            for place, count in enumerate(results):
                before[place] += count
    return [(row, [_cell(counts, row, other) for other in shown]) for row in shown]


def match_board_address(board: MatchBoardKey) -> str:
    """Return the path of a board's page."""
    query = {"environment": board.environment, "split": board.split}
    return f"/{board.package}/versions/{board.version}/matches?{urlencode(query)}"


def _cell(counts: dict[tuple[str, str], list[int]], row: EntrantInfo, other: EntrantInfo) -> str:
    if row.key == other.key:
        return ""
    found = counts.get((row.key, other.key))
    return "–".join(map(str, found)) if found is not None else MINUS


def _group(row: EntrantInfo) -> int:
    return row.rating.group if row.rating is not None else 0


def _from_side(match: MatchInfo, entrant: str) -> dict[str, Any]:
    """Return a match as one of its entrants sees it."""
    sides: Sequence[Any] = match.sides
    own = sides[0] if sides[0].entrant == entrant else sides[1]
    other = sides[1] if own is sides[0] else sides[0]
    return {"match": match, "own": own, "other": other}
