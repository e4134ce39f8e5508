"""What is validated: an environment over the wire, with its author's side and its server's process where at hand."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from ludus.client.environment import RemoteEnvironment
from ludus.client.policies import Policy, RandomPolicy
from ludus.client.rollout import Harness, episode_seed, rollout_all
from ludus.protocol.episodes import EnvironmentInfo, SplitInfo, TaskRow, ToolSpec
from ludus.protocol.errors import LudusError, NotFound
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.trajectory import Trajectory
from ludus.validation.checks import Evidence, NotApplicable, short
from ludus.validation.local_environments import LocalEnvironments
from ludus.validation.oracle import OraclePolicy
from ludus.validation.policies import NoOp, empty
from ludus.validation.server_process import ServerProcess
from ludus.validation.settings import ORACLE_TURNS, Settings
from ludus.validation.transcripts import Script, Transcript, perform, script_of

T = TypeVar("T")

TOLERANCE: Final = 1e-6
"""The share of the reward's range below which two rewards are the same."""

ROUNDING: Final = 1e-12
"""The share of the largest reward that floats are off by."""

_ASKED: Final = frozenset({EndReason.COMPLETED, EndReason.SUBMITTED})
"""How episodes end that have shown all that they are worth."""

ENDLESS_TASKS: Final = 8
"""Tasks of an endless split that are played when all are asked for."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A split and those of its tasks that are played."""

    info: SplitInfo
    tasks: tuple[TaskRow, ...]


Second = Callable[[], Awaitable[RemoteEnvironment]]


@dataclass(slots=True)
class ValidationTarget:
    """An environment that is looked at."""

    environment: RemoteEnvironment
    info: EnvironmentInfo
    splits: tuple[Sampled, ...]
    settings: Settings
    authored: Any = None
    """The class as the server publishes it (`ludus.server.tasks.catalog.Published`); None where it is not installed."""
    no_class_reason: str = "this needs the environment's code; name it with --source"
    """Why `authored` is None."""
    oracle: OraclePolicy | None = None
    process: ServerProcess | None = None
    second: Second | None = None
    """Connects to another process that serves the same environment, started when it is first asked for."""
    plays: dict[str, tuple[Trajectory, ...]] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    """Figures by name: what starts, steps and episodes cost."""
    broken: list[Evidence] = field(default_factory=list)
    """Scripts that broke the environment."""
    outside: list[Evidence] = field(default_factory=list)
    """Scripts that earned what the declared range does not hold."""
    failed: set[str] = field(default_factory=set)
    """The kinds of errors found so far."""
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _made: dict[str, Any] = field(default_factory=dict)

    # ── rewards ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def top(self) -> float:
        """The best reward: the end of the declared range, or the best that the oracle has earned."""
        if self.info.reward_range is not None:
            return self.info.reward_range[1]
        earned = [play.value for play in self.plays.get("oracle", ()) if play.value is not None]
        return max(earned, default=1.0)

    @property
    def chance(self) -> float:
        """What a policy earns that does not solve anything."""
        if self.stated_chance is not None and self.bad_chance is None:
            return self.stated_chance
        low, high = self.info.reward_range or (0.0, self.top)
        return low if high <= 0 else max(low, 0.0)

    @property
    def stated_chance(self) -> float | None:
        """What the settings or the class say that chance earns; None where neither does."""
        if self.settings.chance is not None:
            return self.settings.chance
        declared = getattr(self.authored.cls, "chance", None) if self.authored is not None else None
        return None if declared is None else float(declared)

    @property
    def bad_chance(self) -> str | None:
        """Why the stated chance cannot be what guessing earns; None where it can."""
        low = self.info.reward_range[0] if self.info.reward_range is not None else -math.inf
        if self.stated_chance is None or low <= self.stated_chance < self.top:  # which NaN is not
            return None
        return (
            f"chance is said to earn {self.stated_chance:g}, which must be less than the best reward, {self.top:g}"
            + ("" if low == -math.inf else f", and no less than the least, {low:g}")
        )

    def earned(self, play: Trajectory) -> float | None:
        """What an episode shows of the reward; None where it shows nothing, as when it failed.

        Where there are penalties only, an episode that was cut short has not been asked for everything: its 0 is the
        best reward, and nothing that the verifier paid.
        """
        return None if self._penalties_only and play.end_reason not in _ASKED else play.value

    def total(self, transcript: Transcript) -> float | None:
        """What a script shows of the reward, as `earned` has it of an episode."""
        total = dict(transcript.events)["total"]
        unasked = self._penalties_only and dict(transcript.events).get("end") not in _ASKED
        return None if unasked or total is None or total["value"] is None else float(total["value"])

    @property
    def _penalties_only(self) -> bool:
        return self.info.reward_range is not None and self.info.reward_range[1] <= 0

    @property
    def tolerance(self) -> float:
        """Rewards nearer than this are the same, as sums of floats rarely come out even."""
        if self.info.reward_range is None:
            return TOLERANCE
        low, high = self.info.reward_range
        return TOLERANCE * (high - low) + ROUNDING * max(abs(low), abs(high))

    def beyond(self, value: float | None) -> bool:
        """Whether a total reward lies outside of the declared range."""
        if self.info.reward_range is None or value is None:
            return False
        low, high = self.info.reward_range
        return not low - self.tolerance <= value <= high + self.tolerance

    def share(self, value: float) -> float:
        """How far a reward is on the way from chance to the best one: 0 to 1."""
        span = self.top - self.chance
        return (value - self.chance) / span if span > 0 else 0.0

    # ── playing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def seed(self) -> int | None:
        """The seed of a run; None where the environment takes none."""
        return self.settings.seed if self.info.seedable else None

    def seed_of(self, row: TaskRow) -> int | None:
        """The seed of an episode of a task, another one for each task."""
        return episode_seed(self.seed(), row.id, 0)

    @property
    def tasks(self) -> list[TaskRow]:
        """The sampled tasks of all splits."""
        return [task for split in self.splits for task in split.tasks]

    def few(self, count: int) -> list[TaskRow]:
        """Some of the sampled tasks, from all splits in turn."""
        columns = [split.tasks for split in self.splits]
        longest = max(map(len, columns), default=0)
        ordered = [column[row] for row in range(longest) for column in columns if row < len(column)]
        return ordered[:count]

    async def played(self, name: str) -> tuple[Trajectory, ...]:
        """What came of a ready policy on the sampled tasks: `oracle`, `random`, `no-op` or `empty`. Played once.

        Raises:
            NotApplicable: the oracle, where the environment's code is not at hand or has none.
        """
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name not in self.plays:
                self.plays[name] = tuple(await self.play(self._policy(name), samples=2 if name == "random" else 1))
            return self.plays[name]

    async def tools_of(self, row: TaskRow) -> tuple[ToolSpec, ...]:
        """The tools of a sampled task, its own ones included; those of all tasks where no episode of it starts."""
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
        if self.oracle is None:
            raise NotApplicable(self.no_class_reason)
        if not self.has_oracle:
            raise NotApplicable("the class has no oracle")
        return self.oracle

    @property
    def has_oracle(self) -> bool:
        """Whether the class defines its oracle."""
        from ludus.server import Environment  # the extra `server` is there, since the class itself was loaded

        return self.authored.cls.oracle.__func__ is not Environment.oracle.__func__  # type: ignore[attr-defined]

    async def play(
        self,
        policy: Policy,
        *,
        tasks: Sequence[TaskRow] | None = None,
        samples: int = 1,
        concurrency: int | None = None,
    ) -> list[Trajectory]:
        """Roll a policy out over some tasks, by default the sampled ones."""
        turns = max(self.settings.turns, ORACLE_TURNS) if policy is self.oracle else self.settings.turns
        harness = Harness(max_turns=turns, episode_seconds=self.settings.episode_seconds)
        chosen = self.tasks if tasks is None else tasks
        found: list[Trajectory] = []
        for split in dict.fromkeys(task.split for task in chosen):
            found += await rollout_all(
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
        return found

    async def scripts(self, *, each: int = 4) -> list[Script]:
        """What the oracle and a random policy did on some tasks, to be done again."""
        chosen = {(task.split, task.id) for task in self.few(each)}
        found: list[Script] = []
        for name in ("oracle", "random"):
            try:
                plays = await self.played(name)
            except NotApplicable:
                continue
            found += [
                self.script(play)
                for play in plays
                if (play.split, play.task.id) in chosen and play.sample == 0 and play.failure is None
            ]
        if not found:
            raise NotApplicable("no episode could be played to its end")
        return found

    def script(self, play: Trajectory) -> Script:
        """What was done in an episode, to be done again with its seed where the environment takes one."""
        script = script_of(play)
        return script if self.info.seedable else replace(script, seed=None)

    async def perform(self, script: Script) -> Transcript:
        """Play a script alone."""
        transcript = await perform(self.environment, script, self.settings.secrets)
        if transcript.part("failed"):
            action = script.actions[len(transcript.part("observation", "refused")) :][:1]
            self.broken.append(evidence_of(script, f"broke at {short(str(action[0] if action else 'its start'))}"))
        total = dict(transcript.events)["total"]
        if total is not None and self.beyond(total["value"]):
            last = short(str(script.actions[-1]), 60) if script.actions else "nothing"
            self.outside.append(evidence_of(script, f"earned {total['value']:g} by {last}"))
        return transcript

    async def once(self, name: str, make: Callable[[], Awaitable[T]]) -> T:
        """What `make` gives, made once for all checks."""
        async with self._locks.setdefault(f"once {name}", asyncio.Lock()):
            if name not in self._made:
                self._made[name] = await make()
            made: T = self._made[name]
            return made

    # ── the author's side ──────────────────────────────────────────────────────────────────────────────────────────

    def task(self, row: TaskRow) -> Any:
        """A task with its private fields.

        Raises:
            NotApplicable: the environment's code is not at hand.
        """
        if self.authored is None:
            raise NotApplicable(self.no_class_reason)
        return self.authored.split(row.split).find(row.id)[1]

    def cause(self, play: Trajectory) -> str:
        """Why an episode failed, from the server's log where that is ours."""
        assert play.failure is not None
        cause = self.process.cause_of(play.failure.incident) if self.process is not None else None
        return cause or play.failure.message


def evidence(play: Trajectory, detail: str) -> Evidence:
    """Where it shows: in a played episode."""
    return evidence_of(script_of(play), detail)


def evidence_of(script: Script, detail: str) -> Evidence:
    """Where it shows: in a script that was played again."""
    return Evidence(detail, script.split, script.task, script.seed, script.origin, script.as_json())


async def subject_of(
    environment: RemoteEnvironment,
    info: EnvironmentInfo,
    settings: Settings,
    *,
    authors: LocalEnvironments | None = None,
    process: ServerProcess | None = None,
    second: Second | None = None,
) -> ValidationTarget:
    """Draw the tasks to play, and find the environment's code."""
    authored, oracle = None, None
    if authors is None:
        authors = LocalEnvironments()
    try:
        authored, oracle = authors.published(info.name), OraclePolicy(authors)
    except (NotFound, ImportError):
        if authors.sources:
            raise
    sampled = [Sampled(split, await _sample(environment, split, settings)) for split in info.splits]
    subject = ValidationTarget(environment, info, tuple(sampled), settings, process=process, second=second)
    if authored is not None and _same_tasks(authored, subject.tasks):
        subject.authored, subject.oracle = authored, oracle
    elif authored is not None:
        subject.no_class_reason = (
            "the code here makes other tasks than the server (another version, or see `task-stability`)"
        )
    return subject


def _same_tasks(authored: Any, rows: Sequence[TaskRow]) -> bool:
    """Whether the environment's code makes the tasks here that the server shows."""
    for row in rows:
        try:
            task = authored.split(row.split).find(row.id)[1]
        except Exception:  # the author's own code, which the checks will report on
            return False
        if row.fields and task.public() != row.fields:
            return False
    return True


async def _sample(environment: RemoteEnvironment, split: SplitInfo, settings: Settings) -> tuple[TaskRow, ...]:
    wanted = settings.tasks
    if split.count is None:
        indices: Sequence[int] = range(wanted or ENDLESS_TASKS)
    elif wanted is None or wanted >= split.count:
        indices = range(split.count)
    else:
        indices = [round(place * (split.count - 1) / max(1, wanted - 1)) for place in range(wanted)]
    rows: list[TaskRow] = []
    for index in indices:
        try:
            rows.append(await environment.task(split.name, index=index))
        except LudusError:
            continue  # `task-list` says which and why
    return tuple(rows)
