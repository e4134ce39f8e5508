"""Rebuilds the episodes of an earlier process from its journal.

How this works:

* An episode that had not ended is set up again with its task and seed. If there is a snapshot of its state, it is
  restored; then the calls after it are repeated (`repeating.py`). If one of them gives something else, or if the
  episode cannot be set up again, it ends as `infrastructure_error`, unscored, and the log names the step and the
  difference under the episode's incident.
* Episodes are rebuilt while the server already answers. Requests for an episode wait until it has its state again.
* A call that was accepted and has no outcome in the journal is not repeated, unless a later one has an outcome: it was
  never answered, and its client sends it again under its key.
* An episode that had ended keeps its outcomes, its reward log and its end for as long as ended episodes are kept; its
  environment is not made again.
* The keys of starts, forks, group scores and reports are restored, so that a repeated request gets what the first one
  got.
* The time that the server was away does not count as time of an episode.

What cannot be rebuilt: episodes whose start gave secrets, because no journal holds secrets; those of another version
of their environment, or of one that is not durable; and those with a call that may have acted on the outside.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ludus.protocol.episodes import ScoreGroupResult, StepResult
from ludus.protocol.errors import InfrastructureFailed, LudusError
from ludus.protocol.heap import uncollected
from ludus.protocol.incidents import new_incident
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import RewardEntry
from ludus.protocol.text import replace_surrogates
from ludus.server.runtime.episode import Episode, StepRecord
from ludus.server.runtime.idempotency import IdempotencyCache
from ludus.server.runtime.journal import (
    Asked,
    Ended,
    Evicted,
    Journal,
    Reported,
    Saved,
    Scored,
    Settled,
    Started,
    Stored,
    Tallied,
)
from ludus.server.runtime.repeating import Departed, rebuild
from ludus.server.runtime.setup import EpisodeSetup
from ludus.server.runtime.snapshots import Snapshots
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
    saved: dict[int, Saved] = field(default_factory=dict)
    """The snapshots of its state, by the step after which they were taken."""
    scored: list[Scored] = field(default_factory=list)
    """The scores of its group, if it is the first of the scored episodes."""
    ended: Ended | None = None
    evicted: bool = False

    def calls(self) -> Sequence[StepRecord]:
        """Return the calls up to the last one that has an outcome, with their outcomes."""
        known = [number for number, call in enumerate(self.asked, 1) if call.key in self.settled]
        order = {key: place for place, key in enumerate(self.settled)}
        return [
            record_of(call, self.settled.get(call.key), order.get(call.key, 0))
            for call in self.asked[: max(known, default=0)]
        ]

    def unsettled(self) -> Sequence[Asked]:
        """Return the calls that have no outcome."""
        return [call for call in self.asked if call.key not in self.settled]


def record_of(asked: Asked, settled: Settled | None, order: int) -> StepRecord:
    """Return the record of a call in a journal.

    Args:
        asked: the call.
        settled: its outcome, if it has one.
        order: its place among the calls that have an outcome.
    """
    record = StepRecord(asked.step, asked.key, asked.tool, asked.arguments, asked.turn)
    record.digest, record.refused, record.order = asked.digest, asked.refused, order
    if settled is not None:
        record.logged, record.original_result = settled.entries, settled.original
        if isinstance(settled.outcome, StepResult):
            record.noise = settled.outcome.noise
        record.settle(settled.outcome)
    return record


def read_histories(stored: Iterable[Stored], reports: list[Reported | Tallied]) -> dict[str, History]:
    """Return the history of each episode, in the order of their starts; put reports, which belong to none, aside."""
    found: dict[str, History] = {}
    for one in stored:
        entry = one.entry
        if isinstance(entry, Reported | Tallied):
            reports.append(entry)
            continue
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
            case Scored():
                history.scored.append(entry)
            case Saved():
                history.saved[entry.step] = entry
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
    scored: list[Scored] = field(default_factory=list)

    def restore_keys(
        self, starts: IdempotencyCache[tuple[Episode, ...]], forks: IdempotencyCache[Episode],
        scores: IdempotencyCache[ScoreGroupResult],
    ) -> None:  # fmt: skip
        """Restore the keys of starts, forks and group scores."""
        for one in self.scored:
            scores.restore(one.owner, one.key, one.digest, one.result)
        for owner, key, digest, group in self.starts:
            starts.restore(owner, key, digest, group)
        for owner, key, digest, (forked,) in self.forks:
            forks.restore(owner, key, digest, forked)


@dataclass(slots=True)
class RecoveryCounts:
    """Episodes of an earlier process."""

    running: int = 0
    """Those that are being rebuilt."""
    rebuilt: int = 0
    """Those that went on."""
    departed: int = 0
    """Those that could not be rebuilt, and ended unscored."""

    def end(self, *, departed: bool) -> None:
        """Count an episode that is no longer being rebuilt."""
        self.running -= 1
        self.rebuilt += not departed
        self.departed += departed


class Recovery:
    """Rebuilds episodes.

    Args:
        catalog: the environments of this server.
        tasks: finds the tasks.
        setup: sets episodes up.
        runner: repeats their calls.
        snapshots: restores their states.

    Attributes:
        counts: how many episodes there were.
    """

    def __init__(
        self, catalog: Catalog, tasks: TaskService, setup: EpisodeSetup, runner: StepRunner, snapshots: Snapshots
    ) -> None:
        self._catalog = catalog
        self._tasks = tasks
        self._setup = setup
        self._runner = runner
        self._snapshots = snapshots
        self._turns = asyncio.Semaphore(AT_ONCE)
        self.counts = RecoveryCounts()

    async def read(self, journal: Journal, kept_seconds: float) -> Found:
        """Return what a journal holds, and drop from it what is no longer needed.

        Raises:
            AuthoringError: the journal cannot be read.
        """
        reports: list[Reported | Tallied] = []
        with uncollected():
            histories = read_histories(journal.stored(), reports)
        forget_old(histories, kept_seconds)
        found, groups = Found(), dict[str, list[Episode]]()
        for name, history in list(histories.items()):
            episode = await self._build(history)
            if episode is None:
                del histories[name]
                continue
            groups.setdefault(episode.group, []).append(episode)
            found.scored += history.scored
            if not history.evicted:
                found.episodes.append(episode)
            if episode.end_reason is None:
                found.running[name] = history
        for members in groups.values():
            started = histories[members[0].id].started
            if len(members) == started.size:
                restored = (started.owner, started.key, started.digest, tuple(members))
                (found.forks if started.fork else found.starts).append(restored)
        journal.compact(histories, self._tasks.reports.restore(reports))
        self._snapshots.keep_only(found.running)
        self.counts.running += len(found.running)
        if found.running:
            log.info("rebuilding %d running episodes from the journal", len(found.running))
        return found

    async def revive(self, episode: Episode, history: History) -> InfrastructureFailed | None:
        """Bring an episode to the state that it had, and let its requests go on; return why that failed."""
        async with self._turns:
            try:
                await self._revive(episode, history)
            except (LudusError, Departed) as error:
                self.counts.end(departed=True)
                return _failure(episode, str(error))
        self.counts.end(departed=False)
        if episode.end_reason is None:
            now = asyncio.get_running_loop().time()
            episode.began, episode.used = now - max(0.0, history.last - history.began), now
        return None

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
            episode.recovering = asyncio.get_running_loop().create_future()
        return episode

    async def _revive(self, episode: Episode, history: History) -> None:
        started, cls = history.started, episode.published.cls
        if started.has_secrets:
            raise Departed("its start gave secrets, which no journal holds")
        if started.version != replace_surrogates(cls.version):
            raise Departed(f"it began in version {started.version} of its environment")
        if cls.durable == "none":
            raise Departed("its environment is not durable")
        if cls.outside_effects and (unsettled := history.unsettled()):
            raise Departed(f"step {unsettled[0].step} may have run, and its environment acts on the outside")
        await self._setup.open(episode, started.tools)
        if episode.prompt != started.prompt:
            raise Departed("its prompt is another one", before=started.prompt, now=episode.prompt)
        calls = history.calls()
        saved = (
            self._snapshots.nearest(history.saved, len(calls)) if self._snapshots.wanted(episode.published) else None
        )
        if cls.outside_effects and (saved.step if saved is not None else 0) != len(calls):
            raise Departed("its last step has no snapshot, and its environment acts on the outside")
        await rebuild(self._runner, self._snapshots, episode, calls, saved)
        if saved is not None:
            episode.saved = {step: one for step, one in history.saved.items() if step <= saved.step}


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
        record = record_of(call, settled, 0)
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
