"""The environments of a run, and the choice of the task for each group.

The mixer of `ludus.client.mix` chooses the environment. Within it, `stages` chooses the split and `curriculum` the
task.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from ludus.client import Client, WireName, connect
from ludus.client.mix import Mixer, Source, draw_task
from ludus.client.seeds import derive_seed
from ludus.client.summary import SUCCESS_TOLERANCE
from ludus.evaluation.calibration.difficulty import read_difficulty
from ludus.protocol import errors as e
from ludus.protocol.difficulty import DifficultyFile
from ludus.protocol.episodes import EnvironmentInfo, Outcome, TaskRow, ToolSpec
from ludus.trainer.core.config import EnvironmentConfig, TrainConfig
from ludus.trainer.core.errors import ConfigError, RolloutError
from ludus.trainer.core.opponents import MatchPlan, Opponents, check_seats, outcome_of
from ludus.trainer.core.samples import RolloutGroup, scored_rewards
from ludus.trainer.rollouts.chains import FILE, WorldKeeper
from ludus.trainer.rollouts.groups import ConnectedEnvironment, GroupSpec
from ludus.trainer.rollouts.slots import EpisodeSlots

OUTAGE_SECONDS: Final = 60.0
"""How long a server may be unreachable during a run before the run stops."""

PROBE_SECONDS: Final = 5.0
"""How long to try to reach a server at the beginning of a run."""

CHECKED: Final = 64
"""How many tasks of a difficulty file to look up at once."""
REPORTED: Final = 1000
"""The maximum number of outcomes in one report."""


class TaskSampler:
    """The environments of a run, and the choice of each group's task. Created by `open_source`.

    The choice depends only on the run's seed and the group's number; with a curriculum, also on the reported outcomes,
    and with a mix other than `fixed`, on the results of groups that are older by at least the number of open groups.
    """

    def __init__(self, config: TrainConfig, environments: Sequence[ConnectedEnvironment]) -> None:
        self.environments = tuple(environments)
        open_episodes, branches = config.rollouts.concurrency, 0
        if config.advantages.credit == "monte_carlo":
            # At least one slot for whole episodes, since forks begin only in those.
            branches = open_episodes - max(1, open_episodes // (1 + config.advantages.monte_carlo.continuations))
        self.episode_slots = EpisodeSlots(open_episodes - branches)
        """The limit of open episodes, shared by training and evaluation."""
        self.branch_slots = asyncio.Semaphore(branches)
        """The limit of open forks; the two limits add up to `rollouts.concurrency`."""
        self.opponents = None if config.self_play is None else Opponents(config.self_play, config.seed)
        """The choice of opponents in environments with seats; None without self-play."""
        self._seed = config.seed
        self._success = config.evaluation.threshold - SUCCESS_TOLERANCE
        self.mixer = Mixer(
            [Source(part.label, part.entry.weight, part.entry.stage) for part in environments], config.mix,
            lag=(config.rollouts.staleness + 1) * config.rollouts.groups,
        )  # fmt: skip
        """The choice of the environments."""
        self._draw_lock = asyncio.Lock()
        self._recorded = asyncio.Event()
        self._stages = {environment.label: 0 for environment in environments}
        self._recent: dict[str, deque[float]] = {environment.label: deque() for environment in environments}
        self._outcomes: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
        """By label and split: tries and passes of each task, for environments with a curriculum."""
        self._unreported: dict[tuple[str, str], dict[str, list[bool]]] = {}
        """The outcomes that have not been reported to the servers yet."""
        self._report_lock = asyncio.Lock()
        for environment in environments:
            if (file := environment.difficulty) is not None:
                key, counts = (environment.label, file.split), file.counts()
                self._outcomes[key] = dict(counts)
                self._unreported[key] = {task: _outcomes_of(*counted) for task, counted in counts.items()}

    @property
    def remarks(self) -> list[str]:
        """What the user should know about the environments before the run begins."""
        return [
            f"{environment.where} compares the episodes of a group (groups/score), which this trainer does not ask "
            "for: it learns from each episode's own reward"
            for environment in self.environments
            if environment.info.group_scoring
        ]

    @property
    def evaluated(self) -> tuple[ConnectedEnvironment, ...]:
        """The environments without those that occur before, such as other splits or stages of the same one."""
        by_address: dict[tuple[str, str], ConnectedEnvironment] = {}
        for environment in self.environments:
            by_address.setdefault((environment.entry.url, environment.info.name), environment)
        return tuple(by_address.values())

    def find(self, label: str) -> ConnectedEnvironment:
        """Return the environment with that label.

        Raises:
            RolloutError: there is none.
        """
        for environment in self.environments:
            if environment.label == label:
                return environment
        raise RolloutError(f"there is no environment {label!r}; give the entry its label, or begin a new run")

    def split(self, environment: ConnectedEnvironment) -> str:
        """Return the split of the environment's current stage."""
        return environment.splits[self._stages[environment.label]]

    def solved(self, group: RolloutGroup) -> bool:
        """Return whether every scored episode of the group earned the greatest reward that the environment declares. If
        it declares none, `evaluation.threshold` counts instead."""
        greatest = self._greatest(group.environment)
        return all(reward >= greatest for reward in scored_rewards(group.rollouts))

    def at_last_stage(self, label: str) -> bool:
        """Return whether no later stage can follow, even if all episodes of this one earn the greatest reward."""
        if self.mixer.stage < self.mixer.last_stage:
            return False
        stages, stage = self.find(label).entry.stages, self._stages[label]
        return stage + 1 >= len(stages) or stages[stage].until > self._greatest(label)

    def cover_mix(self, groups: Sequence[RolloutGroup]) -> bool:
        """Return whether the groups are from every source of the mix, or of its last stage."""
        last_stage = self.mixer.last_stage
        needed = {
            source.label
            for source in self.mixer.sources
            if self.mixer.policy.kind != "stages" or source.stage == last_stage
        }
        return needed <= {group.environment for group in groups}

    def _greatest(self, label: str) -> float:
        declared = self.find(label).info.reward_range
        return self._success if declared is None else declared[1] - SUCCESS_TOLERANCE

    async def draw(self, number: int) -> GroupSpec:
        """Choose environment, task and seed of group `number`.

        Raises:
            RolloutError: the server refuses, cannot be reached any more, or returns no task.
        """
        # From seed and number alone, so that a resumed run draws the same task for the group.
        rng = random.Random(derive_seed(self._seed, "group", number))
        async with self._draw_lock:  # the mixer is asked in the order of the numbers
            while not self.mixer.ready(number):
                # Only this draw can wait here, because it holds the lock; `record` wakes it after each result.
                self._recorded.clear()
                await self._recorded.wait()
            environment = self.find(self.mixer.choose(number, rng))
        task = await environment.ask(lambda: self._choose(environment, rng), (e.LudusError,))
        return self.drawn(number, environment, task)

    def drawn(
        self, number: int, environment: ConnectedEnvironment, task: TaskRow, plan: MatchPlan | None = None
    ) -> GroupSpec:
        """Return group `number` with a given task. Choose who plays in its matches unless that is given."""
        if plan is None and self.opponents is not None and environment.info.seats:
            plan = self.opponents.plan(number, environment.info)
        return GroupSpec(str(number), environment, task, derive_seed(self._seed, "episode", number), plan)

    async def _choose(self, environment: ConnectedEnvironment, rng: random.Random) -> TaskRow:
        curriculum, split = environment.entry.curriculum, self.split(environment)
        if curriculum is not None:
            # One report at a time: another in between would change the count that `_report_new` compares.
            async with self._report_lock:
                for key in [key for key in self._unreported if key[0] == environment.label]:
                    await self._report_new(environment, key)
        outcomes = self._outcomes.get((environment.label, split), {})
        task = await draw_task(environment.remote, split, curriculum, outcomes, rng)
        # A chain is played from its first task, whichever of its tasks was drawn.
        before = task.index % environment.chain
        return await environment.remote.task(split, index=task.index - before) if before else task

    def record(self, group: RolloutGroup) -> None:
        """Give the mixer the result of a group that has ended, whether it is learned from or not."""
        rewards, least = scored_rewards(group.rollouts), self._least(self.find(group.environment))
        self.mixer.report(
            group.number, group.environment, passes=sum(reward >= least for reward in rewards), scored=len(rewards),
            unscored=len(group.rollouts) - len(rewards),
        )  # fmt: skip
        self._recorded.set()

    def _least(self, environment: ConnectedEnvironment) -> float:
        """Return the lowest reward that counts as a pass."""
        success_at = environment.entry.success_at
        return self._success if success_at is None else success_at - SUCCESS_TOLERANCE

    def report(self, group: RolloutGroup) -> None:
        """Record a group's task outcomes for stages and curriculum. The server gets them before its next choice."""
        environment = self.find(group.environment)
        split = group.rollouts[0].trajectory.split
        rewards = scored_rewards(group.rollouts)
        if self.opponents is not None and (declared := environment.info.reward_range) is not None:
            self.opponents.record(group.plan, [outcome_of(reward, declared) for reward in rewards])
        if split == self.split(environment):
            stages, stage = environment.entry.stages, self._stages[group.environment]
            recent = self._recent[group.environment]
            if stage + 1 < len(stages):
                recent.extend(rewards)
                while len(recent) > stages[stage].window:
                    recent.popleft()
                if len(recent) == stages[stage].window and sum(recent) / len(recent) >= stages[stage].until:
                    self._stages[environment.label] += 1
                    recent.clear()
        if environment.entry.curriculum is not None and rewards:
            passed = [reward >= self._least(environment) for reward in rewards]
            key = (group.environment, split)
            self._unreported.setdefault(key, {}).setdefault(group.task, []).extend(passed)
            outcomes = self._outcomes.setdefault(key, {})
            tries, passes = outcomes.get(group.task, (0, 0))
            outcomes[group.task] = (tries + len(passed), passes + sum(passed))

    async def _report_new(self, environment: ConnectedEnvironment, key: tuple[str, str]) -> None:
        """Report new outcomes to the server, and all earlier ones if it has lost them, for example by a restart."""
        # Taken before the request, because new outcomes may come during it. A lost report shows as a gap next time.
        news, totals = self._unreported.pop(key), dict(self._outcomes[key])
        recorded = await self._send(environment, key[1], news)
        if recorded < sum(tries for tries, _ in totals.values()):
            for task, passed in news.items():
                totals[task] = (totals[task][0] - len(passed), totals[task][1] - sum(passed))
            earlier = {task: _outcomes_of(*counted) for task, counted in totals.items()}
            await self._send(environment, key[1], earlier)

    async def _send(self, environment: ConnectedEnvironment, split: str, passed: dict[str, list[bool]]) -> int:
        """Send outcomes and return how many the server has now."""
        outcomes = [
            Outcome(task=task, reward=result, passed=result) for task, results in passed.items() for result in results
        ]
        recorded = 0
        # Also without any outcome, because the answer says how many the server has.
        for start in range(0, max(1, len(outcomes)), REPORTED):
            recorded = await environment.remote.report_outcomes(split, outcomes[start : start + REPORTED])
        return recorded

    def state(self) -> dict[str, Any]:
        """Return the state for `load_state`, JSON-ready: the mix, stages and outcomes."""
        return {
            "mix": self.mixer.state(),
            "opponents": None if self.opponents is None else self.opponents.state(),
            "stages": dict(self._stages),
            "recent": {label: list(recent) for label, recent in self._recent.items()},
            "outcomes": [
                [*key, {task: list(counts) for task, counts in outcomes.items()}, self._unreported.get(key, {})]
                for key, outcomes in self._outcomes.items()
            ],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state()`. Ignore environments that are no longer in the configuration."""
        self.mixer.load_state(state["mix"])
        if self.opponents is not None and (opponents := state.get("opponents")) is not None:
            self.opponents.load_state(opponents)
        labels = {environment.label: environment for environment in self.environments}
        for label in labels.keys() & state["stages"].keys():
            # The configuration may have fewer stages than when the state was saved.
            self._stages[label] = min(state["stages"][label], len(labels[label].splits) - 1)
            self._recent[label] = deque(state["recent"][label])
        for label, split, counts, news in state["outcomes"]:
            if label in labels and labels[label].entry.curriculum is not None:
                self._outcomes[label, split] = {task: (tries, passes) for task, (tries, passes) in counts.items()}
                self._unreported[label, split] = {task: list(passed) for task, passed in news.items()}


# ── connecting ──────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def open_source(config: TrainConfig, *, outage_seconds: float = OUTAGE_SECONDS) -> AsyncIterator[TaskSampler]:
    """Connect to the environments of a run and check that they can be learned from. Disconnect at the end.

    Args:
        config: the run's configuration.
        outage_seconds: how long a server may be unreachable during the run before the run stops.

    Raises:
        ConfigError: a server cannot be reached or refuses, or an environment, split, tool, token or secret is missing.
    """
    async with AsyncExitStack() as stack:
        clients: dict[tuple[str, str, str | None], tuple[Client, tuple[EnvironmentInfo, ...]]] = {}
        connected: list[ConnectedEnvironment] = []
        keeper = WorldKeeper(config.output / FILE)
        for entry in config.environments:
            address = (entry.url, entry.wire, entry.token_variable)
            if address not in clients:
                clients[address] = await _connect(entry, outage_seconds, stack)
            client, infos = clients[address]
            info = _find(entry, infos)
            label = entry.label or info.name
            if any(earlier.label == label for earlier in connected):
                raise ConfigError(f"two environments are called {label!r}; give each a `label` of its own")
            secrets = {name: _variable(variable, f"secret {name!r}") for name, variable in entry.secrets.items()}
            environment = ConnectedEnvironment(
                entry=entry, label=label, remote=client.environment(info.name), info=info, secrets=secrets,
                outage_seconds=outage_seconds, full_seconds=outage_seconds + config.rollouts.episode_seconds,
            )  # fmt: skip
            if config.advantages.credit == "monte_carlo" and not info.forkable:
                raise ConfigError(
                    f'{environment.where} cannot be forked, which advantages.credit = "monte_carlo" needs; choose '
                    "`episode` or `step`, or declare `forkable = True` in the environment if its steps can be repeated"
                )
            matches = config.self_play is not None and bool(info.seats)
            tools = await _check(environment, config.evaluation.split, matches=matches)
            environment = replace(environment, tools=tools)
            if matches:
                await _check_matches(environment, config)
            if config.chains is not None and info.worlds is not None and info.worlds.chain > 1:
                await _check_chains(environment)
                keeper.add(label, client, info.name, secrets)
                environment = replace(environment, chain=info.worlds.chain, keeper=keeper)
            connected.append(replace(environment, difficulty=await _difficulty(environment)))
        if config.self_play is not None and not any(environment.info.seats for environment in connected):
            labels = ", ".join(repr(environment.label) for environment in connected)
            raise ConfigError(f"self_play needs an environment with seats, and {labels} has none; remove the table")
        if config.chains is not None and all(environment.chain == 1 for environment in connected):
            labels = ", ".join(repr(environment.label) for environment in connected)
            raise ConfigError(f"chains need an environment whose tasks form chains, and {labels} has none; remove it")
        await keeper.recover()
        # Pushed last, so that it runs while the clients are still connected.
        stack.push_async_callback(keeper.clean_up)
        yield TaskSampler(config, connected)


async def _connect(
    entry: EnvironmentConfig, outage_seconds: float, stack: AsyncExitStack
) -> tuple[Client, tuple[EnvironmentInfo, ...]]:
    """Connect to an entry's server over the first transport that works. Return the client and the environments."""
    token = _variable(entry.token_variable, f"the token of {entry.url}") if entry.token_variable else None
    wires: tuple[WireName, ...] = ("auto", "ors") if entry.wire == "auto" else (entry.wire,)
    refusals: list[str] = []
    for wire in wires:
        try:
            async with (
                asyncio.timeout(2 * PROBE_SECONDS),
                # A wrong address must fail soon; the client that stays tries for `outage_seconds`.
                connect(entry.url, token=token, wire=wire, reconnect_seconds=PROBE_SECONDS) as probe,
            ):
                infos = await probe.environments()
        except ValueError as error:
            raise ConfigError(f"environments: {error}") from None
        except TimeoutError:
            refusals.append(f"{wire}: no answer in {2 * PROBE_SECONDS:g} s")
        except e.LudusError as error:
            refusals.append(f"{wire}: {error.message}")
        else:
            client = connect(entry.url, token=token, wire=wire, reconnect_seconds=outage_seconds)
            return await stack.enter_async_context(client), infos
    raise ConfigError(f"the environment server {entry.url} cannot be used. " + "; ".join(refusals))


def _find(entry: EnvironmentConfig, infos: Sequence[EnvironmentInfo]) -> EnvironmentInfo:
    names = ", ".join(repr(info.name) for info in infos) or "none"
    if entry.name is None and len(infos) != 1:
        raise ConfigError(f"say which environment of {entry.url} to learn from by `name`; it has {names}")
    for info in infos:
        if entry.name in (None, info.name):
            return info
    raise ConfigError(f"there is no environment {entry.name!r} at {entry.url}; it has {names}")


def _variable(name: str, purpose: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise ConfigError(f"{purpose} is to be read from the environment variable {name}, which is not set") from None


async def _check(environment: ConnectedEnvironment, held_out: str, *, matches: bool) -> tuple[ToolSpec, ...]:
    """Check the environment for errors that would otherwise fail every episode; `matches` if none is played alone.
    Return its tools.

    Raises:
        ConfigError: the environment cannot be learned from.
    """
    info, remote, label, splits = environment.info, environment.remote, environment.where, environment.splits
    names = [split.name for split in info.splits]
    for split, key in [*((split, "split") for split in splits), (held_out, "evaluation.split")]:
        if split not in names:
            raise ConfigError(f"{label} has no split {split!r} (`{key}`); it has {', '.join(map(repr, names))}")
    try:
        await remote.task(held_out, index=0)
        if environment.entry.curriculum is not None:
            await remote.report_outcomes(splits[0], ())
        if matches:
            return ()
        async with remote.episode(split=splits[0], secrets=environment.secrets) as episode:
            await episode.rewards()
            if not episode.tools and not episode.gradable:
                raise ConfigError(f"{label} has no tools and grades no answers, so nothing can be earned there")
            return tuple(episode.tools)
    except e.RequestError as error:
        raise ConfigError(f"{label} cannot be learned from: {error.message}") from error
    except e.TransportError as error:
        raise ConfigError(f"{label} does not answer: {error.message}") from error
    except e.LudusError:
        return ()  # this one episode failed; the run will show whether all of them do


async def _check_matches(environment: ConnectedEnvironment, config: TrainConfig) -> None:
    """Check that matches of the environment can be played as the configuration says.

    Raises:
        ConfigError: they cannot.
    """
    info, rules = environment.info, config.self_play
    assert rules is not None
    check_seats(rules, info, environment.where)
    if config.rollouts.concurrency < len(info.seats):
        raise ConfigError(
            f"rollouts.concurrency = {config.rollouts.concurrency} is too low for {environment.where}: a match opens "
            f"{len(info.seats)} episodes"
        )
    try:
        match = await environment.remote.start_match(split=environment.splits[0], secrets=environment.secrets)
        await match.close()
    except e.Unsupported as error:
        raise ConfigError(f"{environment.where} cannot be used for self_play: {error.message}") from error
    except e.LudusError:
        return  # as for `_check`


async def _check_chains(environment: ConnectedEnvironment) -> None:
    """Check that chains of the environment can be played.

    Raises:
        ConfigError: they cannot.
    """
    if environment.entry.curriculum is not None:
        raise ConfigError(
            f"{environment.where} plays chains, and a curriculum chooses single tasks; remove one of them"
        )
    try:
        await environment.remote.world("none").info()
    except e.Unsupported as error:
        raise ConfigError(f"{environment.where} cannot play chains: {error.message}") from error
    except e.LudusError:
        return  # there is no such world, or the run will show what is wrong


async def _difficulty(environment: ConnectedEnvironment) -> DifficultyFile | None:
    """Read the entry's difficulty file and check that it belongs to the environment; None if there is none.

    Raises:
        ConfigError: the file cannot be read, or belongs to other tasks.
    """
    curriculum, info = environment.entry.curriculum, environment.info
    if curriculum is None or curriculum.difficulty is None:
        return None
    prefix = f"the curriculum of {environment.where} cannot begin with {curriculum.difficulty}"
    try:
        file = read_difficulty(curriculum.difficulty)
        wrong = file.mismatch(info.name, info.version, [split.name for split in info.splits])
        if wrong is None and file.split not in environment.splits:
            learned = ", ".join(map(repr, environment.splits))
            wrong = f"it was measured on the split {file.split!r}, and what is learned from is {learned}"
        if wrong is not None:
            raise ConfigError(f"{prefix}: {wrong}")
        tasks = list(file.tasks)
        for start in range(0, len(tasks), CHECKED):
            some = tasks[start : start + CHECKED]
            rows = await asyncio.gather(
                *(environment.remote.task(file.split, task=task) for task in some), return_exceptions=True
            )
            if missing := [error for error in rows if isinstance(error, BaseException)]:
                raise missing[0]
    except e.LudusError as error:
        raise ConfigError(f"{prefix}: {error.message}") from error
    return file


def _outcomes_of(tries: int, passes: int) -> list[bool]:
    return [number < passes for number in range(tries)]
