"""The settings of a mix: how sources share the groups of a run."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ludus.client.beta import one_sided_bounds

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0)]

WINDOW: Final = 64
"""The number of newest groups of a source in the pass rate that decides about a stage."""
CONFIDENCE: Final = 0.95
"""The one-sided confidence of the bounds of that pass rate. A group counts as one observation, since its episodes share
a task."""


class MixPart(BaseModel):
    """A table of a mix; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class TaskBand(MixPart):
    """The choice of tasks within a source by pass rate: prefer tasks of medium difficulty."""

    low: Share = 0.2
    """The lowest pass rate of a task that may be drawn again."""
    high: Share = 0.8
    """The highest pass rate of a task that may be drawn again."""
    explore: Share = 0.5
    """The share of groups that use tasks of unknown pass rate."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low}) must be less than high ({self.high})")
        return self


class StagesPolicy(MixPart):
    """Play one stage after the other, in order of their numbers."""

    until: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """The next stage begins when the lower bound of the pass rate of every source of this stage reaches this value. The
    pass rate is that of a source's 64 newest groups, the bounds are of 95 % confidence."""
    min_groups: Annotated[int, Field(ge=1, le=WINDOW)] = 16
    """The minimum number of scored groups of every source before the stage can end."""
    rehearsal: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """The share of the groups that repeat earlier stages."""
    back_below: Share | None = None
    """Return to an earlier stage when the upper bound of the pass rate of one of its sources falls below this value.
    When left out, stages never go back. It needs `rehearsal`."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        best = one_sided_bounds(WINDOW, WINDOW, CONFIDENCE)[0]
        if best < self.until:
            raise ValueError(
                f"until ({self.until}) is out of reach: the lower bound of {WINDOW} groups that all pass is {best:.3f}"
            )
        if self.back_below is not None and not self.rehearsal:
            raise ValueError("back_below needs rehearsal, because earlier stages are not played without it")
        if self.back_below is not None and self.back_below >= self.until:
            raise ValueError(f"back_below ({self.back_below}) must be less than until ({self.until})")
        return self


class BandPolicy(MixPart):
    """Prefer sources whose pass rate lies in a band. The weight of a source is the probability that it does, by a Beta
    posterior with Jeffreys' prior, times its base weight."""

    low: Share = 0.2
    """The lowest pass rate of the band."""
    high: Share = 0.8
    """The highest pass rate of the band."""
    memory: Rate = 32.0
    """The number of groups of a source after which a result counts 1/e, because the policy changes."""
    floor: Share = 0.2
    """The least share of a source, as a part of its share by base weight."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low}) must be less than high ({self.high})")
        return self


class ProgressPolicy(MixPart):
    """Prefer sources that are being learned (Matiisen et al. 2017, 1707.00183; Portelas et al. 2019, 1910.07224). The
    weight of a source is its absolute learning progress, the difference of moving averages of the pass rates of its
    groups over 16 and 64 groups, times its base weight. So a source that is being forgotten is played more, too. Where
    no source makes clear progress, shares are close to the base weights."""

    floor: Share = 0.2
    """The least share of a source, as a part of its share by base weight."""


class MixPolicy(MixPart):
    """How the sources share the groups."""

    kind: Literal["fixed", "stages", "band", "progress"] = "fixed"
    """`fixed`: by base weight; `stages`: one stage after the other; `band`: sources whose pass rate lies in a band;
    `progress`: sources that are being learned."""
    stages: StagesPolicy = StagesPolicy()
    """Settings of `stages`."""
    band: BandPolicy = BandPolicy()
    """Settings of `band`."""
    progress: ProgressPolicy = ProgressPolicy()
    """Settings of `progress`."""

    @property
    def floor(self) -> float:
        """The least share of a source, as a part of its share by base weight; 0 for `fixed` and `stages`."""
        return {"band": self.band.floor, "progress": self.progress.floor}.get(self.kind, 0.0)


def check_stages(stages: list[int]) -> None:
    """Check the stages of all sources of a mix of the kind `stages`.

    Raises:
        ValueError: there is only one stage, or a number is missing.
    """
    numbers = sorted(set(stages))
    if numbers != list(range(1, len(numbers) + 1)):
        raise ValueError(
            f"stages are numbered 1, 2, … without gaps, and the sources have {', '.join(map(str, numbers))}"
        )
    if len(numbers) < 2:
        raise ValueError('kind = "stages" needs sources of at least two stages; give each source its `stage`')
