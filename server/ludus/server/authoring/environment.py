"""The base classes of environments and toolsets."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel

from ludus.protocol.actions import Answer, Call
from ludus.protocol.content import Content, Message
from ludus.protocol.episodes import Candidate, EpisodeLimits, StepResult, ToolSpec
from ludus.protocol.rewards import Reward
from ludus.protocol.tasks import Task
from ludus.sandbox import EpisodeSandboxes, Sandbox, SandboxSettings, VerifierPlace
from ludus.sandbox.cassettes import Cassette, Tape
from ludus.server.authoring.cassettes import located_cassette
from ludus.server.authoring.contexts import OwnedContexts
from ludus.server.authoring.noise import Noise
from ludus.server.authoring.splits import Split
from ludus.server.authoring.tools import ToolBase
from ludus.server.rewards.attempt import attempt_of
from ludus.server.rewards.binding import SCORING, Binding, Declared, GroupScorer, bind

TaskT = TypeVar("TaskT", bound=Task)
T = TypeVar("T")

Prompt = str | Content | Sequence[Content] | Sequence[Message]
"""The start of an episode: text or blocks become one user message."""

Durable = Literal["replay", "snapshot", "none"]
"""How episodes come back after a restart."""

TaskTools = Sequence[Callable[..., Any] | ToolBase]
"""Tools of one task: bound methods or functions marked with `@tool`, or what `McpServer.tools` returns."""


class Environment(Generic[TaskT]):
    """The base class of environments: tasks, tools, a prompt and rewards. Each episode is one instance of the class.

    Before `setup` runs, the instance has `task` (with its private fields), `seed`, `rng`, `secrets` and `sandboxes`;
    the runtime keeps its own state of the episode, and sets no other attribute. Methods may be
    `def` or `async def`; a plain `def` runs in a thread, so it may block, unless the class sets `blocking = False`.
    """

    name: ClassVar[str] = ""
    """The published name; the class's name in snake_case by default."""
    version: ClassVar[str] = "0.1.0"
    """The version; increase it whenever the same actions would earn another reward."""
    splits: ClassVar[Mapping[str, Split[Any] | Sequence[Task]]] = {}
    """Tasks by split; see `Split`."""
    seedable: ClassVar[bool] = True
    """Whether all randomness comes from `rng` or `seed`. If False, starts with a given seed are refused."""
    forkable: ClassVar[bool] = False
    """Whether episodes can be forked at any step. With `durable = "replay"`, a fork repeats the steps with the same
    seed, which must lead to the same state; with "snapshot", it restores one."""
    durable: ClassVar[Durable] = "replay"
    """How an episode comes back after a restart, if the server has a journal: "replay" repeats its calls, "snapshot"
    restores the last `snapshot` and repeats the calls after it, "none" ends it unscored."""
    snapshot_every: ClassVar[int] = 1
    """With `durable = "snapshot"`, the number of steps from one snapshot to the next."""
    outside_effects: ClassVar[bool] = False
    """Whether tools act on something outside that outlives the episode (they send a mail, they charge a card). Then no
    call ever runs a second time: an episode whose call may or may not have run ends unscored."""
    blocking: ClassVar[bool] = True
    """Whether plain `def` methods may block; False runs them on the event loop, which is faster."""
    reward_range: ClassVar[tuple[float, float] | None] = None
    """The least and the greatest total reward, when known."""
    random_baseline: ClassVar[float | None] = None
    """The average reward of guessing, if it is more than 0, such as 0.25 for one of four choices.
    `ludus validate` reports policies that solve nothing and earn far more than this."""
    shortcut_bounds: ClassVar[Mapping[str, float]] = {}
    """What policies that take a shortcut may earn on average, if it is more than the random baseline and 5 % of the
    distance to the best reward: `constant`, `nearest`, `search` or `prompt-only`. `ludus validate` plays them."""
    varies_by: ClassVar[Literal["task", "seed"]] = "task"
    """What makes two episodes different problems. With "seed" the tasks may be alike, and an evaluation must use seeds
    that were not used in training."""
    discoverable_fields: ClassVar[Sequence[str]] = ()
    """Private fields that a policy is meant to find with its tools, such as text in a book that it searches.
    `ludus validate` allows them in observations, but not in prompts, tool descriptions, errors or public fields."""
    limits: ClassVar[EpisodeLimits] = EpisodeLimits()
    """Limits of this environment's episodes, in addition to the server's."""
    toolsets: ClassVar[Sequence[type[Toolset]]] = ()
    """Further tools, from other classes."""
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Further environments, published as `name-variant`: this class with some class attributes changed."""
    waived_checks: ClassVar[Mapping[str, str]] = {}
    """Checks of `ludus validate` whose findings are accepted, each with a reason, which appears in the report."""
    noise: ClassVar[Noise | None] = None
    """Noise that disturbs the tools on purpose; see `Noise`, and `with_noise` for classes of other authors."""
    sandbox_settings: ClassVar[SandboxSettings | None] = None
    """The sandbox that each episode gets; None for none. `sandbox_for` can choose another one for each task."""
    verifier_sandbox: ClassVar[VerifierPlace] = "shared"
    """The sandbox of `verifier`: "shared", the episode's own; "separate", a fresh one with only the `artifacts`."""
    cassette_settings: ClassVar[Cassette | None] = None
    """The file with recorded results of calls that are not deterministic, which `cassette` replays. The requests of a
    sandbox have theirs in `sandbox_settings`; both may name the same file."""
    artifacts: ClassVar[Sequence[str]] = ()
    """The files that a separate verifier gets, as paths in the work directory."""
    rubric: ClassVar[Declared | None] = None
    """The checks that score an episode (`ludus.server.rewards`), together with the methods marked `@reward`. They run
    when the policy submits its final message or a tool ends the episode. A custom `grade` runs them by calling
    `apply_rubric`."""
    group_rubric: ClassVar[GroupScorer | None] = None
    """The rubric that compares several attempts at one task; it defines `score_group`."""
    proposals: ClassVar[type[BaseModel] | None] = None
    """The form in which `ludus generate` has new tasks proposed; the fields of the task's class by default."""

    task: TaskT
    seed: int
    secrets: Mapping[str, str]
    sandboxes: EpisodeSandboxes | None = None
    """The episode's sandboxes, from which `sandbox` and `verifier` take theirs; None without `sandbox_settings`."""
    _rng: random.Random | None = None
    _tape: Tape | None = None
    _contexts: OwnedContexts | None = None
    _binding: ClassVar[Binding | None] = None

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
    def cassette(self) -> Tape:
        """The recorded results of the episode's calls: `await self.cassette.call("search", {"query": query}, live)`."""
        if self._tape is None:
            if self.cassette_settings is None:
                raise RuntimeError(f"{type(self).__name__} has no cassette: give the class `cassette_settings`")
            settings = located_cassette(type(self), self.cassette_settings, "cassette_settings")
            self._tape = Tape(settings, getattr(self, "secrets", {}).values())
        return self._tape

    @property
    def sandbox(self) -> Sandbox:
        """The episode's sandbox, available from `setup` until the end of `teardown`, however the episode ends."""
        return self._all_sandboxes.agent

    def verifier(self) -> AbstractAsyncContextManager[Sandbox]:
        """Return the sandbox for checking the work of the policy: `async with self.verifier() as box: …`."""
        return self._all_sandboxes.verifier(self.verifier_sandbox, self.artifacts)

    @property
    def _all_sandboxes(self) -> EpisodeSandboxes:
        if self.sandboxes is None:
            name = type(self).__name__
            raise RuntimeError(
                f"{name} has no sandbox: give the class `sandbox_settings`, or return them from `sandbox_for`"
            )
        return self.sandboxes

    async def enter_context(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter a context that is left after `teardown`, however the episode ends; the last one entered is left first.

        One task of the episode enters and leaves all of them, as contexts that hold an anyio task group require. So
        `setup` and any tool may call this method.

        Raises:
            Exception: whatever entering the context raises.
            RuntimeError: the episode has ended, or an earlier context broke off.
        """
        if self._contexts is None:
            self._contexts = OwnedContexts()
        return await self._contexts.enter(context)

    @classmethod
    def startup(cls) -> None | Awaitable[None]:
        """Prepare what all episodes share; runs once in each server process, before the server is ready.

        A variant is a class too: with variants, the method runs for each of them.
        """

    @classmethod
    def shutdown(cls) -> None | Awaitable[None]:
        """Free what `startup` prepared; runs once when the server process stops, after the last `teardown`."""

    @classmethod
    def catalog_tools(cls) -> Sequence[ToolSpec] | Awaitable[Sequence[ToolSpec]]:
        """Return the specifications of tools that `task_tools` adds to every task, so that the catalog shows them.

        It runs once, after `startup`, for tools that are known only at run time, such as those of another server.
        """
        return ()

    def setup(self) -> None | Awaitable[None]:
        """Prepare the episode."""

    def teardown(self) -> None | Awaitable[None]:
        """Free the episode's resources; runs once, however the episode ended."""

    def snapshot(self) -> bytes | Awaitable[bytes]:
        """Return the episode's state, for `durable = "snapshot"`.

        The files in the sandbox's work directory and the state of `rng` are part of every snapshot by themselves; an
        environment whose whole state these are need not define this method.
        """
        return b""

    def restore(self, state: bytes) -> None | Awaitable[None]:
        """Bring a new episode to a state that `snapshot` returned; runs after `setup`, with the files in place.

        Args:
            state: what `snapshot` returned, maybe in another process.
        """

    def prompt(self) -> Prompt | Awaitable[Prompt]:
        """Return the prompt: what the policy sees at the beginning."""
        raise NotImplementedError

    def grade(self, answer: str) -> float | Reward | None | Awaitable[float | Reward | None]:
        """Return the reward of a final message. Defining this method makes the environment gradable."""
        raise NotImplementedError

    async def apply_rubric(self, answer: str) -> Reward | None:
        """Return the reward of the rubric and the `@reward` methods for the episode so far; None if there are none.

        Args:
            answer: the final message; empty if there is none.
        """
        scoring = SCORING.get()
        if scoring is None or scoring.attempt.environment is not self:
            return None
        rubric = scoring.binding.end
        if rubric is None:
            return None
        attempt = replace(scoring.attempt, answer=answer)
        return await rubric.score(attempt, offload=scoring.offload)

    def task_tools(self) -> TaskTools | Awaitable[TaskTools]:
        """Return further tools for this task: bound methods or functions marked with `@tool`, or `McpServer.tools`."""
        return ()

    @classmethod
    def score_group(
        cls, task: TaskT, candidates: Sequence[Candidate]
    ) -> Sequence[float | Reward] | Awaitable[Sequence[float | Reward]]:
        """Return rewards for several answers to one task, in order, by comparing them with each other."""
        raise NotImplementedError

    @classmethod
    def sandbox_for(cls, task: TaskT) -> SandboxSettings | None:
        """Return the sandbox of a task's episodes: `sandbox_settings`, unless a class overrides this method.

        `cls.sandbox_settings.but(image=task.image)` gives each task an image of its own. The settings must depend on
        nothing but the task, and are read when the server starts and at the start of each episode. Sandboxes with
        settings of one task start on demand, whatever `warm` says.
        """
        return cls.sandbox_settings

    @classmethod
    def chooses_sandboxes(cls) -> bool:
        """Return whether the class chooses sandboxes by task."""
        return cls.sandbox_for.__func__ is not Environment.sandbox_for.__func__  # type: ignore[attr-defined]

    @classmethod
    def oracle(cls, task: TaskT) -> Generator[Call | Answer, StepResult, None]:
        """Return a policy that knows the answer and earns the best reward: it yields actions and receives results."""
        raise NotImplementedError

    @classmethod
    def demonstrator(cls, prompt: str) -> Generator[Call | Answer, StepResult, None]:
        """Return a policy to learn from: as `oracle`, but it gets the text of the prompt and no private field.

        `ludus demos` prefers it to `oracle`, which may call with values that no model can know before it has looked.
        """
        raise NotImplementedError

    @classmethod
    def exploits(cls, task: TaskT) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return known ways to cheat, by name, each a policy like `oracle` that does not solve the task.

        `ludus validate` runs them, and reports those that earn more than the random baseline.
        """
        return {}

    @classmethod
    def equivalents(cls, task: TaskT) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return other right ways to solve the task or to say its answer, by name, each a policy like `oracle`.

        `ludus validate` runs them, and reports those that earn less than the oracle.
        """
        return {}

    @classmethod
    def right_messages(cls, task: TaskT) -> Sequence[str]:
        """Return final messages that must earn the best reward, such as the right answer in each form that counts.

        `ludus validate` reports those that earn less. Without tools, each is a whole episode.
        """
        return ()

    # ── for `ludus generate` ─────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def task_from_proposal(cls, id: str, proposal: Any) -> TaskT:
        """Return the task of a proposal, which has the form `proposals`. Without this method, it has the task's fields.

        Compute here what must not be guessed, such as the answer. Raise `ValueError` with the reason for a proposal
        that makes no good task, and `HeldOutTask` for one that belongs to another split than the training one.
        """
        raise NotImplementedError

    def final_state(self) -> Any | Awaitable[Any]:
        """Return what the episode has reached, as a JSON value, or None if it reached nothing; runs at its end."""
        raise NotImplementedError

    @classmethod
    def describe_state(cls, task: TaskT, state: Any) -> str:
        """Return the instruction to reach a final state from the start of a task, complete enough to be graded."""
        raise NotImplementedError

    @classmethod
    def task_from_state(cls, id: str, task: TaskT, state: Any, calls: Sequence[Call], instruction: str) -> TaskT:
        """Return the task to reach a final state: it starts as `task` does, and `calls` are one way to get there."""
        raise NotImplementedError

    @classmethod
    def task_from_hops(cls, id: str, rng: random.Random, hops: int) -> TaskT | None:
        """Return a training task whose answer is `hops` steps away in the environment's graph; None if none was found.

        `rng` draws it. The answer must be the only one.
        """
        raise NotImplementedError


async def _compare(cls: type[Environment[Any]], task: Any, candidates: Sequence[Candidate]) -> Sequence[Reward]:
    assert cls.group_rubric is not None
    return await cls.group_rubric.score([attempt_of(candidate, task) for candidate in candidates])


class Toolset:
    """The base class of tools that several environments share; each episode has its own instance."""

    def __init__(self, environment: Environment[Any]) -> None:
        self.environment = environment
