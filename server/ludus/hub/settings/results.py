"""The limits on results."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ResultLimits(BaseModel):
    """The limits on results. Sizes are in bytes, times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    submission_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    """The largest upload of an evaluation."""
    open_runs: int = Field(default=4, ge=1)
    """The most open runs of an account."""
    open_runs_of_hub: int = Field(default=64, ge=1)
    """The most open runs of all accounts."""
    runs_of_board: int = Field(default=200, ge=1)
    """The most runs of an account on one board."""
    run_episodes: int = Field(default=2_000, ge=1)
    """The most episodes of a played run."""
    open_episodes: int = Field(default=16, ge=1)
    """The most episodes of a run that are played at one time."""
    run_seconds: float = Field(default=24 * 3600.0, gt=0, le=366 * 24 * 3600.0)
    """How long a run may take. What is missing then counts with the lowest reward."""
    episode_seconds: float = Field(default=3600.0, gt=0)
    """How long an episode may take."""
    start_seconds: float = Field(default=120.0, gt=0)
    """How long an endpoint may take to start an episode or to list tasks."""
    attempts: int = Field(default=3, ge=1)
    """How often the hub starts an episode whose infrastructure breaks."""
    reruns_share: float = Field(default=0.1, ge=0, le=1)
    """The share of a run's episodes that the hub starts again; at least 2 of them."""
    lease_seconds: float = Field(default=30.0, gt=0)
    """For how long a process of the hub counts as alive after its last sign, before another takes its episodes."""
    sweep_seconds: float = Field(default=5.0, gt=0)
    """How often the hub looks after open episodes and deadlines."""
