"""What is validated: an environment over the wire, with its author's side and its server's process where at hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from ludus.client.authored import AuthoredEnvironments
from ludus.client.environment import RemoteEnvironment
from ludus.client.policies import OraclePolicy, Policy, RandomPolicy
from ludus.client.rollout import Harness, episode_seed, rollout_all
from ludus.client.trajectory import Trajectory
from ludus.client.validation.checks import Evidence, NotApplicable, short
from ludus.client.validation.policies import empty, no_op
from ludus.client.validation.served import ServerProcess
from ludus.client.validation.settings import Settings
from ludus.client.validation.transcripts import Script, Transcript, perform, perform_together, script_of
from ludus.protocol.episodes import EnvironmentInfo, SplitInfo, TaskRow
from ludus.protocol.errors import LudusError, NotFound

T = TypeVar("T")

ENDLESS_TASKS: Final = 8
"""Tasks of an endless split that are played when all are asked for."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A split and those of its tasks that are played."""

    info: SplitInfo
    tasks: tuple[TaskRow, ...]


Second = Callable[[], Awaitable[RemoteEnvironment]]


@dataclass(slots=True)
class Subject:
    """An environment that is looked at."""

    environment: RemoteEnvironment
    info: EnvironmentInfo
    splits: tuple[Sampled, ...]
    settings: Settings
    authored: Any = None
    """The class as the server publishes it (`ludus.server.catalog.Published`); None where its code is not at hand."""
    unauthored: str = "this needs the environment's code; name it with --source"
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
        if self.settings.chance is not None:
            return self.settings.chance
        declared = getattr(self.authored.cls, "chance", None) if self.authored is not None else None
        if declared is not None:
            return float(declared)
        low, high = self.info.reward_range or (0.0, self.top)
        return max(low, min(0.0, high))

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

    def _policy(self, name: str) -> Policy:
        match name:
            case "random":
                return RandomPolicy(self.settings.seed)
            case "no-op":
                return no_op
            case "empty":
                return empty
        if self.oracle is None:
            raise NotApplicable(self.unauthored)
        if not self.has_oracle:
            raise NotApplicable("the class has no oracle")
        return self.oracle

    @property
    def has_oracle(self) -> bool:
        """Whether the class defines its oracle."""
        base = next(cls for cls in self.authored.cls.__mro__ if cls.__module__ == "ludus.server.environment")
        return self.authored.cls.oracle.__func__ is not base.oracle.__func__

    async def play(
        self,
        policy: Policy,
        *,
        tasks: Sequence[TaskRow] | None = None,
        samples: int = 1,
        concurrency: int | None = None,
    ) -> list[Trajectory]:
        """Roll a policy out over some tasks, by default the sampled ones."""
        harness = Harness(max_turns=self.settings.turns, episode_seconds=self.settings.episode_seconds)
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
        return transcript

    async def perform_together(self, scripts: Sequence[Script]) -> list[Transcript]:
        """Play scripts with their actions interleaved."""
        return await perform_together(self.environment, scripts, self.settings.secrets)

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
            raise NotApplicable(self.unauthored)
        return self.authored.split(row.split).find(row.id)[1]

    def cause(self, play: Trajectory) -> str:
        """Why an episode failed, from the server's log where that is ours."""
        assert play.failure is not None
        cause = self.process.cause_of(play.failure.incident) if self.process is not None else None
        return cause or play.failure.message


def evidence(play: Trajectory, detail: str) -> Evidence:
    """Where it shows: in a played episode."""
    return Evidence(detail, play.split, play.task.id, play.seed, play.policy.split("(")[0])


def evidence_of(script: Script, detail: str) -> Evidence:
    """Where it shows: in a script that was played again."""
    return Evidence(detail, script.split, script.task, script.seed, script.origin)


async def subject_of(
    environment: RemoteEnvironment,
    info: EnvironmentInfo,
    settings: Settings,
    *,
    authors: AuthoredEnvironments | None = None,
    process: ServerProcess | None = None,
    second: Second | None = None,
) -> Subject:
    """Draw the tasks to play, and find the environment's code."""
    authored, oracle = None, None
    if authors is None:
        authors = AuthoredEnvironments()
    try:
        authored, oracle = authors.published(info.name), OraclePolicy(authors)
    except (NotFound, ImportError):
        if authors.sources:
            raise
    sampled = [Sampled(split, await _sample(environment, split, settings)) for split in info.splits]
    subject = Subject(environment, info, tuple(sampled), settings, process=process, second=second)
    if authored is not None and _same_tasks(authored, subject.tasks):
        subject.authored, subject.oracle = authored, oracle
    elif authored is not None:
        subject.unauthored = (
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
