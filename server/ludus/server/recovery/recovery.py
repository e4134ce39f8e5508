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
* If the earlier process still serves, most is done before it ends (`head_start.py`).

What cannot be rebuilt: episodes whose start gave secrets, because no journal holds secrets; those of another version
of their environment, or of one that is not durable; and those with a call that may have acted on the outside.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ludus.common.heap import uncollected
from ludus.common.incidents import new_incident
from ludus.protocol.episodes import ScoreGroupResult
from ludus.protocol.errors import InfrastructureFailed, LudusError
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import RewardEntry
from ludus.protocol.text import replace_surrogates
from ludus.server.durability.journal import Ended, Journal, Scored, WorldDeleted, WorldVersioned
from ludus.server.matches.running_match import RunningMatch
from ludus.server.recovery.head_start import HeadStart
from ludus.server.recovery.histories import History, record_of
from ludus.server.recovery.matches import Seats, join_match, rebuild_match
from ludus.server.recovery.repeating import Departed, rebuild, repeat
from ludus.server.runtime.episode import Episode
from ludus.server.runtime.idempotency import IdempotencyCache
from ludus.server.runtime.seats import by_match
from ludus.server.runtime.setup import EpisodeSetup
from ludus.server.runtime.snapshots import Snapshots
from ludus.server.runtime.steps import OnEnd, StepRunner
from ludus.server.tasks.catalog import Catalog
from ludus.server.tasks.service import TaskService
from ludus.server.worlds.worlds import Worlds

log = logging.getLogger("ludus.server.recovery")

_REBUILT_IN_VAIN: Final = "could not be rebuilt after its server ended"

AT_ONCE: Final = 64
"""How many episodes are rebuilt at the same time."""


Restored = tuple[str, str, bytes, tuple[Episode, ...]]
"""The owner, the key and the digest of a start or a fork, with its episodes."""


@dataclass(slots=True)
class EarlierEpisodes:
    """The episodes of an earlier process."""

    episodes: list[Episode] = field(default_factory=list)
    running: dict[str, History] = field(default_factory=dict)
    """The histories of the episodes that had not ended, by id."""
    starts: list[Restored] = field(default_factory=list)
    forks: list[Restored] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    worlds: Sequence[WorldVersioned | WorldDeleted] = ()

    def restore_keys(
        self, starts: IdempotencyCache[tuple[Episode, ...]], forks: IdempotencyCache[Episode],
        scores: IdempotencyCache[ScoreGroupResult],
    ) -> None:  # fmt: skip
        """Restore the keys of starts, forks and group scores."""
        for score in self.scored:
            scores.restore(score.owner, score.key, score.digest, score.result)
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
        worlds: the worlds that they play in.

    Attributes:
        counts: how many episodes there were.
    """

    def __init__(
        self, catalog: Catalog, tasks: TaskService, setup: EpisodeSetup, runner: StepRunner, snapshots: Snapshots,
        worlds: Worlds,
    ) -> None:  # fmt: skip
        self._catalog = catalog
        self._tasks = tasks
        self._setup = setup
        self._runner = runner
        self._snapshots = snapshots
        self._worlds = worlds
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._begun: dict[str, int] = {}
        """How many calls the episodes have that are set up already, by id."""
        self.head_start = HeadStart(self._build, self._advance, self._tear_down)
        self.counts = RecoveryCounts()

    async def read(self, journal: Journal, kept_seconds: float) -> EarlierEpisodes:
        """Return what a journal holds, and drop from it what is no longer needed.

        Raises:
            AuthoringError: the journal cannot be read.
        """
        # Before `stored`, which returns only what `peek` did not: without the check, entries would be missing or old.
        if not journal.keeps_what_was_peeked():
            await self.head_start.forget()
        journaled = self.head_start.histories
        # A long journal is millions of objects that all stay; the collector would look at them again and again.
        with uncollected():
            journaled.add(journal.stored())
        journaled.forget_old(kept_seconds)
        histories = journaled.episodes
        earlier, groups, matches = (
            EarlierEpisodes(worlds=journaled.worlds),
            dict[str, list[Episode]](),
            dict[str, RunningMatch[Episode]](),
        )
        # Before the episodes: `rejoin` finds their worlds there.
        self._worlds.restore(journaled.worlds)
        for name, history in list(histories.items()):
            begun = self.head_start.take(history)
            episode = begun.episode if begun is not None else await self._build(history)
            if episode is None:
                del histories[name]
                continue
            join_match(matches, episode, history)
            if history.started.world is not None:
                self._worlds.rejoin(episode, history.started, running=history.ended is None)
            groups.setdefault(episode.group, []).append(episode)
            earlier.scored += history.scored
            if not history.evicted:
                earlier.episodes.append(episode)
            if episode.end_reason is None:
                earlier.running[name] = history
                self._begun[name] = begun.calls if begun is not None else 0
        for members in groups.values():
            started = histories[members[0].id].started
            if len(members) == started.size:
                restored = (started.owner, started.key, started.digest, tuple(members))
                (earlier.forks if started.fork else earlier.starts).append(restored)
        # What was not taken is torn down before episodes are set up again: both may need the same room for sandboxes.
        await self.head_start.discard()
        # The worlds as well: their entries carry a world's id in place of an episode's.
        journal.compact([*histories, *self._worlds], self._tasks.reports.restore(journaled.reports))
        # After `compact`: a crash between the two leaves parts that nothing names, and never an entry without its
        # parts.
        self._snapshots.keep_only([*earlier.running, *self._worlds])
        self.counts.running += len(earlier.running)
        if earlier.running:
            log.info("rebuilding %d running episodes from the journal", len(earlier.running))
        return earlier

    async def revive(self, episode: Episode, history: History, journal: Journal, on_end: OnEnd) -> None:
        """Bring an episode to the state that it had, or end it, and let its requests go on."""
        failure: InfrastructureFailed | None = None
        async with self._turns:
            try:
                await self._advance(episode, history, self._begun.pop(episode.id, 0), None)
            except (LudusError, Departed) as error:
                failure = failure_of(episode, _REBUILT_IN_VAIN, str(error))
        self._go_on(episode, history, failure, journal, on_end)

    def revivals(
        self, earlier: EarlierEpisodes, journal: Journal, on_end: OnEnd
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield what revives each episode that had not ended, and each match as a whole."""
        for episode in earlier.episodes:
            if episode.end_reason is None and episode.match is None:
                yield self.revive(episode, earlier.running[episode.id], journal, on_end)
        for seats in by_match([episode for episode in earlier.episodes if episode.match is not None]):
            yield self.revive_match([(seat, earlier.running[seat.id]) for seat in seats], journal, on_end)

    async def revive_match(self, seats: Seats, journal: Journal, on_end: OnEnd) -> None:
        """Bring the seats of a match to the state that they had, or end all of them, as `revive` does for one."""
        cause: str | None = None
        async with self._turns:
            try:
                await rebuild_match(self._runner, seats, self._set_up)
            except (LudusError, Departed) as error:
                cause = str(error)
        for episode, history in seats:
            self._go_on(
                episode,
                history,
                None if cause is None else failure_of(episode, _REBUILT_IN_VAIN, cause),
                journal,
                on_end,
            )

    def _go_on(
        self, episode: Episode, history: History, failure: InfrastructureFailed | None, journal: Journal, on_end: OnEnd
    ) -> None:
        """Let the requests of an episode go on that was rebuilt, or end it with the failure that kept it from that."""
        self.counts.end(departed=failure is not None)
        if failure is not None and episode.end_reason is None:
            on_end(episode, EndReason.INFRASTRUCTURE_ERROR, failure)
        elif failure is not None:
            episode.incident = failure.incident
        elif episode.end_reason is None:
            now = asyncio.get_running_loop().time()
            # The wall clock says how long it had run; `max`, because that clock may have been set back meanwhile.
            episode.began, episode.used = now - max(0.0, history.last - history.began), now
        episode.go_on(journal)

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
            self._runner.count_held(episode)
        else:
            episode.recovering = asyncio.get_running_loop().create_future()
        return episode

    async def _advance(self, episode: Episode, history: History, begun: int, upto: int | None) -> None:
        """Repeat calls of an episode, which is set up first if it has no environment yet.

        Args:
            episode: the episode.
            history: what the journal holds of it.
            begun: how many calls it has already.
            upto: how many it is to have; None for all, and for the snapshots, too.
        """
        calls = history.calls()
        snapshots = self._snapshots.enabled_for(episode.published)
        saved = self._snapshots.nearest(history.saved, len(calls) if upto is None else upto) if snapshots else None
        cls = episode.published.cls
        # A head start has the other process still running the episode: the same effect would happen twice at once.
        if cls.outside_effects and upto is not None:
            raise Departed("its environment acts on the outside")
        if episode.instance is None:
            await self._set_up(episode, history)
            # After the setup: any call after the snapshot would have to act again.
            if cls.outside_effects and (saved.step if saved is not None else 0) != len(calls):
                raise Departed("its last step has no snapshot, and its environment acts on the outside")
            await rebuild(self._runner, self._snapshots, episode, calls[:upto], saved)
        else:
            await repeat(self._runner, episode, calls[begun:upto])
        if saved is not None and upto is None:
            episode.saved = {step: snapshot for step, snapshot in history.saved.items() if step <= saved.step}

    async def _set_up(self, episode: Episode, history: History) -> None:
        started, cls = history.started, episode.published.cls
        if started.has_secrets:
            raise Departed("its start gave secrets, which no journal holds")
        # The journal holds the version as text that can be encoded (`codec.encode`), so both sides go through it.
        if started.version != replace_surrogates(cls.version):
            raise Departed(f"it began in version {started.version} of its environment")
        if started.world is not None and (episode.stay is None or episode.stay.begins_with is None):
            raise Departed(f"version {started.world_version} of its world {started.world} is gone")
        if cls.durable == "none":
            raise Departed("its environment is not durable")
        # The entry is written before such a call runs, so a call without an outcome may have acted or not.
        if cls.outside_effects and (unsettled := history.unsettled()):
            raise Departed(f"step {unsettled[0].step} may have run, and its environment acts on the outside")
        await self._setup.open(episode, started.tools)
        if episode.prompt != started.prompt:
            raise Departed("its prompt is another one", before=started.prompt, now=episode.prompt)

    async def _tear_down(self, episode: Episode) -> None:
        """Tear down an episode that this process does not go on with."""
        await self._setup.tear_down(episode, self._runner.abandon(episode))


def failure_of(episode: Episode, event: str, cause: str) -> InfrastructureFailed:
    """Log why an episode ends unscored, and return the error for its clients.

    Args:
        episode: the episode.
        event: what has happened to it, for both.
        cause: the cause, for the log.
    """
    incident = new_incident()
    log.error(
        "episode %s of environment %r %s: %s (incident %s)", episode.id, episode.published.name, event, cause, incident,
        extra={"incident": incident, "episode": episode.id},
    )  # fmt: skip
    return InfrastructureFailed(
        f"episode {episode.id} {event}; it is unscored, and the server's log has the cause under incident {incident}",
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
    entries += ended.entries
    episode.entries = entries or None
    episode.end(ended.reason)
    episode.incident = ended.incident
    episode.release()
    retired = episode.retired = asyncio.get_running_loop().create_future()
    retired.set_result(None)
