"""The limits on head-to-head matches."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class MatchLimits(BaseModel):
    """The limits on matches. Times are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    open_entrants: int = Field(default=8, ge=1)
    """The most open entrants of an account."""
    entrants_of_account: int = Field(default=20, ge=1)
    """The most entrants of an account on one board."""
    entrants_of_board: int = Field(default=200, ge=2)
    """The most entrants on one board, whose ratings are computed together."""
    open_matches: int = Field(default=4, ge=1)
    """The most matches that an entrant plays, or waits for, at one time."""
    open_matches_of_hub: int = Field(default=200, ge=1)
    """The most open matches of all entrants."""
    matches_of_pair: int = Field(default=50, ge=1)
    """The most matches between two accounts on one board."""
    script_seconds: float = Field(default=10.0, ge=0)
    """How long a request must wait for an opponent before the entrant meets a scripted one."""
    entrant_seconds: float = Field(default=7 * 24 * 3600.0, gt=0, le=366 * 24 * 3600.0)
    """How long an entrant may take from its registration."""
    match_seconds: float = Field(default=3600.0, gt=0)
    """How long a match may take. One that takes longer is lost by the seat that has used more than half of that for its
    own moves; where both move at the same time, by the one that has used more. If neither has, it is void, and among
    those that are given again a few times."""
    idle_seconds: float = Field(default=300.0, gt=0)
    """How long a seat may make no call, not even one that waits for the others. It then has left, and loses."""
    move_seconds: float = Field(default=600.0, gt=0)
    """How long a seat may take for one move, whatever it calls meanwhile. It then has left, and loses. Where both move
    at the same time, it is the one that has not moved; if neither has moved since the same time, the match is void."""
    move_calls: int = Field(default=200, ge=1)
    """The most calls of a seat for one move. It then has left, and loses."""
    start_seconds: float = Field(default=120.0, gt=0)
    """How long an endpoint may take to start a match or to answer."""
    voided_share: float = Field(default=0.1, ge=0, le=1)
    """The share of an entrant's matches that the hub gives again after its infrastructure broke; at least 2 of them."""
    sweep_seconds: float = Field(default=5.0, gt=0)
    """How often the hub looks after open matches and deadlines."""

    def allowed_voids(self, registered: int) -> int:
        """Return how many matches of an entrant are given again, of the number that it registered for."""
        return max(2, int(registered * self.voided_share))
