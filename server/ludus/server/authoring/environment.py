"""`Environment`: what an author writes."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, ClassVar, Generic, Literal, TypeVar

from ludus.protocol.actions import Answer, Call
from ludus.protocol.content import Content, Message
from ludus.protocol.episodes import Candidate, EpisodeLimits, StepResult
from ludus.protocol.rewards import Reward
from ludus.protocol.tasks import Task
from ludus.sandbox import EpisodeSandboxes, Sandbox, SandboxSettings, VerifierPlace
from ludus.server.authoring.noise import Noise
from ludus.server.authoring.splits import Split
from ludus.server.rewards.attempt import attempt_of
from ludus.server.rewards.binding import Binding, Declared, GroupScorer, ScoringContext, bind

TaskT = TypeVar("TaskT", bound=Task)

Prompt = str | Content | Sequence[Content] | Sequence[Message]
"""What an episode begins with: text or blocks make one user message."""


class Environment(Generic[TaskT]):
    """One world with tasks, tools, a prompt and rewards. Each episode is one instance of the class.

    Before `setup` runs, the instance has `task` (private fields included), `seed`, `rng` and `secrets`. Methods may be
    `def` or `async def`; a plain `def` runs in a thread, so it may block, unless the class says `blocking = False`.
    """

    name: ClassVar[str] = ""
    """The published name; the class's name in snake_case by default."""
    version: ClassVar[str] = "0.1.0"
    """Raise it whenever the same actions would earn something else."""
    splits: ClassVar[Mapping[str, Split[Any] | Sequence[Task]]] = {}
    """Tasks by split; see `Split`."""
    seedable: ClassVar[bool] = True
    """Whether all randomness comes from `rng` or `seed`. Where False, naming a seed is refused."""
    forkable: ClassVar[bool] = False
    """Whether repeating the steps with the same seed leads to the same place; forks are made that way."""
    blocking: ClassVar[bool] = True
    """Whether plain `def` methods may block; False runs them on the event loop, which is faster."""
    reward_range: ClassVar[tuple[float, float] | None] = None
    """The least and the greatest total reward, when known."""
    chance: ClassVar[float | None] = None
    """What guessing earns on average, where that is more than nothing, such as 0.25 for one of four choices.
    `ludus validate` finds fault with policies that solve nothing and come far above it."""
    varies_by: ClassVar[Literal["task", "seed"]] = "task"
    """What makes two episodes different problems. With "seed" the tasks may be alike, and whoever tests what was
    learned must use seeds that training did not."""
    discoverable_fields: ClassVar[Sequence[str]] = ()
    """Private fields that a policy is meant to find with its tools, such as what stands in a book that it searches.
    `ludus validate` lets observations show them; prompts, tools' descriptions, errors and public fields may not."""
    limits: ClassVar[EpisodeLimits] = EpisodeLimits()
    """Limits of this environment's episodes, beside the server's."""
    toolsets: ClassVar[Sequence[type[Toolset]]] = ()
    """Further tools, composed from other classes."""
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Further environments published as `name-variant`: this class with some class attributes changed."""
    waived_checks: ClassVar[Mapping[str, str]] = {}
    """Checks of `ludus validate` whose findings are accepted, each with the reason, which the report shows."""
    noise: ClassVar[Noise | None] = None
    """How its tools are disturbed on purpose; see `Noise`, and `with_noise` for classes of others."""
    sandbox_settings: ClassVar[SandboxSettings | None] = None
    """The sandbox that each episode gets; None for none."""
    verifier_sandbox: ClassVar[VerifierPlace] = "shared"
    """Where `verifier` is: "shared", the episode's own sandbox; "separate", a fresh one with the `artifacts` only."""
    artifacts: ClassVar[Sequence[str]] = ()
    """The files that a separate verifier gets, as paths in the work directory."""
    rubric: ClassVar[Declared | None] = None
    """What is good, as checks (`ludus.server.rewards`). It is scored when the policy hands in its final message or a
    tool ends the episode, together with the methods marked `@reward`. Who defines `grade` calls `apply_rubric`."""
    group_rubric: ClassVar[GroupScorer | None] = None
    """How several attempts at one task are compared; it defines `score_group`."""

    task: TaskT
    seed: int
    secrets: Mapping[str, str]
    _rng: random.Random | None = None
    _sandboxes: EpisodeSandboxes | None = None
    _binding: ClassVar[Binding | None] = None
    _facts: ScoringContext | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._binding = bind(cls)
        if cls._binding is not None and cls.grade is Environment.grade:
            cls.grade = Environment.apply_rubric  # type: ignore[method-assign]
        if cls.group_rubric is not None and "score_group" not in cls.__dict__:
            cls.score_group = classmethod(_compare)  # type: ignore[assignment]

    @property
    def rng(self) -> random.Random:
        """The episode's random generator, made from its seed."""
        if self._rng is None:
            self._rng = random.Random(self.seed)
        return self._rng

    @property
    def sandbox(self) -> Sandbox:
        """The episode's sandbox: there from `setup` on, and gone after `teardown`, however the episode ends."""
        return self._all_sandboxes.agent

    def verifier(self) -> AbstractAsyncContextManager[Sandbox]:
        """The sandbox in which to check what the policy did: `async with self.verifier() as box: …`."""
        return self._all_sandboxes.verifier(self.verifier_sandbox, self.artifacts)

    @property
    def _all_sandboxes(self) -> EpisodeSandboxes:
        if self._sandboxes is None:
            raise RuntimeError(f"{type(self).__name__} has no sandbox: give the class `sandbox_settings`")
        return self._sandboxes

    def setup(self) -> None | Awaitable[None]:
        """Prepare the episode."""

    def teardown(self) -> None | Awaitable[None]:
        """Free what the episode holds; runs once, however the episode ended."""

    def prompt(self) -> Prompt | Awaitable[Prompt]:
        """What the policy is told at the beginning."""
        raise NotImplementedError

    def grade(self, answer: str) -> float | Reward | None | Awaitable[float | Reward | None]:
        """What a final message is worth. Defining it makes the environment gradable."""
        raise NotImplementedError

    async def apply_rubric(self, answer: str) -> Reward | None:
        """What the rubric and the `@reward` methods say of the episode so far and its final answer; None without any.

        Args:
            answer: the final message; empty where there is none.
        """
        facts, binding = self._facts, self._binding
        rubric = binding.end(facts.group) if binding is not None and facts is not None else None
        if rubric is None or facts is None or binding is None:
            return None
        attempt = replace(facts.attempt, answer=answer)
        reward = await rubric.score(attempt, offload=facts.offload)
        binding.saw(attempt, reward)
        return reward

    def task_tools(self) -> Sequence[Callable[..., Any]]:
        """Further tools of this task: bound methods or functions marked with `@tool`."""
        return ()

    @classmethod
    def score_group(
        cls, task: TaskT, candidates: Sequence[Candidate]
    ) -> Sequence[float | Reward] | Awaitable[Sequence[float | Reward]]:
        """Rewards for several answers to one task, compared with each other."""
        raise NotImplementedError

    @classmethod
    def oracle(cls, task: TaskT) -> Generator[Call | Answer, StepResult, None]:
        """A policy that knows the answer and earns the best reward: yields actions, receives their results."""
        raise NotImplementedError

    @classmethod
    def exploits(cls, task: TaskT) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Known ways to cheat, by name, each like an oracle that earns what it did not solve.

        `ludus validate` plays them, and finds fault with those that earn more than chance.
        """
        return {}


async def _compare(cls: type[Environment[Any]], task: Any, candidates: Sequence[Candidate]) -> Sequence[Reward]:
    assert cls.group_rubric is not None
    return await cls.group_rubric.score([attempt_of(candidate, task) for candidate in candidates])


class Toolset:
    """Tools that several environments share; each episode has its own instance."""

    def __init__(self, environment: Environment[Any]) -> None:
        self.environment = environment
