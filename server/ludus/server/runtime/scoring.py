"""Scores steps, turns and ends of episodes by the environment's rubric, and several answers to one task."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

from ludus.protocol.content import TextBlock, text_of
from ludus.protocol.episodes import Candidate, StepResult
from ludus.protocol.errors import LudusError
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import Component, Reward, RewardEntry, total
from ludus.sandbox.core.errors import CAUSED_INSIDE
from ludus.server.authoring.environment import Environment
from ludus.server.authoring.results import read_reward
from ludus.server.execution import user_code
from ludus.server.execution.clock import time_limit
from ludus.server.execution.threads import Share, Threads
from ludus.server.rewards.attempt import Attempt, TakenStep
from ludus.server.rewards.binding import SCORING, Binding, ScoringContext
from ludus.server.rewards.rubric import Rubric
from ludus.server.runtime import turns
from ludus.server.runtime.episode import Call, Episode, StepRecord
from ludus.server.tasks.catalog import Published

POLICY_VARIABLE: Final = "LUDUS_POLICY_MODEL"
"""The environment variable that names the policy model, so that no judge judges its own family."""

POLICY: Final[ContextVar[str | None]] = ContextVar("ludus_policy", default=None)
"""The policy model for one caller of the host; it takes precedence over the environment variable."""


SUBMITTED_TEXT: Final = "Your answer was handed in. The episode is over."
"""The observation of a final message."""


def start_scoring(episode: Episode, workers: Share, latest: TakenStep | None = None) -> Attempt:
    """Return the episode's attempt as it is now, and let the environment's code in this task score it.

    Args:
        episode: the episode to score; its class declares rewards.
        workers: the threads for checks that may block.
        latest: the latest step, if it is not settled yet.
    """
    binding = episode.published.cls._binding
    assert binding is not None
    before = episode.attempt
    # Each step is described once: there may be an attempt for every step, and all of them again would take quadratic
    # time.
    described = {} if before is None else {step.number: step for step in before.steps}
    steps = [
        described.get(record.number) or _taken(episode, record, record.original_result or record.outcome)
        for record in episode.records or ()
        if _reached(record) and isinstance(record.outcome, StepResult)
    ]
    if latest is not None:
        steps.append(latest)
    attempt = episode.attempt = Attempt(
        task=episode.task,
        steps=tuple(steps),
        prompt="\n\n".join(text_of(message.content) for message in episode.prompt),
        environment=episode.instance,
        policy=POLICY.get() or os.environ.get(POLICY_VARIABLE),
        # The lock of the instance, not of one attempt: checks of steps that overlap call methods of the same instance.
        lock=asyncio.Lock() if before is None else before.lock,
        in_its_thread=workers.at(episode.home).run,
    )
    SCORING.set(ScoringContext(binding, attempt, workers.run))
    return attempt


def judging_steps(call: Call, binding: Binding, workers: Share) -> Call:
    """Wrap the call of a tool: add the rewards of `@reward` methods and, at the end, of the rubric to its own."""

    async def judge(episode: Episode, record: StepRecord) -> StepResult:
        SCORING.set(None)  # a task that is created by that of another step inherits its context
        result = await call(episode, record)
        finished = result.end_reason is EndReason.COMPLETED
        if not (binding.step or finished):
            return result
        if record.past is not None:
            # Its judged rewards are taken over; those of turns are entries of their own (`judging_turns`).
            reward = next((entry.reward for entry in record.past.logged if entry.source != "turn"), None)
            return result.model_copy(update={"reward": reward})
        rewards = [] if result.reward is None else [result.reward]
        latest = _step(episode, record, text_of(result.content), None, result.metadata)
        attempt = start_scoring(episode, workers, latest)
        if binding.step is not None:
            rewards += _read(await binding.step.score(attempt, offload=workers.run))
        if finished and type(episode.instance).grade is Environment.apply_rubric:
            rewards += _read(await episode.instance.apply_rubric(""))
        return result.model_copy(update={"reward": total(rewards)}) if rewards else result

    return judge


def judging_turns(call: Call, rubric: Rubric, workers: Share) -> Call:
    """Wrap a call, or a grade: judge the turns that end with it. Their rewards are entries of the reward log."""

    async def judge(episode: Episode, record: StepRecord) -> StepResult:
        result = await call(episode, record)
        own_task = asyncio.current_task()
        try:
            if record.past is not None:
                pass_turns(episode, record, result)
                record.turn_rewards = tuple(entry for entry in record.past.logged if entry.source == "turn")
            # A record that was settled from outside (deadline, end) gets no more rewards: its entries are written
            # already.
            elif record.outcome is None:
                record.turn_rewards = await _judge_turns(episode, record, result, rubric, workers)
        except BaseException as error:
            if user_code.from_host(error, own_task):
                raise
            raise user_code.UserCodeError(error, "judging a turn") from error
        return result

    return judge


async def _judge_turns(
    episode: Episode, record: StepRecord, result: StepResult, rubric: Rubric, workers: Share
) -> tuple[RewardEntry, ...]:
    step = _taken(episode, record, record.original_result or result) if _reached(record) else None
    due = turns.done(episode, record, step, ended=result.terminated)
    if not due:
        return ()
    episode_attempt = start_scoring(episode, workers, step)
    entries = []
    for turn in due:
        # Concurrent calls may be finished and not settled yet; the turn has all of them.
        by_number = {
            finished.number: finished
            for finished in (*episode_attempt.steps, *turn.steps)
            if finished.number <= turn.last
        }
        attempt = replace(
            episode_attempt, steps=tuple(by_number[number] for number in sorted(by_number)), turn=turn.taken()
        )
        for reward in _read(await rubric.score(attempt, offload=workers.run)):
            entries.append(RewardEntry(step=turn.last, source="turn", reward=reward, turn=turn.number))
    return tuple(entries)


def pass_turns(episode: Episode, record: StepRecord, outcome: StepResult | LudusError) -> None:
    """Note that a call has finished whose turns were judged before, so that they are not judged again."""
    result = record.original_result or outcome
    reached = _reached(record) and isinstance(result, StepResult)
    ended = isinstance(outcome, StepResult) and outcome.terminated
    turns.done(episode, record, _taken(episode, record, result) if reached else None, ended=ended)


def may_grade_nothing(episode: Episode) -> bool:
    """Return whether a grade may be None: when the class declares rewards, but none for the end of an episode."""
    binding = episode.published.cls._binding
    return binding is not None and binding.end is None


def _read(reward: object) -> list[Reward]:
    value = read_reward(reward)
    return [] if value is None else [value]


def _reached(record: StepRecord) -> bool:
    """Return whether the record is a tool call that reached its tool, rather than one that noise made fail."""
    return record.tool is not None and record.noise != "tool_error"


def _taken(episode: Episode, record: StepRecord, outcome: Any) -> TakenStep:
    error = outcome.error.code if outcome.error is not None else None
    return _step(episode, record, text_of(outcome.content), error, outcome.metadata)


def _step(episode: Episode, record: StepRecord, text: str, error: str | None, metadata: Mapping[str, Any]) -> TakenStep:
    tool = episode.tools.get(record.tool or "")
    arguments = record.arguments if tool is None else tool.received(record.arguments)
    return TakenStep(record.number, record.tool or "", arguments, text, error, metadata)


async def score(
    workers: Threads, published: Published, task: Any, candidates: Sequence[Candidate], seconds: float
) -> list[Reward]:
    """Return one reward for each candidate, in order.

    Raises:
        EpisodeFailed: the author's code raised, took longer than `seconds` or returned something invalid.
    """
    function = published.cls.score_group
    offload = not inspect.iscoroutinefunction(function)
    own_task = asyncio.current_task()
    try:
        async with time_limit(seconds):
            scores = await user_code.run(workers, offload, function, task, candidates)
        rewards = [reward for value in scores if (reward := read_reward(value)) is not None]
        if len(rewards) != len(candidates):
            raise TypeError(f"score_group must return one reward for each of {len(candidates)} candidates")
    except BaseException as error:
        if user_code.from_host(error, own_task):
            raise
        raise user_code.failure("score_group", None, published.name, error) from None
    return rewards


def grade_call(published: Published, share: Share) -> Call:
    """Return the innermost call of a grade: the author's `grade`, or nothing if the class does not define it."""
    cls = published.cls
    offload = cls.blocking and not inspect.iscoroutinefunction(cls.grade)

    async def grade(episode: Episode, record: StepRecord) -> StepResult:
        reward = None
        if published.gradable:
            if cls._binding is not None:
                start_scoring(episode, share)
            threads = share.at(episode.home)
            try:
                value = await user_code.run(threads, offload, episode.instance.grade, record.arguments["answer"])
            except user_code.UserCodeError as error:
                if not isinstance(error.cause, CAUSED_INSIDE):
                    raise
                evidence = user_code.message_of(error.cause, "")  # such as a file that the agent did not write
                value = Reward.of(0.0, {"sandbox": Component(value=0.0, evidence=evidence)})
            if value is None and not may_grade_nothing(episode):
                raise TypeError("grade returned None; return a number or a Reward, 0.0 for an answer worth nothing")
            reward = read_reward(value)
        return StepResult(
            step=record.number, content=(TextBlock(text=SUBMITTED_TEXT),), reward=reward, end_reason=EndReason.SUBMITTED
        )

    return grade
