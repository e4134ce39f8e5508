"""The collector: runs groups in the background, as far ahead of learning as staleness allows, and returns batches."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ludus.protocol.episodes import TaskRow
from ludus.trainer.chains.results import chain_metrics
from ludus.trainer.collecting.episodes import Player
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import DidNotLearn, RolloutError, unwrap_exception_group
from ludus.trainer.core.frozen import FrozenPolicies
from ludus.trainer.core.opponents import MatchPlan
from ludus.trainer.core.samples import RolloutGroup
from ludus.trainer.learning.batch import informative
from ludus.trainer.rollouts.buffer import StalenessWindow
from ludus.trainer.rollouts.continuations import ContinuationPlan
from ludus.trainer.rollouts.groups import GroupSpec
from ludus.trainer.rollouts.sampler import TaskSampler
from ludus.trainer.rollouts.summary import (
    TaskSolved,
    UnscoredWatch,
    no_signal_message,
    nothing_left,
    rollout_metrics,
)
from ludus.trainer.self_play.results import match_metrics

if TYPE_CHECKING:
    from ludus.rendering import Renderer
    from ludus.trainer.engines.base import Engine
    from ludus.trainer.rollouts.harness import HarnessPlayer


class Collector:
    """The rollouts of a run. Use it as an async context manager, which closes every episode at the end.

        async with Collector(config, engine, renderer, source) as collector:
            collector.on_weights_updated(0)               # the engine holds the initial weights
            for step in range(config.steps):
                groups, metrics = await collector.batch()
                ...                                       # learn, and give the engine the new weights
                collector.on_weights_updated(step + 1)

    With staleness 0 no episode runs between `batch` and `on_weights_updated`; otherwise groups run during that time.
    """

    def __init__(
        self,
        config: TrainConfig,
        engine: Engine,
        renderer: Renderer,
        source: TaskSampler,
        harness: HarnessPlayer | None = None,
        frozen: FrozenPolicies | None = None,
    ) -> None:
        self._config = config
        self._source = source
        self._minimum = config.rollouts.min_scored
        credit, plan = config.advantages, None
        if credit.credit == "monte_carlo":
            plan = ContinuationPlan(credit.monte_carlo, config.rollouts.max_turns, source.branch_slots)
        self._player = Player(
            engine, renderer, config.rollouts, source.episode_slots, harness=harness, plan=plan, frozen=frozen
        )
        self._window = StalenessWindow(config.rollouts.groups, config.rollouts.staleness)
        self._next = 0
        self._again: deque[tuple[int, GroupSpec | None]] = deque()
        """Groups to run again after a resume."""
        self._draws: dict[int, GroupSpec | None] = {}
        """The groups that were neither returned nor dropped; None while the task is being chosen."""
        self._handed_out: dict[int, GroupSpec | None] = {}
        """The groups of the last batch, until it is learned from."""
        self._unsettled: list[RolloutGroup] = []
        """Those groups, whose results count when the batch is learned from."""
        self._dropped: list[RolloutGroup] = []
        """The groups dropped since the last batch."""
        self._in_a_row: list[RolloutGroup] = []
        self._unscored = UnscoredWatch()
        """The groups dropped since the last group that was kept."""
        self._failures: dict[str, list[RolloutGroup]] = {}
        """By environment, the groups that failed since the last one that did not."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.sampled = 0
        """The number of tokens sampled in all groups that have ended."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="ludus-collector")
        # A `batch` that waits must wake to raise the error of a task that failed.
        self._task.add_done_callback(lambda _: self._notify())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_weights_updated(self, version: int) -> None:
        """Record that the engine holds the weights of `version`; groups that waited for them may start."""
        if version >= self._window.batches:
            self._settle()
        if self._source.opponents is not None:
            self._source.opponents.publish(version)
        self._window.on_weights_updated(version)
        self._notify()

    async def batch(self) -> tuple[list[RolloutGroup], dict[str, float]]:
        """Return the next groups to learn from, in order of their numbers, and `rollout_metrics`.

        For `state`, the returned groups count as learned from.

        Raises:
            RolloutError: no groups are available: a server is unreachable or refuses, every episode failed, or every
                group was constant.
            TaskSolved: every group was constant at the greatest reward.
            EngineError: the engine failed repeatedly.
        """
        if self._task is None or self._window.version < 0:
            raise RuntimeError(
                "enter the collector, update the engine and call on_weights_updated() before the first batch()"
            )
        while True:
            if self._task.done():
                self._task.result()
            groups = self._window.pop_batch()
            if groups is not None:
                break
            await self._changed.wait()
        # No await from here on, so a cancellation cannot lose groups that have been taken.
        self._settle()
        self._handed_out = {group.number: self._draws.pop(group.number) for group in groups}
        self._unsettled = groups
        dropped, self._dropped = self._dropped, []
        metrics = rollout_metrics(groups, dropped, self._window.batches - 1, self._minimum)
        if self._source.opponents is not None:
            metrics |= match_metrics(groups, dropped, self._source) | self._source.opponents.metrics()
        metrics |= chain_metrics(groups, dropped, self._source)
        return groups, metrics | self._source.mixer.metrics()

    def _settle(self) -> None:
        """Report the results of the last batch, which was learned from. Until then its groups may have to run again
        after a resume, and would count twice."""
        for group in self._unsettled:
            self._source.report(group)
        self._unsettled, self._handed_out = [], {}

    def state(self, learned: int | None = None) -> dict[str, Any]:
        """Return the state for `load_state`, JSON-ready. Groups not learned from will run again after the resume, with
        the same tasks, numbers and seeds.

        Args:
            learned: the number of batches learned from: all that were returned (the default), or one fewer.
        """
        pending = {**dict(self._again), **self._draws}
        batches = self._window.batches
        if learned is not None and learned < batches:
            pending, batches = {**pending, **self._handed_out}, learned
        else:
            self._settle()
        return {
            "next": self._next,
            "batches": batches,
            "pending": [[number, draw and _described(draw)] for number, draw in sorted(pending.items())],
            "source": self._source.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state()`. Call it before the first `on_weights_updated`.

        Raises:
            RolloutError: a group must run again in an environment that the configuration no longer has.
        """
        self._source.load_state(state["source"])
        self._next = state["next"]
        self._window.batches = state["batches"]
        self._again.extend((number, draw and self._restored(number, draw)) for number, draw in state["pending"])

    def _restored(self, number: int, draw: dict[str, Any]) -> GroupSpec:
        task = TaskRow(id=draw["task"], split=draw["split"], index=draw["index"], fields={})
        plan = None if draw.get("plan") is None else MatchPlan.load(draw["plan"])
        return self._source.drawn(number, self._source.find(draw["environment"]), task, plan)

    # ── in the background ───────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        with unwrap_exception_group():
            async with asyncio.TaskGroup() as tasks:
                while True:
                    while self._window.room > 0:
                        number, draw = self._again.popleft() if self._again else (self._next, None)
                        self._next = max(self._next, number + 1)
                        # Before the task runs: `state` may be asked at any await, and must list this group as pending.
                        self._draws[number] = draw
                        tasks.create_task(self._play(number, draw, self._window.start(number)))
                    await self._changed.wait()

    async def _play(self, number: int, draw: GroupSpec | None, version: int) -> None:
        if draw is None:
            self._draws[number] = draw = await self._source.draw(number)
        rollouts = await self._player.group(draw, self._config.rollouts.group_size)
        group = RolloutGroup(number, draw.environment.label, draw.task.id, rollouts, version, draw.plan)
        self.sampled += sum(rollout.sampled for rollout in (*rollouts, *group.continuations))
        self._unscored.add(rollouts)
        self._source.record(group)
        failed = group.least_scored < self._minimum
        failures = self._failures.setdefault(group.environment, [])
        failures.append(group) if failed else failures.clear()
        if not failed and (not self._config.rollouts.drop_zero_variance or informative(group, self._config)):
            self._in_a_row.clear()
            self._window.finish(group)
        else:
            self._dropped.append(group)
            self._in_a_row.append(group)
            # First, because it may raise: the group is then still pending, and runs again after a resume.
            self._judge(failures)
            self._source.report(group)
            del self._draws[number]
            self._window.drop(number)
        self._notify()

    def _judge(self, failures: list[RolloutGroup]) -> None:
        """Stop the run if too many groups were dropped in a row.

        Raises:
            RolloutError: there is nothing to learn from.
            TaskSolved: all these groups earned the greatest reward, so there is nothing left to learn.
        """
        limit = self._config.rollouts.max_dropped_groups
        if len(failures) >= limit:
            raise RolloutError(no_signal_message(failures, self._minimum))
        if len(self._in_a_row) < limit:
            return
        constant = [group for group in self._in_a_row if group.least_scored >= self._minimum]
        if 2 * len(constant) <= limit or not all(map(self._source.solved, constant)):
            message = no_signal_message(self._in_a_row, self._minimum)
            if self._window.batches or 2 * len(constant) <= limit:
                raise RolloutError(message)
            raise DidNotLearn(f"{message}\ndid not learn: no group has had different rewards yet")
        if not all(self._source.at_last_stage(group.environment) for group in constant):
            self._in_a_row.clear()  # a later stage follows
        elif self._source.cover_mix(constant):
            raise TaskSolved(nothing_left(constant))

    def _notify(self) -> None:
        """Wake all tasks that wait for a change, and make a new event for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()


def _described(draw: GroupSpec) -> dict[str, Any]:
    task = draw.task
    described = {"environment": draw.environment.label, "split": task.split, "task": task.id, "index": task.index}
    return described if draw.plan is None else {**described, "plan": draw.plan.state()}
