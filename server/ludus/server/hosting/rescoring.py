"""Score stored trajectories again with the current rubrics.

By default each trajectory's calls are made again, with its seed, in a new episode in this process, and its final
message is graded again, so that the state that a rubric reads exists. If an observation comes out differently, the
environment has changed or is not deterministic, and the result says that it diverged. Without replay, only the rubric
is applied to the stored trajectory; this is refused if anything other than the rubric gave rewards.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from ludus.protocol import episodes as e
from ludus.protocol.content import Message, text_of
from ludus.protocol.errors import AuthoringError, EnvironmentNotFound, LudusError, ParseError
from ludus.protocol.items import CallItem, Item, MalformedCall, OutputItem, from_json
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Trajectory, describe_invalid_line
from ludus.server.auth.principal import Principal
from ludus.server.authoring.environment import Environment
from ludus.server.hosting.host import EpisodeHost
from ludus.server.rewards.attempt import Attempt, TakenStep
from ludus.server.rewards.rubric import Rubric
from ludus.server.runtime.scoring import POLICY
from ludus.server.tasks.catalog import Catalog
from ludus.server.tasks.loading import load_environment

log = logging.getLogger("ludus.server.rewards")

_OPEN: Final = Principal.open()


class Stored(Trajectory):
    """A trajectory with its place in a file."""

    line: int = Field(default=0, exclude=True)
    raw: dict[str, Any] = Field(default_factory=dict, exclude=True, repr=False)
    """The line's JSON object."""

    @property
    def name(self) -> str:
        """The trajectory's name in tables."""
        return f"{self.environment}/{self.split}/{self.task.id}#{self.sample}"

    @property
    def model(self) -> str | None:
        """The policy's model; None if the policy is not a model."""
        return self.policy if self.policy not in ("", "random", "oracle", "demonstrator") else None

    @cached_property
    def entries(self) -> list[Item | None]:
        """The items as values, None for those of other types, such as reasoning.

        Raises:
            ParseError: an item cannot be parsed.
        """
        return [next(iter(from_json([item])), None) for item in self.items]

    @property
    def answer(self) -> str | None:
        """The final message; None if none was submitted."""
        if self.end_reason is not EndReason.SUBMITTED:
            return None
        messages: list[str] = []
        for item in reversed(self.entries):
            if not isinstance(item, Message) or item.role != "assistant":
                break
            messages.insert(0, text_of(item.content))
        return "\n".join(messages)

    def calls(self) -> list[TakenStep]:
        """Return the calls that reached the environment, in the order of its steps, with their observations.

        Raises:
            ParseError: a step belongs to no call among the items, or to one whose arguments are not an object.
        """
        calls = {item.call_id: item.call for item in self.entries if isinstance(item, CallItem)}
        outputs = {item.call_id: text_of(item.content) for item in self.entries if isinstance(item, OutputItem)}
        steps = []
        for step in sorted((step for step in self.steps if step.step > 0), key=lambda step: step.step):
            call = calls.get(step.call_id)
            if call is None:
                raise ParseError(f"line {self.line}: step {step.step} belongs to no call among the items")
            if isinstance(call, MalformedCall):
                raise ParseError(f"line {self.line}: step {step.step}: {call.problem}")
            steps.append(TakenStep(step.step, call.tool, call.arguments, outputs.get(step.call_id, ""), step.error))
        return steps

    def marks(self) -> dict[int, e.TurnMark]:
        """Return the turn mark of each step, as the harness sent it or would have sent it."""
        numbers = {step.call_id: step.step for step in self.steps}
        marks: dict[int, e.TurnMark] = {}
        before = 0
        for turn, record in enumerate(self.turns, start=1):
            # A call without a record was not made, because the episode had ended; one numbered 0 was malformed.
            calls: list[int | None] = []
            texts: list[str] = []
            for item in self.entries[before : record.items]:
                if isinstance(item, CallItem) and numbers.get(item.call_id) != 0:
                    calls.append(numbers.get(item.call_id))
                elif isinstance(item, Message):
                    texts = [*texts, text_of(item.content)] if item.role == "assistant" else []
            before = record.items
            text = "\n".join(texts)[: e.TURN_TEXT_CHARS]
            for index, number in enumerate(calls):
                if number is not None:
                    is_last = index == len(calls) - 1
                    marks[number] = e.TurnMark(number=turn, last=is_last, text="" if index else text)
        return marks


@dataclass(slots=True)
class Rescored:
    """The old and the new reward of one trajectory."""

    stored: Stored
    old: Reward | None
    new: Reward | None = None
    """None if it could not be scored again; `problem` says why."""
    grade: Reward | None = None
    problem: str | None = None
    diverged: int | None = None
    """The first step whose observation came out differently."""

    @property
    def before(self) -> float | None:
        """The old value; None if there was no reward, or an unscored one."""
        return None if self.old is None else self.old.value

    @property
    def now(self) -> float | None:
        """The new value; None if there is no reward, or an unscored one."""
        return None if self.new is None else self.new.value

    @property
    def change(self) -> float:
        """How much the value changed; infinite if it appeared or disappeared, 0 if it could not be scored again."""
        if self.new is None or (self.before is None and self.now is None):
            return 0.0
        return math.inf if self.before is None or self.now is None else self.now - self.before

    @property
    def changed(self) -> bool:
        """Whether the value changed, appeared or disappeared."""
        return abs(self.change) > 1e-9

    def components(self) -> dict[str, tuple[float | None, float | None]]:
        """Return the components whose values changed, each with its old and its new value."""
        before = {} if self.old is None else self.old.components
        now = {} if self.new is None else self.new.components
        changes = {}
        for name in (*before, *(name for name in now if name not in before)):
            pair = (before[name].value if name in before else None, now[name].value if name in now else None)
            if pair[0] != pair[1]:
                changes[name] = pair
        return changes

    def record(self) -> dict[str, Any]:
        """Return the stored line with its new rewards."""
        if self.new is None:
            return self.stored.raw
        new = self.new.model_dump(mode="json")
        grade = None if self.grade is None else self.grade.model_dump(mode="json")
        return {**self.stored.raw, "reward": new, "grade": grade}


@dataclass(slots=True)
class Summary:
    """The results for all trajectories."""

    rescored: list[Rescored] = field(default_factory=list)

    @property
    def changed(self) -> list[Rescored]:
        """The trajectories whose value changed, the greatest changes first."""
        return sorted(
            (rescored for rescored in self.rescored if rescored.changed), key=lambda rescored: -abs(rescored.change)
        )

    @property
    def problems(self) -> list[Rescored]:
        """The trajectories that could not be scored again, or that diverged."""
        return [rescored for rescored in self.rescored if rescored.problem is not None or rescored.diverged is not None]

    def json(self) -> dict[str, Any]:
        """Return the whole summary, JSON-ready."""
        before, now = [rescored.before for rescored in self.rescored], [rescored.now for rescored in self.rescored]
        return {
            "trajectories": len(self.rescored),
            "changed": len(self.changed),
            "problems": len(self.problems),
            "unscored": {"before": before.count(None), "now": now.count(None)},
            "mean": {"before": _mean(before), "now": _mean(now)},
            "results": [
                {
                    "line": rescored.stored.line,
                    "trajectory": rescored.stored.name,
                    "before": rescored.before,
                    "now": rescored.now,
                    "rubric": {
                        "before": rescored.old.rubric if rescored.old else None,
                        "now": rescored.new.rubric if rescored.new else None,
                    },
                    "components": {name: list(pair) for name, pair in rescored.components().items()},
                    "diverged": rescored.diverged,
                    "problem": rescored.problem
                    or (rescored.new.reason if rescored.new and rescored.new.value is None else None),
                }
                for rescored in self.rescored
                if rescored.changed or rescored.problem or rescored.diverged is not None or rescored.components()
            ],
        }


def read_stored(path: str | Path) -> Iterator[Stored]:
    """Yield the trajectories of a file in its order. A last line that a crash cut off is left out.

    Raises:
        ParseError: a complete line is not a trajectory; the message names the line.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                raw = json.loads(line)
                stored = Stored.model_validate({**raw, "line": number, "raw": raw})
            except ValidationError as error:
                raise ParseError(f"{path}, line {number}: {describe_invalid_line(error)}") from None
            except (ValueError, TypeError, RecursionError) as error:
                raise ParseError(f"{path}, line {number}: not a trajectory: {error}") from None
            yield stored


def classes_for(stored: Sequence[Stored], given: Sequence[type[Environment[Any]]]) -> list[type[Environment[Any]]]:
    """Return the environments that trajectories need: those given, and the others by their published names.

    Raises:
        EnvironmentNotFound: an environment is neither given nor published, under its name or that of its base.
    """
    classes = list(given)
    names = set(Catalog(classes)) if classes else set()
    for name in dict.fromkeys(episode.environment for episode in stored):
        if name not in names:
            classes.append(_published(name))
            names |= set(Catalog(classes))
    return classes


async def rescore(
    stored: Sequence[Stored],
    environments: Sequence[type[Environment[Any]]],
    *,
    replay: bool = True,
    concurrency: int = 16,
) -> Summary:
    """Score trajectories again.

    Args:
        stored: the trajectories; failed ones are left out.
        environments: the classes that they need; see `classes_for`.
        replay: whether to make their calls again.
        concurrency: the most trajectories at one time.
    """
    slots = asyncio.Semaphore(concurrency)
    chosen = [episode for episode in stored if episode.failure is None]
    async with EpisodeHost(environments) as host:

        async def again(episode: Stored, number: int) -> Rescored:
            async with slots:
                POLICY.set(episode.model)
                result = Rescored(episode, episode.reward)
                try:
                    await (_replay(host, result, number) if replay else _apply(host, result))
                except (LudusError, ValueError) as error:
                    result.problem = str(error)
                except Exception as error:
                    log.exception("line %d: %s could not be scored again", episode.line, episode.name)
                    result.problem = f"{type(error).__name__}: {error}"
                return result

        tasks = [asyncio.create_task(again(episode, number)) for number, episode in enumerate(chosen)]
        return Summary(list(await asyncio.gather(*tasks)))


async def _replay(host: EpisodeHost, result: Rescored, number: int) -> None:
    stored = result.stored
    seedable = host.catalog.find(stored.environment).cls.seedable
    params = e.StartParams(
        environment=stored.environment, split=stored.split, task=stored.task.id,
        seed=stored.seed if seedable else None, key=f"start/{number}",
    )  # fmt: skip
    (started,) = (await host.start(params, _OPEN)).episodes
    episode = started.episode
    marks = stored.marks() if started.turns else {}
    try:
        for call in stored.calls():
            step = e.StepParams(
                episode=episode, step=call.number, tool=call.tool, arguments=dict(call.arguments),
                turn=marks.get(call.number), key=f"{number}/{call.number}",
            )  # fmt: skip
            outcome = await host.step(step, _OPEN)
            if result.diverged is None and text_of(outcome.content) != call.text:
                result.diverged = call.number
        if stored.answer is not None:
            graded = await host.grade(e.GradeParams(episode=episode, answer=stored.answer, key=f"{number}/g"), _OPEN)
            result.grade = graded.reward
        result.new = (await host.rewards(e.RewardsParams(episode=episode), _OPEN)).total
    finally:
        await host.discard(episode)


async def _apply(host: EpisodeHost, result: Rescored) -> None:
    stored = result.stored
    published = host.catalog.find(stored.environment)
    rubric = _rubric(published.cls, stored)
    if stored.end_reason not in (EndReason.SUBMITTED, EndReason.COMPLETED):
        # The rubric never judged this episode, and its steps earned nothing else: the stored reward stays.
        if stored.reward is None:
            raise AuthoringError("it holds no reward; score it with replay")
        result.new, result.grade = stored.reward, stored.grade
        return
    await host.task_service.prepare(published, published.split(stored.split))
    _, task = await host.task_service.by_id(published, stored.split, stored.task.id)
    attempt = Attempt(
        answer=stored.answer or "",
        task=task,
        steps=tuple(
            replace(call, arguments=published.tools[call.tool].received(call.arguments))
            if call.tool in published.tools
            else call
            for call in stored.calls()
        ),
        prompt="\n\n".join(
            text_of(item.content) for item in stored.entries if isinstance(item, Message) and item.role != "assistant"
        ),
        policy=stored.model,
    )
    result.new = await rubric.score(attempt)
    result.grade = result.new if stored.end_reason == EndReason.SUBMITTED else None


def _rubric(cls: type[Environment[Any]], stored: Stored) -> Rubric:
    """Return the rubric, if it alone scores a stored trajectory.

    Raises:
        AuthoringError: there is no rubric, or something else counts too, which only a replay can score.
    """
    binding = cls._binding
    replay = "score it with replay"
    if binding is None or binding.rubric is None:
        raise AuthoringError(f"environment {stored.environment!r} has no rubric; {replay}")
    if binding.methods or binding.step is not None or binding.turn is not None:
        raise AuthoringError(f"environment {stored.environment!r} has @reward or @metric methods; {replay}")
    if cls.grade is not Environment.apply_rubric:
        raise AuthoringError(f"environment {stored.environment!r} has a grade of its own; {replay}")
    earned = [step for step in sorted(stored.steps, key=lambda step: step.step) if step.reward is not None]
    if stored.end_reason == EndReason.COMPLETED and earned and _by_rubric(earned[-1].reward):
        earned.pop()  # this reward came from the rubric, not from the tool that ended the task
    if earned:
        raise AuthoringError(f"step {earned[0].step} earned something besides the rubric; {replay}")
    return binding.rubric


def _by_rubric(reward: Reward | None) -> bool:
    """Return whether a rubric gave the whole reward: its components then add up to its value."""
    if reward is None or reward.rubric is None:
        return False
    added = math.fsum(part.value * part.weight for part in reward.components.values())
    return reward.value is None or math.isclose(added, reward.value, abs_tol=1e-9)


def _published(name: str) -> type[Environment[Any]]:
    base = name
    while True:
        try:
            cls = load_environment(base)
        except EnvironmentNotFound:
            base = base.rpartition("-")[0]
            if not base:
                raise EnvironmentNotFound(
                    f"no environment is published as {name!r}; name its class with --env module:Class",
                    environment=name,
                ) from None
            continue
        if name in Catalog([cls]):
            return cls
        raise EnvironmentNotFound(f"{base!r} has no variant {name!r} today", environment=name)


def _mean(values: Sequence[float | None]) -> float | None:
    scored = [value for value in values if value is not None]
    return sum(scored) / len(scored) if scored else None
