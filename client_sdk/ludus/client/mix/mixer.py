"""The choice of a source for each group, by the results of earlier groups.

How this works:

* Groups have numbers, in the order in which they are drawn. `choose` returns the source of a group, and `report` takes
  its result. Each number is reported once; a second report of it is ignored, as after a resume.
* Results count in the order of their numbers, however they arrive. The choice for group k uses the results of the
  groups before k - lag exactly, so it depends on the seed and on results, and not on which episode was slow. `ready`
  says whether these results are there. With a lag of None, results count as soon as they arrive.
* Unscored episodes are counted, and say nothing about a source. A group without a scored episode changes no weight.
* `state` holds everything, so a resumed run makes the choices that it would have made.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ludus.client.beta import band_probability, one_sided_bounds
from ludus.client.mix.policy import CONFIDENCE, MixPolicy, check_stages
from ludus.client.mix.record import SourceRecord
from ludus.protocol.errors import InvalidParams

CLEAR_PROGRESS: Final = 0.02
"""The learning progress of the best source from which shares follow progress alone. Below it they are in proportion
closer to the base weights: otherwise the share of a source would be large or small by chance where nothing is learned
clearly."""
KNOWN_GROUPS: Final = 8
"""A source keeps its share by base weight until it has this many scored groups, for the kind `progress`."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source of a mix, as far as its share depends on it."""

    label: str
    """Unique within the mix."""
    weight: float = 1.0
    """Its base weight."""
    stage: int = 1
    """Its stage, from 1, for the kind `stages`."""


class Mixer:
    """The choice of sources.

    Args:
        sources: the sources.
        policy: how they share the groups.
        lag: how many groups before a choice do not count yet: the most that may be open at once. None to count results
            as they arrive.

    Raises:
        InvalidParams: there is no source, two have one label, or the stages are not 1, 2, ….
    """

    def __init__(self, sources: Sequence[Source], policy: MixPolicy, *, lag: int | None = None) -> None:
        labels = [source.label for source in sources]
        if not sources or len(set(labels)) < len(labels):
            raise InvalidParams("a mix needs sources, each with a label of its own")
        if policy.kind == "stages":
            try:
                check_stages([source.stage for source in sources])
            except ValueError as error:
                raise InvalidParams(str(error)) from None
        self.sources = tuple(sources)
        self.policy = policy
        self.stage = 1
        """The current stage; 1 for other kinds than `stages`."""
        self._lag = lag if policy.kind != "fixed" else None
        self._records = {label: SourceRecord() for label in labels}
        total = math.fsum(source.weight for source in sources)
        self._base = {source.label: source.weight / total for source in sources}
        self._choices: dict[int, str] = {}
        """The sources of groups that were not reported yet."""
        self._results: dict[int, tuple[str, int, int, int]] = {}
        """Results that do not count yet: source, passes, scored and unscored episodes."""
        self._next = 0
        """The first number that was not chosen yet."""
        self._since = 0
        """The first group that was drawn in the current stage."""
        self._news: list[str] = []

    @property
    def records(self) -> Mapping[str, SourceRecord]:
        """The statistics of the sources, by label."""
        return self._records

    @property
    def last_stage(self) -> int:
        """The number of the last stage; 1 for other kinds than `stages`."""
        return max(source.stage for source in self.sources) if self.policy.kind == "stages" else 1

    # ── choices ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def ready(self, number: int) -> bool:
        """Return whether the results are there that the choice for a group depends on."""
        if self._lag is None or number < 0 or number in self._choices:
            return True
        limit = number - self._lag
        return all(open_number >= limit for open_number in self._choices if open_number not in self._results)

    def choose(self, number: int, rng: random.Random) -> str:
        """Return the label of the source of a group. One random number is drawn from `rng`.

        Choose in the order of the numbers. A number that was chosen and not reported keeps its source. Negative numbers
        are chosen by the current shares and not recorded.
        """
        if number in self._choices:
            rng.random()
            return self._choices[number]
        if number >= 0 and self._lag is not None:
            self._count_before(number - self._lag)
        shares = self.shares()
        label = rng.choices(list(shares), list(shares.values()))[0]
        if number >= 0:
            self._choices[number] = label
            self._next = max(self._next, number + 1)
            self._records[label].drawn += 1
        return label

    def report(self, number: int, label: str, *, passes: int, scored: int, unscored: int = 0) -> None:
        """Take the result of a group: how many of its scored episodes passed, and how many episodes have no reward.

        A group that was not chosen, or was reported before, is ignored.
        """
        if number not in self._choices or number in self._results or label not in self._records:
            return
        self._results[number] = (label, passes, scored, unscored)
        if self._lag is None:
            self._count(number)

    def news(self) -> list[str]:
        """Return what happened since the last call, such as the beginning of a stage, as sentences."""
        news, self._news = self._news, []
        return news

    def _count_before(self, limit: int) -> None:
        for number in sorted(number for number in self._results if number < limit):
            self._count(number)

    def _count(self, number: int) -> None:
        label, passes, scored, unscored = self._results.pop(number)
        del self._choices[number]
        record = self._records[label]
        record.episodes += scored
        record.passes += passes
        record.unscored += unscored
        if scored:
            record.add(passes / scored, self.policy, in_stage=number >= self._since)
            if self.policy.kind == "stages":
                self._move()

    # ── shares ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def shares(self) -> dict[str, float]:
        """Return each source's share of the next groups. The shares add up to 1."""
        policy, base = self.policy, self._base
        if policy.kind == "fixed":
            return dict(base)
        if policy.kind == "stages":
            return self._stage_shares()
        if policy.kind == "band":
            shares = self._split(1.0, {label: weight * self._in_band(label) for label, weight in base.items()})
        else:
            shares = self._progress_shares()
        return {label: policy.floor * base[label] + (1 - policy.floor) * share for label, share in shares.items()}

    def _split(self, share: float, weights: Mapping[str, float]) -> dict[str, float]:
        """Return a share split by weights; by base weight if all are 0."""
        total = math.fsum(weights.values())
        if total <= 0:
            weights = {label: self._base[label] for label in weights}
            total = math.fsum(weights.values())
        return {label: share * weight / total for label, weight in weights.items()}

    def _stage_shares(self) -> dict[str, float]:
        now = {source.label: self._base[source.label] for source in self.sources if source.stage == self.stage}
        before = {source.label: self._base[source.label] for source in self.sources if source.stage < self.stage}
        rehearsal = self.policy.stages.rehearsal if before else 0.0
        shares = dict.fromkeys(self._base, 0.0) | self._split(1 - rehearsal, now)
        return shares | (self._split(rehearsal, before) if before else {})

    def _in_band(self, label: str) -> float:
        record, band = self._records[label], self.policy.band
        return band_probability(min(record.passed, record.count), record.count, band.low, band.high)

    def _progress_shares(self) -> dict[str, float]:
        measured = {label: record for label, record in self._records.items() if record.groups >= KNOWN_GROUPS}
        shares = {label: share for label, share in self._base.items() if label not in measured}
        if measured:
            measured_weight = math.fsum(self._base[label] for label in measured)
            progress = {label: record.progress() for label, record in measured.items()}
            clear = min(1.0, max(progress.values()) / CLEAR_PROGRESS)
            shares |= self._split(
                measured_weight * clear, {label: self._base[label] * value for label, value in progress.items()}
            )
            for label in measured:
                shares[label] += (1 - clear) * self._base[label]
        return {label: shares[label] for label in self._base}

    # ── stages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _move(self) -> None:
        settings = self.policy.stages
        if settings.back_below is not None:
            for source in self.sources:
                edges = self._bounds(source.label)
                if source.stage < self.stage and edges is not None and edges[1] < settings.back_below:
                    self._enter(source.stage, f"{source.label} fell below {settings.back_below:g}")
                    return
        edges_now = [self._bounds(source.label) for source in self.sources if source.stage == self.stage]
        if self.stage < self.last_stage and all(edge is not None and edge[0] >= settings.until for edge in edges_now):
            self._enter(self.stage + 1, f"every source of stage {self.stage} reached {settings.until:g}")

    def _bounds(self, label: str) -> tuple[float, float] | None:
        """Return the bounds of a source's recent pass rate; None while it has too few groups."""
        recent = self._records[label].recent
        if len(recent) < self.policy.stages.min_groups:
            return None
        return one_sided_bounds(math.fsum(recent), len(recent), CONFIDENCE)

    def _enter(self, stage: int, reason: str) -> None:
        self.stage, self._since = stage, self._next
        for record in self._records.values():
            record.recent.clear()
        self._news.append(f"stage {stage} of the mix begins with group {self._next}: {reason}")

    # ── checkpoints and logs ────────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, Any]:
        """Return the state for `load_state`, JSON-ready."""
        return {
            "stage": self.stage,
            "since": self._since,
            "next": self._next,
            "records": {label: record.state() for label, record in self._records.items()},
            "choices": sorted(self._choices.items()),
            "results": [[number, *result] for number, result in sorted(self._results.items())],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`. Ignore sources that the mix no longer has; new ones begin without results."""
        self.stage = min(state["stage"], self.last_stage)
        self._since, self._next = state["since"], state["next"]
        self._records |= {
            label: SourceRecord.load(record) for label, record in state["records"].items() if label in self._records
        }
        self._choices = {number: label for number, label in state["choices"] if label in self._records}
        self._results = {number: tuple(result) for number, *result in state["results"] if number in self._choices}

    def metrics(self) -> dict[str, float]:
        """Return the figures of each source for logs: share, pass rate, groups, unscored episodes, and progress."""
        if len(self.sources) < 2:
            return {}
        metrics: dict[str, float] = {}
        for label, share in self.shares().items():
            record = self._records[label]
            metrics[f"mix/{label}/share"] = share
            metrics[f"mix/{label}/groups"] = float(record.drawn)
            metrics[f"mix/{label}/unscored"] = float(record.unscored)
            if record.pass_rate is not None:
                metrics[f"mix/{label}/pass_rate"] = record.pass_rate
            if self.policy.kind == "progress":
                metrics[f"mix/{label}/progress"] = record.progress()
        return metrics | ({"mix/stage": float(self.stage)} if self.policy.kind == "stages" else {})
