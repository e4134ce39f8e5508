"""Rebuilds the episodes of an earlier process from its journal.

How this works:

* An episode that had not ended is set up again with its task and seed, and its calls are repeated in their order. Each
  must give what the journal holds: the same observation, reward, error and end. If one does not, or if the episode
  cannot be set up again, it ends as `infrastructure_error`, unscored, and the log names the step and the
  difference under the episode's incident.
* A call that was accepted and has no outcome in the journal is not repeated, unless a later one has an outcome: it was
  never answered, and its client sends it again under its key.
* An episode that had ended keeps its outcomes, its reward log and its end for as long as ended episodes are kept; its
  environment is not made again.
* The keys of starts and forks are restored, so that a repeated request gets the episodes that the first one started.
* The time that the server was away does not count as time of an episode.

What cannot be rebuilt: episodes whose start gave secrets, because no journal holds secrets, and those of another
version of their environment.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import InfrastructureFailed, LudusError
from ludus.protocol.incidents import new_incident
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import RewardEntry
from ludus.server.runtime.episode import Episode, StepRecord
from ludus.server.runtime.idempotency import IdempotencyCache
from ludus.server.runtime.journal import Asked, Ended, Evicted, Journal, Settled, Started, Stored
from ludus.server.runtime.setup import EpisodeSetup
from ludus.server.runtime.steps import StepRunner
from ludus.server.tasks.catalog import Catalog
from ludus.server.tasks.service import TaskService

log = logging.getLogger("ludus.server.recovery")

AT_ONCE: Final = 64
"""How many episodes are rebuilt at the same time."""


@dataclass(slots=True)
class History:
    """What the journal holds of one episode."""

    started: Started
    began: float
    """The Unix time of the start."""
    last: float
    """The Unix time of the last entry."""
    asked: list[Asked] = field(default_factory=list)
    settled: dict[str, Settled] = field(default_factory=dict)
    """By the call's key."""
    ended: Ended | None = None
    evicted: bool = False

    def calls(self) -> Sequence[Asked]:
        """Return the calls up to the last one that has an outcome."""
        known = [number for number, call in enumerate(self.asked, 1) if call.key in self.settled]
        return self.asked[: max(known, default=0)]


def read_histories(stored: Iterable[Stored]) -> dict[str, History]:
    """Return the history of each episode, in the order of their starts."""
    found: dict[str, History] = {}
    for one in stored:
        entry = one.entry
        if isinstance(entry, Started):
            found[entry.episode] = History(entry, one.at, one.at)
            continue
        history = found.get(entry.episode)
        if history is None:
            continue
        history.last = one.at
        match entry:
            case Asked():
                history.asked.append(entry)
            case Settled():
                history.settled[entry.key] = entry
            case Ended():
                history.ended = entry
            case Evicted():
                history.evicted = True
    return found


def forget_old(histories: dict[str, History], kept_seconds: float) -> None:
    """Remove the groups all of whose episodes ended long ago, or were forgotten."""
    groups: dict[str, list[History]] = {}
    for history in histories.values():
        groups.setdefault(history.started.group, []).append(history)
    oldest = time.time() - kept_seconds
    for members in groups.values():
        if all(one.evicted or (one.ended is not None and one.last < oldest) for one in members):
            for one in members:
                del histories[one.started.episode]


Restored = tuple[str, str, bytes, tuple[Episode, ...]]
"""The owner, the key and the digest of a start or a fork, with its episodes."""


@dataclass(slots=True)
class Found:
    """The episodes of an earlier process."""

    episodes: list[Episode] = field(default_factory=list)
    running: dict[str, History] = field(default_factory=dict)
    """The histories of the episodes that had not ended, by id."""
    starts: list[Restored] = field(default_factory=list)
    forks: list[Restored] = field(default_factory=list)

    def restore_keys(self, starts: IdempotencyCache[tuple[Episode, ...]], forks: IdempotencyCache[Episode]) -> None:
        """Restore the keys of starts and forks."""
        for owner, key, digest, group in self.starts:
            starts.restore(owner, key, digest, group)
        for owner, key, digest, (forked,) in self.forks:
            forks.restore(owner, key, digest, forked)


class Recovery:
    """Rebuilds episodes.

    Args:
        catalog: the environments of this server.
        tasks: finds the tasks.
        setup: sets episodes up.
        runner: repeats their calls.
    """

    def __init__(self, catalog: Catalog, tasks: TaskService, setup: EpisodeSetup, runner: StepRunner) -> None:
        self._catalog = catalog
        self._tasks = tasks
        self._setup = setup
        self._runner = runner
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def read(self, journal: Journal, kept_seconds: float) -> Found:
        """Return what a journal holds, and drop from it what is no longer needed.

        Raises:
            AuthoringError: the journal cannot be read.
        """
        histories = read_histories(journal.stored())
        forget_old(histories, kept_seconds)
        found, groups = Found(), dict[str, list[Episode]]()
        for name, history in list(histories.items()):
            episode = await self._build(history)
            if episode is None:
                del histories[name]
                continue
            groups.setdefault(episode.group, []).append(episode)
            if not history.evicted:
                found.episodes.append(episode)
            if episode.end_reason is None:
                found.running[name] = history
        for members in groups.values():
            started = histories[members[0].id].started
            if len(members) == started.size:
                restored = (started.owner, started.key, started.digest, tuple(members))
                (found.forks if started.fork else found.starts).append(restored)
        journal.compact(histories)
        if found.running:
            log.info("rebuilding %d running episodes from the journal", len(found.running))
        return found

    async def revive(self, found: Found) -> list[tuple[Episode, InfrastructureFailed]]:
        """Set the running episodes up and repeat their calls; return those for which that failed."""
        running = [one for one in found.episodes if one.id in found.running]
        failures = await asyncio.gather(*(self._revive(one, found.running[one.id]) for one in running))
        return [(one, failure) for one, failure in zip(running, failures, strict=True) if failure is not None]

    async def _build(self, history: History) -> Episode | None:
        """Return the episode of a history, which has no environment yet; None if this server does not publish it."""
        started = history.started
        published = self._catalog.get(started.environment)
        if published is None:
            log.warning(
                "episode %s is forgotten: this server does not publish its environment %r", started.episode,
                started.environment,
            )  # fmt: skip
            return None
        try:
            index, task = await self._tasks.choose(published, started.split, started.task, None, started.seed)
        except LudusError as error:
            log.warning("episode %s is forgotten: its task cannot be found: %s", started.episode, error)
            return None
        now = asyncio.get_running_loop().time()
        episode = Episode(
            started.episode, started.group, published, published.row(started.split, index, task), task, started.seed,
            started.owner, started.limits, {}, now,
        )  # fmt: skip
        episode.prompt, episode.origin = started.prompt, started.origin
        if history.ended is not None:
            _restore_ended(episode, history, history.ended)
        else:
            episode.muted = True
        return episode

    async def _revive(self, episode: Episode, history: History) -> InfrastructureFailed | None:
        """Set an episode up and repeat its calls; return why that failed."""
        async with self._turns:
            try:
                await self._replay(episode, history)
            except LudusError as error:
                return _failure(episode, str(error))
            except _Departed as departed:
                return _failure(episode, str(departed))
        if episode.end_reason is not None:
            return None
        episode.muted = False
        now = asyncio.get_running_loop().time()
        episode.began, episode.used = now - (history.last - history.began), now
        return None

    async def _replay(self, episode: Episode, history: History) -> None:
        started = history.started
        if started.has_secrets:
            raise _Departed("its start gave secrets, which no journal holds")
        if started.version != episode.published.cls.version:
            raise _Departed(f"it began in version {started.version} of its environment")
        await self._setup.open(episode, started.tools)
        if episode.prompt != started.prompt:
            raise _Departed("its prompt is another one")
        for call in history.calls():
            record = self._runner.accept(
                episode, None if call.tool is None else call.step, call.key, call.tool, call.arguments, call.turn,
                refused=call.refused,
            )  # fmt: skip
            if call.digest is not None:
                record.digest = call.digest
            try:
                await record.wait()
            except LudusError:
                log.debug("step %d of episode %s failed while it was repeated", call.step, episode.id)
            settled = history.settled.get(call.key)
            if settled is not None and (difference := _difference(record, settled)) is not None:
                raise _Departed(f"repeating step {call.step} gave {difference}")


class _Departed(Exception):
    """The episode cannot be brought to the state that it had; the message says why."""


def _difference(record: StepRecord, settled: Settled) -> str | None:
    """Return how a repeated call's outcome differs from the one in the journal; None if it does not."""
    now, before = record.outcome, settled.outcome
    if not isinstance(now, StepResult) or not isinstance(before, StepResult):
        return None if type(now) is type(before) else f"{type(now).__name__} in place of {type(before).__name__}"
    for name in ("content", "reward", "error", "end_reason"):
        if getattr(now, name) != getattr(before, name):
            return f"another {name.replace('_', ' ')}"
    return None


def _failure(episode: Episode, why: str) -> InfrastructureFailed:
    incident = new_incident()
    log.error(
        "episode %s of environment %r cannot go on: %s (incident %s)",
        episode.id, episode.published.name, why, incident,
        extra={"incident": incident, "episode": episode.id},
    )  # fmt: skip
    return InfrastructureFailed(
        f"episode {episode.id} could not be rebuilt after its server ended; the server's log has the cause under "
        f"incident {incident}",
        incident=incident,
        endReason=str(EndReason.INFRASTRUCTURE_ERROR),
        episode=episode.id,
    )


def _restore_ended(episode: Episode, history: History, ended: Ended) -> None:
    """Set the outcomes, the log and the end of an episode that has ended."""
    episode.keys, episode.records = {}, []
    entries: list[RewardEntry] = []
    for call in history.asked:
        settled = history.settled.get(call.key)
        if settled is None:
            continue
        record = StepRecord(call.step, call.key, call.tool, call.arguments, call.turn)
        record.digest, record.refused = call.digest, call.refused
        record.settle(settled.outcome)
        episode.keys[call.key] = record
        if call.tool is None:
            episode.graded = record
        else:
            episode.records.append(record)
        episode.asked = max(episode.asked, call.step)
    for settled in history.settled.values():
        entries += settled.entries
    episode.entries = entries or None
    episode.end(ended.reason)
    episode.incident = ended.incident
    episode.release()
    retired = episode.retired = asyncio.get_running_loop().create_future()
    retired.set_result(None)
