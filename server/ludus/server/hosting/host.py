"""`EpisodeHost`: the one episode runtime behind every transport."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from ludus.protocol import episodes as e
from ludus.protocol.content import TextBlock
from ludus.protocol.errors import (
    AuthoringError,
    EpisodeFailed,
    ShuttingDown,
)
from ludus.protocol.identifiers import PLAY_PATH, SUBMIT_TOOL
from ludus.protocol.lifecycle import EndReason, EpisodeStatus
from ludus.protocol.methods import Scope
from ludus.protocol.text import is_unicode
from ludus.sandbox import Sandboxes
from ludus.server.auth import CapabilitySigner
from ludus.server.auth.principal import Principal
from ludus.server.auth.quotas import Account
from ludus.server.authoring.environment import Environment
from ludus.server.durability.journal import Ended, Journal, check_writable, committed
from ludus.server.execution.threads import Workers
from ludus.server.hosting.forks import Forks
from ludus.server.hosting.group_scores import GroupScores
from ludus.server.hosting.host_methods import HostMethods
from ludus.server.hosting.places import Places
from ludus.server.recovery.recovery import Recovery
from ludus.server.recovery.repeating import write_whole
from ludus.server.recovery.undoing import Undoing
from ludus.server.runtime.episode import Episode, EpisodeStore, EpisodeView, StepRecord
from ludus.server.runtime.idempotency import IdempotencyCache
from ludus.server.runtime.ids import Ids
from ludus.server.runtime.limits import ServerLimits
from ludus.server.runtime.seats import end_decided, end_others, log_reward_of_match, seats_to_start, take_seats
from ludus.server.runtime.setup import EpisodeSetup
from ludus.server.runtime.snapshots import Snapshots
from ludus.server.runtime.startup import StartupHooks
from ludus.server.runtime.steps import StepCounts, StepRunner
from ludus.server.runtime.task_sandboxes import open_sandboxes
from ludus.server.runtime.world_states import WorldStates
from ludus.server.tasks.catalog import Catalog
from ludus.server.tasks.service import TaskService
from ludus.server.worlds.requests import WorldRequests
from ludus.server.worlds.worlds import Worlds

log = logging.getLogger("ludus.server.hosting.host")


@dataclass(frozen=True, slots=True)
class HostStats:
    """Counts for metrics and health."""

    running: int
    starting: int
    queued: int
    kept: int
    """Episodes in memory, including those that have ended."""
    worlds: int
    """Worlds that are kept."""
    started: dict[str, int]
    """Episodes started, by environment."""
    ended: dict[tuple[str, str], int]
    """Episodes ended, by environment and end reason."""
    steps: StepCounts


class EpisodeHost(HostMethods):
    """Starts, steps, grades and ends the episodes of some environments.

    Use it as an async context manager; leaving it tears down every episode within a time limit.

    Args:
        environments: the classes to publish, with their variants, or the catalog of another host.
        limits: what the server and its episodes may use.
        journal: where to write steps and ends; without one, only the episodes hold them.
        capabilities: signs play capabilities; without one there is no agent endpoint.

    Raises:
        AuthoringError: a class has a mistake; the message says which one and how to fix it.
    """

    def __init__(
        self,
        environments: Sequence[type[Environment[Any]]] | Catalog,
        *,
        limits: ServerLimits | None = None,
        journal: Journal | None = None,
        capabilities: CapabilitySigner | None = None,
    ) -> None:
        self.limits = limits or ServerLimits()
        self.catalog = environments if isinstance(environments, Catalog) else Catalog(environments)
        self.starts_classes = True
        """Whether to run `startup` of the classes; another host of this process may have done so."""
        self.journal, self.signer = journal, capabilities
        self.ids = Ids()
        self.admit_secrets: Callable[[Mapping[str, str]], Mapping[str, str]] = dict
        """Filters the secrets that environments receive, to leave out credentials of this server."""
        self.ready = False
        self.goes_on = journal is not None and journal.survives
        """Whether running episodes go on in the next process."""
        self.takes_over: Callable[[], Awaitable[None]] | None = None
        """Waits until a process that still serves is to be replaced by this one; None if there is no such process."""
        self.on_released: Callable[[], None] = lambda: None  # the journal is closed, another process may open it
        self._workers = Workers(self.limits.threads, self.catalog)
        self.task_service = TaskService(self.catalog, self._workers, journal)
        self.sandboxes = Sandboxes()
        self.startup = StartupHooks(self._workers, self.limits.startup_seconds)
        self.snapshots = Snapshots(journal, self._workers)
        self.worlds = Worlds(self.limits, lambda: self.ids.world(), self.snapshots, journal)
        self._setup = EpisodeSetup(
            self._workers, self.sandboxes, self.snapshots,
            WorldStates(self._workers, self.snapshots, self.limits.world_bytes), self.limits.setup_seconds,
            self.limits.grace_seconds,
        )  # fmt: skip
        self.places = Places(self.limits)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._started, self._ended = Counter[str](), Counter[tuple[str, str]]()
        self._running = 0

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        ttl = self.limits.result_ttl_seconds
        store = self.store = EpisodeStore(self.journal, self.limits, self.snapshots.forget)
        self.runner = StepRunner(
            self.catalog.values(), self._workers, self.journal, self.snapshots, self._end, self.limits
        )
        self.recovery = Recovery(self.catalog, self.task_service, self._setup, self.runner, self.snapshots, self.worlds)
        self.world_requests = WorldRequests(self.worlds, self.journal, self._spawn, ttl)
        self.starts = IdempotencyCache[tuple[Episode, ...]](self._spawn, ttl, lambda g: any(e.id in store for e in g))
        self.forks = Forks(
            store, self.runner, self.snapshots, self.journal, self._open_group, self._close, self._spawn, ttl
        )
        if self.journal is not None:
            self.journal.on_refused = Undoing(
                store, self.runner, self._setup, self.snapshots, self.journal, self.recovery.counts, self._spawn,
                self._end,
            ).undo  # fmt: skip
        self.group_scores = GroupScores(store, self.task_service, self._workers, self.journal, self._spawn, self.limits)
        try:
            # While another process still serves, the journal is its own; `_recover` opens it once that process has let
            # go.
            if self.takes_over is None:
                _open(self.journal, self.signer)
            if self.starts_classes:
                await self.startup.open(self.catalog.values())
            await open_sandboxes(self.sandboxes, self.catalog.values())
            if self.journal is not None:
                await self._recover(self.journal)
        except BaseException as error:
            self.startup.refusal = error if isinstance(error, AuthoringError) else None
            await self.recovery.head_start.discard()
            await self.startup.aclose()
            raise
        self._reaper = self._loop.create_task(self._reap())
        self.ready = True
        return self

    def release(self) -> None:
        """Stop serving, end or suspend all episodes, and close the journal. Only the first call does anything."""
        if self._reaper.cancelling():
            return
        self.ready = False
        # A later pass would append to the closed journal.
        self._reaper.cancel()
        self.places.refuse_waiting()
        for episode in self.store:
            if episode.status is EpisodeStatus.RUNNING:
                if self.goes_on:
                    self._suspend(episode)
                else:
                    self._end(episode, EndReason.SERVER_STOPPED, None)
        if self.journal is not None:
            self.journal.close()
        # Last: from here on another process may write the journal.
        self.on_released()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        retiring = [episode.retired for episode in self.store if episode.retired is not None]
        if retiring:
            await asyncio.wait(retiring, timeout=self.limits.grace_seconds + self.limits.setup_seconds)
        for task in self._tasks:
            task.cancel()
        _, strays = await asyncio.wait({*self._tasks, self._reaper}, timeout=self.limits.grace_seconds)
        for stray in strays:
            log.error("a task of environment code ignores its cancellation: %r", stray.get_name())
        await self.startup.aclose()
        await self.sandboxes.aclose()
        self._workers.close()
        self.snapshots.close()

    # ── starting ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, params: e.StartParams, principal: Principal) -> e.StartResult:
        """Start a group of episodes, once per key.

        Raises:
            KeyConflict: the key was used for another start.
            Unsupported: a seed was given for an environment that cannot be seeded.
            CapacityError: the server had no room in time.
            EpisodeFailed: the author's setup failed; no episode of the group remains.
        """
        episodes = await self.begin(params, principal)
        for episode in episodes:
            await episode.recovered()
        started = tuple(self._describe(episode, principal) for episode in episodes)
        return e.StartResult(group=episodes[0].group, episodes=started)

    async def begin(self, params: e.StartParams, principal: Principal) -> tuple[Episode, ...]:
        """Start episodes for a transport that describes them in its own format, without play capabilities."""
        episodes = await self.starts.do(
            principal.name, params.key, params, lambda digest: self._open_group(params, principal, digest)
        )
        return await committed(self.journal, episodes)

    async def _open_group(
        self, params: e.StartParams, principal: Principal, digest: bytes, origin: str | None = None
    ) -> tuple[Episode, ...]:
        if not self.ready:
            raise ShuttingDown("the server is stopping; start the episode elsewhere, or when it is back")
        check_writable(self.journal)
        published, _ = await self.task_service.open(params.environment, params.split, principal)
        seed = published.seed_of(params.seed)
        index, task = await self.task_service.choose(published, params.split, params.task, params.index, seed)
        limits = self.limits.of_episode(published.cls.limits, params.limits)
        row = published.row(params.split, index, task)
        seats = seats_to_start(published, params)
        count = params.count * max(1, len(seats))
        async with self.worlds.reserved(published, params.split, task, params, principal) as stays:
            # May wait long for room, so it comes after all that refuses a start at once.
            account = await self.places.acquire(principal, count)
            group = self.ids.group()
            episodes = [
                Episode(
                    self.ids.episode(), group, published, row, task, seed, principal.name, limits,
                    self.admit_secrets(params.secrets), self._loop.time(),
                )
                for _ in range(count)
            ]  # fmt: skip
            take_seats(episodes, seats, params.opponent, self.ids.match)
            for episode, stay in zip(episodes, stays, strict=False):
                episode.stay = stay
            await self._set_up(episodes, params.tools, account, saves=origin is None)
            for episode in episodes:
                episode.origin, episode.account = origin, account
                self.store.add(episode)
                self.worlds.begin(episode)
                # A fork is written by `Forks`, together with the calls that it has from its origin.
                if self.journal is not None and origin is None:
                    write_whole(self.journal, episode, episode.started(params, params.key, digest, count, fork=False))
            end_decided(episodes, self._end)
        self._started[published.name] += count
        return tuple(episodes)

    async def _set_up(
        self, episodes: Sequence[Episode], tools: Sequence[str] | None, account: Account, *, saves: bool
    ) -> None:
        """Set a group up; if one of its episodes fails, tear all of them down and give their places back."""
        self._running += len(episodes)
        try:
            await self._setup.open_all(episodes, tools, saves=saves)
        except BaseException:
            self._running -= len(episodes)
            self.places.release(account, len(episodes))
            for episode in episodes:
                if episode.instance is not None:
                    # Shielded: a cancellation of the start must not stop the teardown.
                    await asyncio.shield(self._spawn(self._setup.tear_down(episode, ())))
            raise

    def _describe(self, episode: Episode, principal: Principal) -> e.StartedEpisode:
        play = _play_access(self.signer, episode, principal) if self.signer is not None else None
        return e.StartedEpisode(
            episode=episode.id, task=episode.row, seed=episode.seed, prompt=episode.prompt, tools=episode.specs,
            gradable=episode.published.gradable, limits=episode.limits, play=play,
            turns=episode.published.judges_turns, seat=episode.seat, match=episode.match_id,
            world=episode.stay.info if episode.stay is not None else None,
        )  # fmt: skip

    # ── playing ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def step(self, params: e.StepParams, principal: Principal) -> e.StepResult:
        """Call one tool, once per key, and return the result without what the principal may not read."""
        result = await self.submit(params, principal).wait()
        return result if principal.may(Scope.REWARDS_READ) else redacted(result)

    def submit(self, params: e.StepParams, principal: Principal) -> StepRecord:
        """Accept a step and return its record at once; if the principal may not read rewards, send it `redacted`."""
        episode = self.store.get_owned(params.episode, principal)
        return self.runner.accept(episode, params.step, params.key, params.tool, params.arguments, params.turn)

    async def play(
        self, episode: str, tool: str, arguments: dict[str, Any], *, step: int | None = None, key: str | None = None
    ) -> e.StepResult:
        """Call one tool for a transport without step numbers or principals, which must hide the reward from the agent.

        The generated tool `submit_answer` passes its argument to the environment's `grade`.

        Args:
            episode: the episode's id, already authorized by the transport.
            tool: the tool's name.
            arguments: the tool's arguments.
            step: the step's number, if the transport has one.
            key: an idempotency key, if the transport has one.
        """
        running = self.store.find(episode)
        key = key or f"play/{running.asked + 1}/{secrets.token_hex(4)}"
        if tool == SUBMIT_TOOL and running.published.gradable:
            answer = arguments.get("answer")
            if not isinstance(answer, str) or len(arguments) != 1 or not is_unicode(answer):
                if running.end_reason is not None:
                    raise running.ended_error()
                message = f"Wrong arguments for {SUBMIT_TOOL}: give exactly `answer`, a string of characters."
                error = e.StepError(code="invalid_arguments", message=message)
                return e.StepResult(step=running.asked, content=(TextBlock(text=message),), error=error)
            return await self.runner.accept(running, None, key, None, {"answer": answer}).wait()
        return await self.runner.accept(running, step, key, tool, arguments).wait()

    async def grade(self, params: e.GradeParams, principal: Principal) -> e.GradeResult:
        """Submit the final message, once per key."""
        episode = await self._find(params.episode, principal)
        result = await self.runner.accept(episode, None, params.key, None, {"answer": params.answer}).wait()
        rewards = principal.may(Scope.REWARDS_READ)
        return e.GradeResult(reward=result.reward if rewards else None, info=episode.info(rewards=rewards))

    async def rewards(self, params: e.RewardsParams, principal: Principal) -> e.RewardsResult:
        """Return the reward log."""
        episode = await self._find(params.episode, principal)
        result = e.RewardsResult(
            entries=tuple(episode.entries or ())[params.after :], total=episode.reward, status=episode.status,
            end_reason=episode.end_reason,
        )  # fmt: skip
        return await committed(self.journal, result)

    async def get_episode(self, params: e.GetEpisodeParams, principal: Principal) -> e.GetEpisodeResult:
        """Return an episode's status."""
        episode = await self._find(params.episode, principal)
        result = e.GetEpisodeResult(info=episode.info(rewards=principal.may(Scope.REWARDS_READ)))
        return await committed(self.journal, result)

    async def close(self, params: e.CloseParams, principal: Principal) -> e.CloseResult:
        """End an episode and free its resources; its rewards stay. Repeats are harmless."""
        episode = await self._find(params.episode, principal)
        await self._close(episode)
        result = e.CloseResult(info=episode.info(rewards=principal.may(Scope.REWARDS_READ)))
        return await committed(self.journal, result)

    async def view(self, episode: str) -> EpisodeView:
        """Return what the agent sees of an episode, which counts as use; raise `EpisodeNotFound` if there is none."""
        return (await self._recovered(self.store.find(episode))).view()

    async def _find(self, episode: str, principal: Principal) -> Episode:
        """Return an episode that the principal may see, once it has its state."""
        return await self._recovered(self.store.get_owned(episode, principal))

    async def _recovered(self, episode: Episode) -> Episode:
        """Return an episode once it has its state; refuse at once while it cannot get it."""
        if episode.recovering is not None:
            check_writable(self.journal)
            await episode.recovered()
        return episode

    async def discard(self, episode: str) -> None:
        """Close an episode for a transport that owns it; an unknown id is not an error."""
        if episode in self.store:
            await self._close(self.store.find(episode))
            await committed(self.journal, None)

    # ── forks and groups ───────────────────────────────────────────────────────────────────────────────────────────

    async def fork(self, params: e.ForkParams, principal: Principal) -> e.ForkResult:
        """Start a new episode in the state that another one had after a step; see `Forks.make`."""
        source = await self._find(params.episode, principal)
        episode = await self.forks.make(source, params, principal)
        result = e.ForkResult(group=episode.group, episode=self._describe(episode, principal))
        return await committed(self.journal, result)

    async def score_group(self, params: e.ScoreGroupParams, principal: Principal) -> e.ScoreGroupResult:
        """Score episodes of one group against each other, once per key; see `GroupScores.score`."""
        return await self.group_scores.score(params, principal)

    # ── ends ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _end(
        self, episode: Episode, reason: EndReason, failure: EpisodeFailed | None, ended_by: StepRecord | None = None
    ) -> None:
        if episode.retired is not None:  # it goes on in the next process
            return
        if episode.recovering is not None:  # a repeated call did not end it before
            reason = EndReason.INFRASTRUCTURE_ERROR
        episode.end(reason)
        episode.incident = failure.incident if failure is not None else None
        self._ended[episode.published.name, str(reason)] += 1
        records = [*(episode.active or ()), *((ended_by,) if ended_by is not None else ())]
        current = asyncio.current_task()
        running = [r.task for r in records if r.task is not None and r.task is not current]
        # After `running` was collected, because it clears `episode.active`.
        self.runner.drain(episode)
        match, entries = episode.match, log_reward_of_match(episode, reason)
        self.worlds.leave(episode, reason, ended_by)
        if self.journal is not None:
            self.journal.append(Ended(episode.id, reason, episode.incident, entries))
        self._running -= 1
        self.places.release(episode.account, 1)
        episode.retired = self._loop.create_future()
        if running or episode.has_teardown:
            self._spawn(self._setup.retire(episode, running))
        else:
            episode.release()
            episode.retired.set_result(None)
        self.store.count_ended(episode)
        if match is not None:
            end_others(match, episode, reason, failure, self._end, self.journal)

    def _suspend(self, episode: Episode) -> None:
        """Free what an episode holds that goes on in the next process; its running calls get no answer."""
        episode.journal = None
        episode.retired = self._loop.create_future()
        self._spawn(self._setup.retire(episode, self.runner.abandon(episode)))

    async def _recover(self, journal: Journal) -> None:
        """Find the episodes of an earlier process, and begin to rebuild those that had not ended."""
        if self.takes_over is not None:
            await self.recovery.head_start.run(journal)
            await self.takes_over()
            _open(journal, self.signer)
        earlier = await self.recovery.read(journal, self.limits.result_ttl_seconds)
        self.store.restore(earlier.episodes)
        for revival in self.recovery.revivals(earlier, journal, self._end):
            self._spawn(revival)
        self._running += len(earlier.running)
        self.places.restore(self.store)
        earlier.restore_keys(self.starts, self.forks.kept, self.group_scores.kept)
        self.world_requests.restore(earlier.worlds)

    async def _close(self, episode: Episode) -> None:
        if episode.end_reason is None:
            self._end(episode, EndReason.CLOSED, None)
        if episode.retired is not None and not episode.retired.done():
            await asyncio.wait([episode.retired])
        self.store.archive(episode)

    async def _reap(self) -> None:
        idle = min(self.limits.idle_seconds, self.limits.episode_seconds or self.limits.idle_seconds)
        pause = max(0.01, min(1.0, idle / 4, self.limits.result_ttl_seconds / 4 or 1.0))
        now = self._loop.time()
        while True:
            await asyncio.sleep(pause)
            before, now = now, self._loop.time()
            for episode in self.store:
                # While the journal refuses, an agent cannot act, and that must not cost its episode time.
                if episode.end_reason is None and self.journal is not None and self.journal.refusal is not None:
                    episode.hold_clock(now - before)
                elif episode.end_reason is not None:
                    if now - episode.used > self.limits.idle_seconds:
                        self.store.archive(episode)
                elif (reason := episode.overdue(now)) is not None:
                    self._end(episode, reason, None)
            self._evict(now)

    def _evict(self, now: float) -> None:
        """Drop what was kept long enough, and what refers only to episodes for which there was no room."""
        self.store.evict(now)
        short_of_room, self.store.short_of_room = self.store.short_of_room, False
        self.starts.evict(now, short_of_room=short_of_room)
        self.forks.kept.evict(now, short_of_room=short_of_room)
        self.group_scores.kept.evict(now)
        self.world_requests.evict(now)

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def busy(self, *, outside: bool = False) -> bool:
        """Return whether any episode has a running step, or one that may act on the outside."""
        return any(episode.active and (not outside or episode.published.cls.outside_effects) for episode in self.store)

    def stats(self) -> HostStats:
        """Return counts for metrics and health."""
        return HostStats(
            running=self._running, starting=self.starts.pending, queued=self.places.queued, kept=len(self.store),
            worlds=len(self.worlds), started=dict(self._started), ended=dict(self._ended), steps=self.runner.counts,
        )  # fmt: skip


def _open(journal: Journal | None, signer: CapabilitySigner | None) -> None:
    """Open a journal, and sign capabilities with its key, unless there is another one.

    Raises:
        AuthoringError: the journal cannot be used.
    """
    if journal is not None:
        journal.open()
        if signer is not None and (key := journal.key) is not None:
            signer.prefer(key)


def _play_access(signer: CapabilitySigner, episode: Episode, principal: Principal) -> e.PlayAccess:
    """Return the agent endpoint of `episode`, with a capability that expires no later than the principal's token."""
    tools = [tool.name for tool in episode.view().tools]
    capability, expires = signer.sign(episode.id, tools, principal)
    return e.PlayAccess(path=PLAY_PATH.replace("{capability}", capability), expires_at=expires)


def redacted(result: e.StepResult) -> e.StepResult:
    """Return a step's result without what only principals with the scope `rewards:read` may read."""
    return result.model_copy(update={"reward": None, "metadata": {}, "noise": None})
