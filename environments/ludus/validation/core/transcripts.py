"""Scripts of actions, and comparable transcripts of all that an environment returned for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ludus.client.environment import RemoteEnvironment
from ludus.client.episode import Episode
from ludus.protocol.actions import Action, Answer, Call
from ludus.protocol.content import Message, text_of
from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import EpisodeFailed, InvalidParams
from ludus.protocol.items import CallItem
from ludus.protocol.rewards import Reward, total
from ludus.protocol.trajectory import Trajectory
from ludus.validation.core.checks import short


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """A fixed sequence of actions for one task."""

    split: str
    task: str
    seed: int | None
    actions: tuple[Action, ...]
    origin: str
    """The name of the policy or the check that the actions come from, such as `oracle` or `random`."""

    def as_json(self) -> tuple[dict[str, Any], ...]:
        """Return the actions as JSON values."""
        return tuple(
            {"tool": action.tool, "arguments": action.arguments}
            if isinstance(action, Call)
            else {"answer": action.text}
            for action in self.actions
        )


@dataclass(frozen=True, slots=True)
class Transcript:
    """The outputs of an episode in order, each with a name, such as `observation 2`, and a JSON value."""

    script: Script
    seed: int
    events: tuple[tuple[str, Any], ...]

    @property
    def failed(self) -> bool:
        """Return whether the environment broke."""
        return bool(self.part("failed"))

    def part(self, *kinds: str) -> tuple[tuple[str, Any], ...]:
        """Return the events whose names begin with one of the given words."""
        return tuple((name, value) for name, value in self.events if name.split()[0] in kinds)

    def without(self, *kinds: str) -> tuple[tuple[str, Any], ...]:
        """Return the events whose names begin with none of the given words."""
        return tuple((name, value) for name, value in self.events if name.split()[0] not in kinds)


def difference(events_a: Sequence[tuple[str, Any]], events_b: Sequence[tuple[str, Any]]) -> str | None:
    """Describe the first difference of two transcripts; return None if they are equal."""
    for (name, value), (name2, value2) in zip(events_a, events_b, strict=False):
        if name != name2:
            return f"{spoken(name)}: one episode has it, and the other has {spoken(name2)}"
        if value != value2:
            excerpt, right = _excerpts(str(value), str(value2))
            return f"{spoken(name)}: {excerpt!r} and {right!r}"
    if len(events_a) != len(events_b):
        longer = events_a if len(events_a) > len(events_b) else events_b
        return f"{spoken(longer[min(len(events_a), len(events_b))][0])}: only one of the episodes has it"
    return None


def spoken(name: str) -> str:
    """Return the name of an event as a part of a sentence: `step 3's observation`, `the prompt`."""
    kind, _, number = name.partition(" ")
    return f"step {number}'s {kind}" if number else f"the {kind}"


def _excerpts(text_a: str, right: str) -> tuple[str, str]:
    """Return the parts of two texts near the first place where they differ."""
    position = next(
        (i for i, (a, b) in enumerate(zip(text_a, right, strict=False)) if a != b), min(len(text_a), len(right))
    )
    start = max(0, position - 30)
    return short(text_a[start : start + 90]), short(right[start : start + 90])


def prompt_of(trajectory: Trajectory) -> str:
    """Return the text of the prompt, and of all other messages that are neither the policy's nor a tool's."""
    messages = [item for item in trajectory.conversation if isinstance(item, Message) and item.role != "assistant"]
    return "\n".join(text_of(message.content) for message in messages)


def script_of(trajectory: Trajectory) -> Script:
    """Return the actions of a recorded episode as a script."""
    actions: list[Action] = []
    final_text: str | None = None
    for item in trajectory.conversation:
        if isinstance(item, CallItem) and isinstance(item.call, Call):
            actions.append(item.call)
            final_text = None
        elif isinstance(item, Message) and item.role == "assistant":
            final_text = text_of(item.content)
    if final_text is not None and trajectory.grade is not None:
        actions.append(Answer(final_text))
    seed = trajectory.seed
    return Script(trajectory.split, trajectory.task.id, seed, tuple(actions), trajectory.policy.split("(")[0])


@dataclass(slots=True)
class Performance:
    """A script that is being played in an episode."""

    script: Script
    episode: Episode
    events: list[tuple[str, Any]] = field(default_factory=list)
    rewards: list[Reward] = field(default_factory=list)
    done: int = 0
    over: bool = False

    @classmethod
    async def begin(
        cls, environment: RemoteEnvironment, script: Script, secrets: Mapping[str, str] | None = None
    ) -> Performance:
        """Start the episode and record its task, prompt and tools.

        Raises:
            EpisodeFailed: the environment broke during setup.
        """
        episode = await environment.start(split=script.split, task=script.task, seed=script.seed, secrets=secrets)
        running = cls(script, episode)
        running._record("task", episode.task.model_dump(mode="json"))
        running._record("prompt", "\n".join(f"{m.role}: {text_of(m.content)}" for m in episode.prompt))
        running._record("tools", [tool.model_dump(mode="json") for tool in episode.tools])
        return running

    async def act(self) -> bool:
        """Take the next action; return False if there is none left or the episode has ended."""
        if self.over or self.done >= len(self.script.actions):
            return False
        action = self.script.actions[self.done]
        self.done += 1
        try:
            if isinstance(action, Call):
                self._note(await self.episode.call(action))
            else:
                graded = await self.episode.grade(action.text)
                self._earned(graded.reward)
                self._record("grade", reward_json(graded.reward))
                self._record("end", str(graded.info.end_reason))
                self.over = True
        except InvalidParams as error:
            self._record(f"refused {self.done}", error.message)
        except EpisodeFailed as error:
            self._record("failed", type(error).__name__)
            self.over = True
        return not self.over

    def _note(self, result: StepResult) -> None:
        number = self.done
        self._record(f"observation {number}", "\n".join(_block(block) for block in result.content))
        if result.error is not None:
            self._record(f"error {number}", f"{result.error.code}: {result.error.message}")
        self._earned(result.reward)
        self._record(f"reward {number}", reward_json(result.reward))
        if result.end_reason is not None:
            self._record("end", str(result.end_reason))
            self.over = True

    def _earned(self, reward: Reward | None) -> None:
        if reward is not None:
            self.rewards.append(reward)

    async def finish(self) -> Transcript:
        """Close the episode, record its total reward, and return the transcript."""
        reward = (await self.episode.close()).reward
        self._record("total", reward_json(reward if reward is not None else total(self.rewards)))
        return Transcript(self.script, self.episode.seed, tuple(self.events))

    def _record(self, name: str, value: Any) -> None:
        self.events.append((name, value))


async def perform(
    environment: RemoteEnvironment, script: Script, secrets: Mapping[str, str] | None = None
) -> Transcript:
    """Play a script alone, from beginning to end."""
    running = await Performance.begin(environment, script, secrets)
    async with running.episode:
        while await running.act():
            pass
        return await running.finish()


async def perform_at_once(
    environment: RemoteEnvironment, scripts: Sequence[Script], secrets: Mapping[str, str] | None = None
) -> list[Transcript]:
    """Play scripts at the same time, each at its own pace, so that starts, actions and grades overlap."""

    async def one(script: Script) -> Transcript:
        try:
            return await perform(environment, script, secrets)
        except EpisodeFailed as error:
            return Transcript(script, script.seed or 0, (("failed", type(error).__name__),))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(script)) for script in scripts]
    return [task.result() for task in tasks]


async def perform_together(
    environment: RemoteEnvironment, scripts: Sequence[Script], secrets: Mapping[str, str] | None = None
) -> list[Transcript]:
    """Play scripts with interleaved actions: one action of each script in turn."""
    running: list[Performance] = []
    try:
        for script in scripts:
            running.append(await Performance.begin(environment, script, secrets))
        while any([await performance.act() for performance in running]):
            pass
        return [await performance.finish() for performance in running]
    finally:
        await asyncio.gather(*(performance.episode.close() for performance in running), return_exceptions=True)


def reward_json(reward: Reward | None) -> Any:
    """Return, as a JSON value, the part of a reward that must be the same each time."""
    if reward is None:
        return None
    return {
        "value": reward.value,
        "reason": reward.reason if reward.value is None else None,
        "components": {name: (part.value, part.weight) for name, part in sorted(reward.components.items())},
    }


def _block(block: Any) -> str:
    text = getattr(block, "text", None)
    return text if text is not None else f"[{block.mime_type}: {block.data}]"
