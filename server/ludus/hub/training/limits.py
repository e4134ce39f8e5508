"""The limits on live training runs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

MEGABYTE = 1024 * 1024


class TrainingLimits(BaseModel):
    """The limits on live training runs. Sizes are in bytes before compression, times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    runs: int = Field(default=500, ge=1)
    """The most runs of an account."""
    account_bytes: int = Field(default=512 * MEGABYTE, ge=1024)
    """The most bytes of all points and rollouts of an account."""
    run_points: int = Field(default=200_000, ge=1)
    """The most points of a run."""
    run_values: int = Field(default=5_000_000, ge=1)
    """The most values of a run: points times metrics."""
    attempts: int = Field(default=200, ge=1)
    """How often a run may be continued."""
    batch_bytes: int = Field(default=MEGABYTE, ge=1024)
    """The largest batch of points."""
    rollouts: int = Field(default=200, ge=0)
    """The most sample rollouts of a run."""
    lost_seconds: float = Field(default=180.0, gt=0)
    """After how many seconds without a sign of life a running run counts as lost."""
