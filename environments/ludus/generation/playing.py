"""The checks that play candidates: the oracle, policies that solve nothing, `ludus validate`, and a calibrating policy.

The candidates are written into a folder that a server process serves, like the tasks that are kept.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ludus.client import Harness, Policy, RandomPolicy, RemoteEnvironment, connect, rollout_all
from ludus.client.policies.base import policy_name
from ludus.client.summary import SUCCESS_TOLERANCE
from ludus.evaluation.playing import without_conversation
from ludus.generation.candidates import Candidate, Rejection
from ludus.generation.task_folder import Calibrated, Manifest, Provenance, TaskRecord, portable, write_tasks
from ludus.protocol.episodes import SplitType
from ludus.protocol.errors import InfrastructureFailed, Unsupported
from ludus.protocol.text import truncate
from ludus.protocol.trajectory import Trajectory
from ludus.server.authoring.generation import whole_fields
from ludus.validation.core.local_environments import LocalEnvironments
from ludus.validation.core.policies import NoOp, empty
from ludus.validation.core.server_process import serving
from ludus.validation.core.settings import DEFAULT_TURNS, ORACLE_TURNS, Settings
from ludus.validation.core.target import ValidationTarget, create_target
from ludus.validation.report import validate

VALIDATED: Final = (
    "task-list", "task-stability", "prompt", "seed-control", "verifier-determinism", "oracle-missing", "oracle-max",
    "unscored", "components", "floor-gap", "canary-floor", "leakage", "reward-visible", "gameability:formatting",
    "gameability:echo", "gameability:early-exit", "reward-range", "crash",
)  # fmt: skip
"""The checks of `ludus validate` whose outcome depends on the tasks; the others are about the environment.

Lists of all answers are left out: with few tasks, such a list may end with the right one by chance."""

RANDOM_SAMPLES: Final = 3
EPISODE_SECONDS: Final = 120.0
_ROUNDS: Final = 4
"""How many times `validate` runs on the tasks that are left, since a finding shows a few tasks at a time."""


@dataclass(frozen=True, slots=True)
class Band:
    """The calibration: whose pass rate must be where."""

    policy: Policy
    samples: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges candidates by playing them.

    Attributes:
        source: what `ludus serve` takes for the environment.
        manifest: of the folder of the kept tasks.
        split: the split that the candidates go to.
        staging: a folder for the candidates, which is removed after use.
        seed: the seed of the episodes.
        margin: how far above the random baseline a policy that solves nothing may score.
        concurrency: episodes at the same time.
        checks: the checks of `ludus validate` to carry out; none with an empty tuple.
        waivers: the checks whose findings are accepted, with reasons.
        band: the calibration; None for none.
    """

    source: str
    manifest: Manifest
    split: str
    staging: Path
    seed: int
    margin: float
    concurrency: int
    checks: Sequence[str] = VALIDATED
    waivers: Mapping[str, str] | None = None
    band: Band | None = None

    @property
    def passed(self) -> tuple[str, ...]:
        """The names of the checks that a kept task has passed."""
        named = ["schema", "duplicates", "oracle", "no-op", "random"]
        return (*named, *(["validate"] if self.checks else []), *(["calibration"] if self.band else []))

    async def judge(self, candidates: Sequence[Candidate]) -> dict[str, Rejection | Calibrated | None]:
        """Return for each candidate, by the id of its task, why it is not kept, or its calibration if it is.

        Raises:
            InfrastructureFailed: episodes failed for a reason other than the environment's code.
            Unsupported: the environment has no oracle, or `ludus validate` finds a fault that no task explains.
        """
        if not candidates:
            return {}
        found: dict[str, Rejection | Calibrated | None] = {}
        async with self._served(candidates) as target:
            if not target.has_oracle:
                raise Unsupported(
                    f"{target.info.name} has no oracle, so it is unknown whether a task can be solved; define "
                    "`oracle(cls, task)` in its class"
                )
            found |= await self._solvable(target)
            left = [candidate for candidate in candidates if candidate.task.id not in found]
            found |= await self._not_free(target, left)
        left = [candidate for candidate in candidates if candidate.task.id not in found]
        found |= await self._validated(left)
        left = [candidate for candidate in candidates if candidate.task.id not in found]
        if self.band is not None and left:
            async with self._served(left) as target:
                found |= await self._calibrated(target, self.band)
        return {candidate.task.id: found.get(candidate.task.id) for candidate in candidates}

    @asynccontextmanager
    async def _served(self, candidates: Sequence[Candidate]) -> AsyncIterator[ValidationTarget]:
        source = self._stage(candidates)
        try:
            async with serving([source]) as process, connect(process.url, token="") as client:
                (info,) = await client.environments()
                yield await create_target(
                    client.environment(info.name), info, self._settings, process=process,
                    local_environments=LocalEnvironments(source),
                )  # fmt: skip
        finally:
            shutil.rmtree(self.staging, ignore_errors=True)

    @property
    def _settings(self) -> Settings:
        return Settings(tasks=None, seed=self.seed, margin=self.margin, concurrency=self.concurrency)

    def _stage(self, candidates: Sequence[Candidate]) -> str:
        """Write the candidates into the folder for them, and return what `ludus serve` takes for it."""
        rows = [
            TaskRecord(
                id=candidate.task.id, fields=whole_fields(candidate.task),
                provenance=Provenance(mode="propose", number=candidate.number, seed=self.seed),
            )
            for candidate in candidates
        ]  # fmt: skip
        kind = self.manifest.splits[self.split]
        update = {"source": portable(self.source, self.staging), "splits": {self.split: kind}}
        write_tasks(self.staging, self.manifest.model_copy(update=update), {self.split: rows})
        return f"tasks:{self.staging}"

    async def _solvable(self, target: ValidationTarget) -> dict[str, Rejection]:
        found: dict[str, Rejection] = {}
        plays = await target.played("oracle")
        top = target.top
        for play in plays:
            if play.failure is not None:
                found[play.task.id] = Rejection("broken", await _cause(target, play))
            elif play.value is None:
                reason = play.reward.reason if play.reward is not None else None
                found[play.task.id] = Rejection("unscored", str(reason or "no step and no grade gave a reward"))
            elif play.value < top - target.tolerance:
                found[play.task.id] = Rejection("unsolvable", f"the oracle earned {play.value:g} of {top:g}")
        return found

    async def _not_free(self, target: ValidationTarget, left: Sequence[Candidate]) -> dict[str, Rejection]:
        """Return the tasks for which nothing but an episode is needed to earn something.

        With a declared random baseline, single episodes of a random policy prove nothing; `floor-gap` judges the mean.
        """
        found: dict[str, Rejection] = {}
        ids = [one.task.id for one in left]
        declared = bool(target.local is not None and target.local.cls.random_baseline)
        policies: list[tuple[str, Any, int]] = [("no-op", NoOp(), 1), ("empty", empty, 1)]
        if not declared:
            policies.append(("random", RandomPolicy(self.seed), RANDOM_SAMPLES))
        for name, policy, samples in policies:
            earned: dict[str, list[float]] = {}
            for play in await self._play(target.environment, policy, ids, samples, DEFAULT_TURNS):
                if play.failure is not None:
                    found.setdefault(play.task.id, Rejection("broken", f"{name}: {await _cause(target, play)}"))
                elif play.value is not None:
                    earned.setdefault(play.task.id, []).append(play.value)
            for id, values in earned.items():
                mean = sum(values) / len(values)
                if target.share(mean) >= max(self.margin, 1e-9):
                    found.setdefault(id, Rejection("free_reward", f"the {name} policy earned {mean:g}"))
        return found

    async def _validated(self, candidates: Sequence[Candidate]) -> dict[str, Rejection]:
        found: dict[str, Rejection] = {}
        checks = tuple(self.checks)
        for _ in range(_ROUNDS):
            left = [candidate for candidate in candidates if candidate.task.id not in found]
            if not left or not checks:
                return found
            source = self._stage(left)
            try:
                (report,) = await validate(source, settings=self._settings, only=checks, waivers=self.waivers)
            finally:
                shutil.rmtree(self.staging, ignore_errors=True)
            failing = [verdict for verdict in report.verdicts if verdict.status in ("failed", "broken")]
            if not failing:
                return found
            named = {
                one.task: Rejection("validate", f"{finding.kind}: {finding.message} ({one.detail})"[:500])
                for verdict in failing
                for finding in verdict.findings
                if finding.severity == "error"
                for one in finding.evidence
                if one.task is not None
            }
            if not named:
                faults = "; ".join(
                    f"{one.kind}: {one.findings[0].message if one.findings else one.detail}" for one in failing
                )
                raise Unsupported(
                    f"`ludus validate` finds a fault in {report.environment} that no task explains: {faults}; correct "
                    "the environment, or accept it with --skip KIND=REASON"
                )
            found |= named
            checks = tuple(verdict.kind for verdict in failing)
        rest = {
            candidate.task.id: Rejection("validate", ", ".join(checks))
            for candidate in candidates
            if candidate.task.id not in found
        }
        return found | rest

    async def _calibrated(self, target: ValidationTarget, band: Band) -> dict[str, Rejection | Calibrated]:
        ids = [row.id for row in target.tasks]
        plays = await self._play(target.environment, band.policy, ids, band.samples, 200)
        name = policy_name(band.policy)
        found: dict[str, Rejection | Calibrated] = {}
        for id in ids:
            values = [play.value for play in plays if play.task.id == id and play.value is not None]
            if len(values) < band.samples:
                causes = [play.failure.message for play in plays if play.task.id == id and play.failure is not None]
                found[id] = Rejection("not_calibrated", truncate(" ".join((causes or ["no reward"])[0].split()), 300))
                continue
            passes = sum(value >= target.top - SUCCESS_TOLERANCE for value in values)
            rate, text = passes / len(values), f"{name} solved it in {passes} of {len(values)} episodes"
            if rate < band.low:
                found[id] = Rejection("too_hard", text)
            elif rate > band.high:
                found[id] = Rejection("too_easy", text)
            else:
                found[id] = Calibrated(policy=name, passes=passes, attempts=len(values))
        return found

    async def _play(
        self, environment: RemoteEnvironment, policy: Policy, ids: Sequence[str], samples: int, turns: int
    ) -> list[Trajectory]:
        if not ids:
            return []
        harness = Harness(max_turns=min(turns, ORACLE_TURNS), episode_seconds=EPISODE_SECONDS)
        plays = await rollout_all(
            environment, policy, split=self.split, tasks=list(ids), samples=samples, seed=self.seed,
            concurrency=self.concurrency, retries=1, harness=harness,
        )  # fmt: skip
        return [without_conversation(play) for play in plays]


def judged_kind(split: str, given: SplitType | None) -> SplitType:
    """Return the type of a split by its name, unless it is given."""
    if given is not None:
        return given
    return split if split in ("train", "validation", "test") else "train"  # type: ignore[return-value]


async def _cause(target: ValidationTarget, play: Trajectory) -> str:
    """Return why an episode failed.

    Raises:
        InfrastructureFailed: the environment's code was not the reason.
    """
    assert play.failure is not None
    if play.failure.kind == "infrastructure":
        raise InfrastructureFailed(f"an episode of {play.task.id} failed: {play.failure.message}")
    return truncate(" ".join((await target.cause(play)).split()), 300)
