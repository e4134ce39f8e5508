"""The difficulty file: the measured pass rate of one policy for each task of a split.

It is one JSON document, which `ludus calibrate --difficulty` writes. It filters splits (`Split.within`) and initializes
the curriculum of a server (`ludus serve --difficulty`) and of the trainer (`curriculum.difficulty`). This module holds
its types and rules; the server and the client each read and write the file themselves.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ludus.protocol.episodes import NoiseKind
from ludus.protocol.errors import ParseError

DIFFICULTY_FORMAT: Final = "ludus.difficulty/0.1"

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Amount = Annotated[float, Field(ge=0)]
Band = tuple[Share, Share]
"""Two pass rates, the lower one first; both ends belong to the band."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class TaskDifficulty(_Part):
    """The figures of one task. Episodes that failed or are unscored do not count as attempts."""

    passes: Count
    """The number of scored episodes whose reward reached `success_at`."""
    attempts: Count
    """The number of scored episodes."""
    unscored: Count = 0
    """The number of episodes that failed or have no reward; they say nothing about the task."""
    pass_rate: Share | None
    """passes / attempts; null without an attempt."""
    interval: Band | None
    """Wilson's 95 % interval of the pass rate; null without an attempt."""
    mean_reward: float | None
    """The mean reward of the attempts."""
    steps: Amount | None
    """The mean number of steps of the attempts."""
    tokens: Amount | None = None
    """The mean number of input and output tokens, over the attempts that reported them."""
    level: str | None = None
    """The group of the task, if tasks were grouped by a field."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.passes > self.attempts:
            raise ValueError(f"{self.passes} passes in {self.attempts} attempts")
        rate = self.passes / self.attempts if self.attempts else None
        if (rate is None) != (self.pass_rate is None) or not math.isclose(
            rate or 0.0, self.pass_rate or 0.0, abs_tol=1e-6
        ):
            raise ValueError(f"pass_rate {self.pass_rate} is not {self.passes} / {self.attempts}")
        return self


class DifficultyFile(_Part):
    """The whole document."""

    format: Literal["ludus.difficulty/0.1"]
    environment: str
    environment_version: str
    """The environment's version at that time; another version may have other tasks under the same ids."""
    split: str
    policy: str
    """The policy that the pass rates belong to: difficulty depends on the policy."""
    seed: int | None = None
    """The run's seed; null if it had none."""
    success_at: float
    """The lowest reward that counted as a success."""
    band: Band
    """The pass rates that the measurement looked for."""
    noise: dict[NoiseKind, Count] = Field(default={})
    """Steps that environments disturbed on purpose while it was measured, by kind; without noise the same tasks are
    easier."""
    measured_at: AwareDatetime
    tasks: dict[str, TaskDifficulty]
    """By task id."""

    @field_validator("band")
    @classmethod
    def _ordered(cls, band: Band) -> Band:
        return check_band(band)

    def within(self, low: float, high: float) -> list[str]:
        """Return the ids of the tasks whose measured pass rate lies in the band, ends included, in the file's order."""
        return [
            name for name, task in self.tasks.items() if task.pass_rate is not None and low <= task.pass_rate <= high
        ]

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the attempts and passes of each task that has attempts, by its id."""
        return {name: (task.attempts, task.passes) for name, task in self.tasks.items() if task.attempts}

    def mismatch(self, environment: str, version: str, splits: Collection[str] | None = None) -> str | None:
        """Return why this file does not apply to an environment of that name, version and splits; None if it does."""
        again = "measure again with `ludus calibrate --difficulty`"
        if self.environment != environment:
            return f"it was measured on the environment {self.environment!r}, and this is {environment!r}; {again}"
        if self.environment_version != version:
            return (
                f"it was measured on version {self.environment_version!r} of {environment!r}, and this is version "
                f"{version!r}, whose tasks may differ; {again}"
            )
        if splits is not None and self.split not in splits:
            names = ", ".join(map(repr, splits))
            return f"it was measured on the split {self.split!r}, and {environment!r} has {names}; {again}"
        return None


def check_band(band: tuple[float, float]) -> tuple[float, float]:
    """Return `band` if it is valid.

    Raises:
        ValueError: it is not two pass rates between 0 and 1, the lower one first.
    """
    low, high = band
    if not 0 <= low <= high <= 1:
        raise ValueError(f"the band {low:g} to {high:g} must be two pass rates between 0 and 1, the lower one first")
    return band


def parse_difficulty(data: bytes | str, where: str) -> DifficultyFile:
    """Parse the text of a difficulty file; `where` names the file in messages.

    Raises:
        ParseError: it is not a difficulty file; the message names the file, the field and what is wrong.
    """
    try:
        return DifficultyFile.model_validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        what = f"{field}: {message}" if field else message
        raise ParseError(f"{where} is no difficulty file: {what}; `ludus calibrate --difficulty` writes them") from None
