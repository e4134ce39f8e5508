"""The types of head-to-head matches on a hub: entrants, matches and their boards.

A match is one game of an environment with two seats (module `seats`) between two entrants of different accounts. An
entrant is one account with one model and one harness, as declared, on one board: a published version, an environment
and a split. It registers for a number of matches; all of them count. The hub chooses the opponents, draws the seats,
the task and the seed, starts the match, and reads the rewards of both seats. The seat with the higher reward has won.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from ludus.protocol.integers import Integer, Ordinal, Whole
from ludus.protocol.model import WireModel
from ludus.registry.types.packages import Digest, PackageId, VersionText
from ludus.registry.types.results import Declared, Name, NewDeclared, Removal, RunKey

MATCHES: Final = 1_000
"""The most matches of one registration."""

LONGEST_WAIT: Final = 30.0
"""The longest time that a request for a match waits for an opponent, in seconds."""

EntrantKey = RunKey
"""The name of an entrant in addresses."""

MatchKey = RunKey
"""The name of a match in addresses."""

MatchState = Literal["open", "ended", "void"]
"""`void` if the infrastructure broke: the match does not count, and the hub gives both entrants another one."""

Result = Literal["win", "draw", "loss"]

TOLERANCE: Final = 1e-9
"""Rewards that differ by no more, relative to their size or to 1, are equal."""


def result_between(own: float, other: float) -> Result:
    """Return the result of a seat with a reward against another one."""
    if abs(own - other) <= TOLERANCE * max(1.0, abs(own), abs(other)):
        return "draw"
    return "win" if own > other else "loss"


class EntrantParams(WireModel):
    """The request to register for matches. What it says is fixed before the first one."""

    environment: Name
    """The name of the environment in the package."""
    split: Name
    matches: Annotated[int, Field(ge=1, le=MATCHES)]
    """How many matches to play. An entrant that registers again gets that many more."""
    declared: NewDeclared


class NextMatchParams(WireModel):
    """The request for the next match."""

    wait_seconds: Annotated[float, Field(ge=0, le=LONGEST_WAIT)] = 20.0
    """How long to wait for an opponent."""


class MatchTicket(WireModel):
    """A match that waits for its player. It does not say who the opponent is."""

    match: MatchKey
    seat: str
    play_url: str = Field(repr=False)
    """The address of the seat's agent endpoint, for any MCP client. It is a credential."""
    seconds_left: Annotated[float, Field(ge=0)]
    """Seconds until the hub closes the match, which is void then."""
    commitment: Digest
    """The digest of the match's `MatchOpening`."""


class NextMatch(WireModel):
    """The answer to a request for the next match."""

    ticket: MatchTicket | None
    """Null if there was no opponent in time, and if no match is left."""
    left: Whole
    """The number of matches that have not begun. While it is not 0, ask again."""
    open: Whole
    """The number of matches that are being played. One that breaks comes back as one that has not begun."""


class OpenMatches(WireModel):
    """The open matches of an entrant, for a player who comes back."""

    tickets: tuple[MatchTicket, ...]


class MatchEnd(WireModel):
    """What became of a match whose player says that it is done."""

    match: MatchKey
    state: MatchState
    """`open` while the other seat has not ended."""
    result: Result | None
    """The player's result; null unless the match has ended."""


class MatchOpening(WireModel):
    """What a match's commitment is the digest of, as canonical JSON (RFC 8785). It is published when the match ends.

    Task and seed follow from the secret as those of a run do (see `drawing.py`): `draw_tasks(secret, count,
    1)` and `draw_seed(secret, index, 0)`. The entrant with the lower balance has the first seat; if both are equal, it
    is drawn from the secret: see `ludus.registry.types.drawing.draw_seats`.
    """

    secret: Digest
    """32 random bytes, drawn by the hub for this match."""
    environment: str
    split: str
    count: Whole | None
    """The number of tasks in the split; null if it is endless."""
    index: Whole
    """The task's index in the split."""
    task: str
    """The task's id."""
    seed: Whole | None
    """Null if the environment takes no seeds."""
    entrants: tuple[EntrantKey, EntrantKey]
    """The entrants at the first and at the second seat."""
    balances: tuple[Integer, Integer]
    """The number of matches of each of them at the first seat less that at the second one, before this match."""


class MatchSide(WireModel):
    """One side of an ended match."""

    seat: str
    entrant: EntrantKey
    by: str
    """The account; `(script)` for a scripted opponent of the environment."""
    model: str
    harness: str
    reward: float | None
    """The seat's reward; null if it has none of its own."""
    end: str
    """The end reason of the seat's episode; `forfeit` if its player left or made no call for too long."""
    result: Result


class MatchInfo(WireModel):
    """A match, as all may see it. The sides are shown when it has ended."""

    key: MatchKey
    package: PackageId
    version: VersionText
    environment: str
    split: str
    number: Ordinal
    """Which match of its board it is."""
    state: MatchState
    created_at: datetime
    ended_at: datetime | None
    commitment: Digest
    sides: tuple[MatchSide, ...] = ()
    """The first seat's side first; empty unless the match has ended."""
    opening: MatchOpening | None = None
    """Null unless the match has ended."""


class MatchList(WireModel):
    """One page of the ended matches of an entrant, the newest one first."""

    matches: tuple[MatchInfo, ...]
    total: Whole
    page: Ordinal


class MatchRating(WireModel):
    """A rating on the scale of Elo, where 400 more are odds of 10 to 1. The mean of all connected entrants is 1500."""

    value: float
    low: float
    """The lower end of the 95% interval."""
    high: float
    group: Whole
    """Entrants of the same group are connected by matches. Ratings of different groups cannot be compared."""


class EntrantInfo(WireModel):
    """An entrant, as all may see it."""

    key: EntrantKey
    package: PackageId
    version: VersionText
    sha256: Digest
    """The digest of the version's wheel."""
    environment: str
    split: str
    by: str
    """The account; `(script)` for a scripted opponent of the environment."""
    by_publisher: bool
    """Whether that account may publish versions of the package."""
    is_script: bool = False
    """Whether it is a scripted opponent of the environment."""
    account_entrants: Ordinal
    """The number of the account's entrants on this board, removed ones included."""
    declared: Declared
    state: Literal["open", "ended"]
    registered: Whole
    """The number of matches that it registered for."""
    matches: Whole
    """The number of ended matches. All of them count."""
    wins: Whole
    draws: Whole
    losses: Whole
    voided: Whole
    """The number of its matches that the infrastructure broke."""
    created_at: datetime
    deadline: datetime
    """When it ends at the latest."""
    ended_at: datetime | None
    rating: MatchRating | None
    """Null without matches, and if it was removed."""
    removal: Removal | None = None


class MatchBoardKey(WireModel):
    """The name of a board of matches."""

    package: PackageId
    version: VersionText
    environment: str
    split: str


class PairTally(WireModel):
    """The matches of two entrants with the same one at the first seat."""

    first: EntrantKey
    second: EntrantKey
    wins: Whole
    """Matches that the entrant at the first seat has won."""
    draws: Whole
    losses: Whole


class SeatAdvantage(WireModel):
    """The advantage of the first seat, in points of a rating."""

    value: float
    low: float
    """The lower end of the 95% interval."""
    high: float


class MatchBoard(MatchBoardKey):
    """One page of a board of matches: entrants by rating, the highest of the largest group first."""

    sha256: Digest
    seats: tuple[str, ...] = ()
    """The names of the two seats."""
    rows: tuple[EntrantInfo, ...] = ()
    lines: Whole = 0
    """The number of rows on all pages."""
    page: Ordinal = 1
    matches: Whole = 0
    """The number of ended matches that count."""
    open_entrants: Whole = 0
    removed_entrants: Whole = 0
    seat_advantage: SeatAdvantage | None = None
    """Null without matches."""
    draw_share: float = 0.0
    """The probability of a draw between equal entrants, without an advantage of a seat."""
    pairs: tuple[PairTally, ...] = ()
    """The matches between the entrants of this page."""


class MatchBoardList(WireModel):
    """The boards of matches of a version."""

    id: PackageId
    version: VersionText
    boards: tuple[MatchBoardKey, ...]


class MatchLogEntry(WireModel):
    """One line of the public log of removed entrants."""

    at: datetime
    entrant: EntrantKey
    package: PackageId
    version: VersionText
    environment: str
    split: str
    by: str
    """Who did it."""
    reason: str
    still_counts: bool
    """Whether its matches still count for its opponents: so if the account itself took it back, and not if the operator
    of the hub removed it."""


class MatchLog(WireModel):
    """One page of the log, the newest line first."""

    entries: tuple[MatchLogEntry, ...]
    total: Whole
    page: Ordinal


def board_key(one: EntrantInfo | MatchInfo | MatchBoard) -> MatchBoardKey:
    """Return the name of the board of an entrant or a match."""
    return MatchBoardKey(package=one.package, version=one.version, environment=one.environment, split=one.split)
