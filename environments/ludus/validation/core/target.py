"""The target of a validation: a served environment, with its code and its server's process if they are available."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

from ludus.client import Harness, Policy, RandomPolicy, RemoteEnvironment, rollout_all
from ludus.client.episode import Episode
from ludus.client.rollouts import episode_seed
from ludus.protocol.episodes import EnvironmentInfo, SplitInfo, TaskRow, ToolSpec
from ludus.protocol.errors import LudusError, NotFound
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.trajectory import Trajectory
from ludus.validation.core.causes import Found
from ludus.validation.core.checks import Evidence, NotApplicable, short
from ludus.validation.core.last_report import LastReport
from ludus.validation.core.local_environments import LocalEnvironments
from ludus.validation.core.oracle import DemonstratorPolicy, OraclePolicy
from ludus.validation.core.policies import NoOp, empty
from ludus.validation.core.server_process import ServerProcess
from ludus.validation.core.settings import ORACLE_TURNS, Settings
from ludus.validation.core.surroundings import Read
from ludus.validation.core.transcripts import Script, Transcript, perform, script_of

T = TypeVar("T")

TOLERANCE: Final = 1e-6
"""Two rewards that differ by less than this share of the reward range count as the same."""

ROUNDING: Final = 1e-12
"""The rounding error of float rewards, as a share of the largest reward."""

_ASKED: Final = frozenset({EndReason.COMPLETED, EndReason.SUBMITTED})
"""The end reasons of episodes that were not cut short, so that their total reward is complete."""

MORE_TASKS: Final = 48
"""The most further tasks of each split on which an oracle is played."""

MORE_SECONDS: Final = 6.0

ENDLESS_TASKS: Final = 8
"""The number of tasks of an endless split that are played if all tasks are requested."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A split, and those of its tasks that are played."""

    info: SplitInfo
    tasks: tuple[TaskRow, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The episodes that checks looked at."""

    episodes: int = 0
    started: int = 0
    scored: int = 0

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(self.episodes + other.episodes, self.started + other.started, self.scored + other.scored)

    def nothing(self, scored: bool) -> str | None:
        """Say why a check that found nothing has shown nothing; None if it has.

        Args:
            scored: whether the check judges rewards.
        """
        if self.episodes and not self.started:
            return "no episode started"
        if self.episodes and scored and not self.scored:
            return "no episode was scored"
        return None


def coverage_of(plays: Sequence[Trajectory]) -> Coverage:
    """Return what played episodes cover."""
    return Coverage(
        len(plays),
        sum(play.failure is None or bool(play.steps) for play in plays),
        sum(_was_rewarded(play) for play in plays),
    )


def _was_rewarded(play: Trajectory) -> bool:
    """Return whether a verifier gave a reward: an episode that earned nothing because nothing was asked has none."""
    rewards = [play.grade, *(step.reward for step in play.steps)]
    return play.value is not None and any(reward is not None and reward.value is not None for reward in rewards)


class Second(Protocol):
    """Another process that serves the same environment in other surroundings."""

    async def environment(self) -> RemoteEnvironment:
        """Return the environment there; the process is started at first use."""
        ...

    async def causes(self, scripts: Sequence[Script], before: Sequence[Script]) -> Mapping[Script, Sequence[Found]]:
        """Return what the results of scripts depend on; see `Diagnosis.causes`."""
        ...

    @property
    def reads(self) -> Sequence[Read]:
        """The places in the environment's code that have read its surroundings there."""
        ...


@dataclass(slots=True)
class ValidationTarget:
    """An environment under validation, with the state that its checks share."""

    environment: RemoteEnvironment
    info: EnvironmentInfo
    splits: tuple[Sampled, ...]
    settings: Settings
    local: Any = None
    """The class as the server publishes it (`ludus.server.tasks.catalog.Published`); None if it is not installed."""
    no_class_reason: str = "this needs the environment's code; name it with --source"
    """The reason why `local` is None."""
    oracle: OraclePolicy | None = None
    demonstrator: DemonstratorPolicy | None = None
    process: ServerProcess | None = None
    second: Second | None = None
    """Another process that serves the same environment; None for a server at an address."""
    last_report: LastReport | None = None
    """The last report on the environment, if one was given."""
    steady: list[tuple[Script, Transcript]] = field(default_factory=list)
    """Scripts that gave the same twice, for the next report to compare with."""
    plays: dict[str, tuple[Trajectory, ...]] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    """Measurements by name: the costs of starts, steps and episodes, in seconds or kilobytes."""
    broken: list[Evidence] = field(default_factory=list)
    """The scripts that broke the environment."""
    outside: list[Evidence] = field(default_factory=list)
    """The scripts that earned a reward outside of the declared range."""
    failed: set[str] = field(default_factory=set)
    """The kinds of errors found so far."""
    warned: set[str] = field(default_factory=set)
    """The kinds of warnings found so far, where there was no error."""
    coverage: Coverage = Coverage()
    """All episodes that were played."""
    remark: str = ""
    """What the report says of the current check if it passes, such as how much of it was done."""
    used: Coverage = Coverage()
    """The episodes that the current check has looked at, played by it or by an earlier one."""
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _made: dict[str, Any] = field(default_factory=dict)

    # ── rewards ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def top(self) -> float:
        """The best reward: the upper end of the declared range, or the best reward that the oracle has earned."""
        if self.info.reward_range is not None:
            return self.info.reward_range[1]
        earned = [play.value for play in self.plays.get("oracle", ()) if play.value is not None]
        return max(earned, default=1.0)

    @property
    def random_baseline(self) -> float:
        """The average reward of a policy that solves nothing."""
        if self.stated_baseline is not None and self.bad_baseline is None:
            return self.stated_baseline
        low, high = self.info.reward_range or (0.0, self.top)
        return low if high <= 0 else max(low, 0.0)

    @property
    def stated_baseline(self) -> float | None:
        """The random baseline as the settings or the class state it; None if neither does."""
        if self.settings.random_baseline is not None:
            return self.settings.random_baseline
        declared = getattr(self.local.cls, "random_baseline", None) if self.local is not None else None
        return None if declared is None else float(declared)

    @property
    def bad_baseline(self) -> str | None:
        """The reason why the stated random baseline cannot be the reward of guessing; None if it can."""
        low = self.info.reward_range[0] if self.info.reward_range is not None else -math.inf
        if self.stated_baseline is None or low <= self.stated_baseline < self.top:  # false for NaN
            return None
        return (
            f"the random baseline is {self.stated_baseline:g}, which must be less than the best reward, {self.top:g}"
            + ("" if low == -math.inf else f", and not less than the lowest, {low:g}")
        )

    def earned(self, play: Trajectory) -> float | None:
        """Return the reward of an episode; None if it has none that counts, for example because it failed.

        If all rewards are penalties, an episode that was cut short does not count: its 0 would be the best reward,
        although the verifier did not award it.
        """
        return None if self._penalties_only and play.end_reason not in _ASKED else play.value

    def total(self, transcript: Transcript) -> float | None:
        """Return the reward of a script's transcript; None if it has none that counts, as in `earned`."""
        total = dict(transcript.events)["total"]
        unasked = self._penalties_only and dict(transcript.events).get("end") not in _ASKED
        return None if unasked or total is None or total["value"] is None else float(total["value"])

    @property
    def _penalties_only(self) -> bool:
        return self.info.reward_range is not None and self.info.reward_range[1] <= 0

    @property
    def tolerance(self) -> float:
        """The difference up to which two rewards count as the same, since sums of floats are rarely exact."""
        if self.info.reward_range is None:
            return TOLERANCE
        low, high = self.info.reward_range
        return TOLERANCE * (high - low) + ROUNDING * max(abs(low), abs(high))

    def out_of_range(self, value: float | None) -> bool:
        """Return whether a total reward lies outside of the declared range."""
        if self.info.reward_range is None or value is None:
            return False
        low, high = self.info.reward_range
        return not low - self.tolerance <= value <= high + self.tolerance

    def share(self, value: float) -> float:
        """Return the position of a reward between the random baseline (0) and the best reward (1)."""
        span = self.top - self.random_baseline
        return (value - self.random_baseline) / span if span > 0 else 0.0

    # ── playing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def seed(self) -> int | None:
        """Return the seed of the run; None if the environment takes none."""
        return self.settings.seed if self.info.seedable else None

    def seed_of(self, row: TaskRow) -> int | None:
        """Return the seed of an episode of a task, which differs from task to task."""
        return episode_seed(self.seed(), row.id, 0)

    @property
    def tasks(self) -> list[TaskRow]:
        """The sampled tasks of all splits."""
        return [task for split in self.splits for task in split.tasks]

    def sample_tasks(self, count: int) -> list[TaskRow]:
        """Return up to `count` of the sampled tasks, taken from all splits in turn."""
        columns = [split.tasks for split in self.splits]
        longest = max(map(len, columns), default=0)
        ordered = [column[row] for row in range(longest) for column in columns if row < len(column)]
        return ordered[:count]

    async def played(self, name: str) -> tuple[Trajectory, ...]:
        """Return the episodes of a built-in policy on the sampled tasks, which are played only once.

        Args:
            name: `oracle`, `demonstrator`, `random`, `no-op` or `empty`.

        Raises:
            NotApplicable: the oracle or the demonstrator is requested, but the environment's code is not available or
                has none.
        """
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name not in self.plays:
                self.plays[name] = tuple(await self.play(self._policy(name), samples=2 if name == "random" else 1))
            else:
                self.used += coverage_of(self.plays[name])
            return self.plays[name]

    async def played_on_more(self, name: str) -> list[Trajectory]:
        """Return episodes of the oracle or the demonstrator on further tasks, as many as `MORE_SECONDS` allow.

        An oracle may fail on one task in twenty, which a small sample does not show.
        """
        return await self.once(f"{name} on more", lambda: self._play_on_more(name))

    async def _play_on_more(self, name: str) -> list[Trajectory]:
        played_keys = {(row.split, row.id) for row in self.tasks}
        rows: list[TaskRow] = []
        for split in self.splits:
            count = MORE_TASKS if split.info.count is None else split.info.count
            for index in spread(count, MORE_TASKS):
                with contextlib.suppress(LudusError):  # `task-list` reports the task
                    rows.append(await self.environment.task(split.info.name, index=index))
        further = [row for row in rows if (row.split, row.id) not in played_keys]
        deadline, plays = time.monotonic() + MORE_SECONDS, list[Trajectory]()
        step = self.settings.concurrency
        for start in range(0, len(further), step):
            if time.monotonic() > deadline:
                break
            plays += await self.play(self._policy(name), tasks=further[start : start + step])
        return plays

    async def tools_of(self, row: TaskRow) -> tuple[ToolSpec, ...]:
        """Return all tools of a sampled task; if no episode of it starts, those that all tasks share."""
        for play in await self.played("no-op"):
            if (play.split, play.task.id) == (row.split, row.id) and play.tools:
                return tuple(
                    ToolSpec(name=tool["name"], description=tool["description"], input_schema=tool["parameters"])
                    for tool in play.tools
                )
        return self.info.tools

    def _policy(self, name: str) -> Policy:
        match name:
            case "random":
                return RandomPolicy(self.settings.seed)
            case "no-op":
                return NoOp()
            case "empty":
                return empty
        policy = self.demonstrator if name == "demonstrator" else self.oracle
        if policy is None:
            raise NotApplicable(self.no_class_reason)
        if not self._defines(name):
            raise NotApplicable(f"the class has no {name}")
        return policy

    @property
    def has_oracle(self) -> bool:
        """Return whether the class defines its own oracle."""
        return self._defines("oracle")

    def _defines(self, name: str) -> bool:
        from ludus.server import Environment  # the extra `server` is installed, since the class was loaded

        assert self.local is not None
        return getattr(self.local.cls, name).__func__ is not getattr(Environment, name).__func__

    async def play(
        self,
        policy: Policy,
        *,
        tasks: Sequence[TaskRow] | None = None,
        samples: int = 1,
        concurrency: int | None = None,
        turns: int | None = None,
    ) -> list[Trajectory]:
        """Play a policy on some tasks, by default the sampled ones, and return the episodes.

        An episode has at most `turns`: by default those of the settings, or `ORACLE_TURNS` for the class's own
        policies.
        """
        is_own = policy in (self.oracle, self.demonstrator)
        turns = turns or (max(self.settings.turns, ORACLE_TURNS) if is_own else self.settings.turns)
        harness = Harness(max_turns=turns, episode_seconds=self.settings.episode_seconds)
        chosen = self.tasks if tasks is None else tasks
        trajectories: list[Trajectory] = []
        for split in dict.fromkeys(task.split for task in chosen):
            trajectories += await rollout_all(
                self.environment,
                policy,
                split=split,
                tasks=[task for task in chosen if task.split == split],
                samples=samples,
                seed=self.seed(),
                concurrency=concurrency or self.settings.concurrency,
                retries=0,
                harness=harness,
                secrets=dict(self.settings.secrets) or None,
            )
        played = coverage_of(trajectories)
        self.coverage += played
        self.used += played
        return trajectories

    async def scripts(self, *, each: int = 4) -> list[Script]:
        """Return the actions of the oracle and of a random policy on up to `each` tasks, as scripts to play again.

        Raises:
            NotApplicable: no episode reached its end.
        """
        chosen = {(task.split, task.id) for task in self.sample_tasks(each)}
        scripts: list[Script] = []
        for name in ("oracle", "random"):
            try:
                plays = await self.played(name)
            except NotApplicable:
                continue
            scripts += [
                self.script(play)
                for play in plays
                if (play.split, play.task.id) in chosen and play.sample == 0 and play.failure is None
            ]
        if not scripts:
            raise NotApplicable("no episode reached its end")
        return scripts

    def script(self, play: Trajectory) -> Script:
        """Return the actions of an episode as a script to play again, with its seed if the environment takes one."""
        script = script_of(play)
        return script if self.info.seedable else replace(script, seed=None)

    async def perform(self, script: Script) -> Transcript:
        """Play a script alone; record it in `broken` or `outside` if it broke the environment or left the range."""
        self.used += Coverage(episodes=1)
        self.coverage += Coverage(episodes=1)
        transcript = await perform(self.environment, script, self.settings.secrets)
        total = dict(transcript.events)["total"]
        rewarded = any(
            value is not None and value["value"] is not None for _, value in transcript.part("reward", "grade")
        )
        played = Coverage(started=1, scored=int(rewarded and total is not None and total["value"] is not None))
        self.used += played
        self.coverage += played
        if transcript.part("failed"):
            action = script.actions[len(transcript.part("observation", "refused")) :][:1]
            self.broken.append(evidence_of(script, f"failed at {short(str(action[0] if action else 'its start'))}"))
        if total is not None and self.out_of_range(total["value"]):
            final = short(str(script.actions[-1]), 60) if script.actions else "nothing"
            self.outside.append(evidence_of(script, f"earned {total['value']:g} by {final}"))
        return transcript

    async def reward(self, script: Script) -> float | None:
        """Play a script, and return its total reward; None if it is unscored, or the script cannot be played."""
        try:
            return self.total(await self.perform(script))
        except LudusError:
            return None

    def episode(self, row: TaskRow) -> AbstractAsyncContextManager[Episode]:
        """Return a context in which an episode of a task runs."""
        return self.environment.episode(
            split=row.split, task=row.id, seed=self.seed_of(row), secrets=self.settings.secrets
        )

    async def causes_of(self, scripts: Sequence[Script]) -> Mapping[Script, Sequence[Found]]:
        """Return what the results of scripts depend on; nothing for a server at an address."""
        return {} if self.second is None else await self.second.causes(scripts, await self.scripts())

    async def once(self, name: str, make: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `make`, which is called only once per name for all checks."""
        async with self._locks.setdefault(f"once {name}", asyncio.Lock()):
            if name not in self._made:
                self._made[name] = await make()
            result: T = self._made[name]
            return result

    # ── the author's side ──────────────────────────────────────────────────────────────────────────────────────────

    def task(self, row: TaskRow) -> Any:
        """Return a task with its private fields.

        Raises:
            NotApplicable: the environment's code is not available.
        """
        if self.local is None:
            raise NotApplicable(self.no_class_reason)
        return self.local.split(row.split).find(row.id)[1]

    async def cause(self, play: Trajectory) -> str:
        """Return the reason why an episode failed, from the server's log if the server is our own."""
        assert play.failure is not None
        cause = await self.process.cause_of(play.failure.incident) if self.process is not None else None
        return cause or play.failure.message


def evidence(play: Trajectory, detail: str) -> Evidence:
    """Return evidence of a problem that shows in a played episode."""
    return evidence_of(script_of(play), detail)


def evidence_of(script: Script, detail: str) -> Evidence:
    """Return evidence of a problem that shows in a script that was played."""
    return Evidence(detail, script.split, script.task, script.seed, script.origin, script.as_json())


async def create_target(
    environment: RemoteEnvironment,
    info: EnvironmentInfo,
    settings: Settings,
    *,
    local_environments: LocalEnvironments | None = None,
    process: ServerProcess | None = None,
    second: Second | None = None,
    last_report: LastReport | None = None,
) -> ValidationTarget:
    """Create a validation target: draw the tasks to play, and find the environment's code."""
    local, oracle = None, None
    local_environments = local_environments or LocalEnvironments()
    try:
        local, oracle = local_environments.published(info.name), OraclePolicy(local_environments)
    except (NotFound, ImportError):
        if local_environments.sources:
            raise
    sampled = [Sampled(split, await _sample(environment, split, settings)) for split in info.splits]
    target = ValidationTarget(
        environment, info, tuple(sampled), settings, process=process, second=second, last_report=last_report
    )
    if local is not None and _same_tasks(local, target.tasks):
        target.local, target.oracle = local, oracle
        target.demonstrator = DemonstratorPolicy(local_environments)
    elif local is not None:
        target.no_class_reason = (
            "the local code makes other tasks than the server (another version, or see `task-stability`)"
        )
    return target


def _same_tasks(local: Any, rows: Sequence[TaskRow]) -> bool:
    """Return whether the environment's code makes the same tasks here as the server shows."""
    for row in rows:
        try:
            task = local.split(row.split).find(row.id)[1]
        except Exception:  # the author's code; the checks report what it raises
            return False
        if row.fields and task.public() != row.fields:
            return False
    return True


async def _sample(environment: RemoteEnvironment, split: SplitInfo, settings: Settings) -> tuple[TaskRow, ...]:
    requested = settings.tasks
    rows: list[TaskRow] = []
    for index in (
        range(requested or ENDLESS_TASKS) if split.count is None else spread(split.count, requested or split.count)
    ):
        try:
            rows.append(await environment.task(split.name, index=index))
        except LudusError:
            continue  # `task-list` reports the task and the reason
    return tuple(rows)


def spread(count: int, limit: int) -> Sequence[int]:
    """Return all of `count` indices, or `limit` of them at equal distances, with the first and the last."""
    if count <= limit:
        return range(count)
    return [round(index * (count - 1) / max(1, limit - 1)) for index in range(limit)]
