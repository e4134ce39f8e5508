"""Undoes calls that a journal has refused: their episodes are executed again without them.

How this works:

* When a journal cannot be written for long, requests whose calls have run are refused (`rows.py`). For their
  clients, these calls have not run, and may be made again. So they are undone: their entries are dropped before they
  are written, and a new instance of the environment gets the calls that are durable, as after a restart
  (`repeating.py`). Requests for the episode wait meanwhile, and are refused as long as the journal refuses.
* It begins when the journal can be written again, because a setup may need the same disk.
* What cannot be undone ends unscored: a call that has acted on the outside, and a call of a match, whose other seats
  may have seen it.
* An episode that ended with a refused call stays as it is. Its end, and what it earned, are written as soon as there is
  room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from ludus.protocol.errors import InfrastructureFailed, LudusError, ShuttingDown
from ludus.protocol.lifecycle import EndReason
from ludus.server.durability.journal import Journal, Undone
from ludus.server.recovery.recovery import RecoveryCounts, failure_of
from ludus.server.recovery.repeating import Departed, rebuild
from ludus.server.runtime.episode import Episode, EpisodeStore, StepRecord
from ludus.server.runtime.setup import EpisodeSetup
from ludus.server.runtime.snapshots import Snapshots
from ludus.server.runtime.steps import OnEnd, StepRunner

_REFUSED_IN_VAIN: Final = "had run a call when the server could not write its journal, and that cannot be undone"

AT_ONCE: Final = 64
"""How many episodes are executed again at the same time."""


class Undoing:
    """Brings episodes back to the state that their journal has.

    Args:
        store: holds the episodes.
        runner: repeats their calls.
        setup: sets new instances up.
        snapshots: restores their states.
        journal: what refuses.
        counts: counts the episodes that are rebuilt.
        spawn: starts a task that the host owns.
        on_end: ends an episode.
    """

    def __init__(
        self, store: EpisodeStore, runner: StepRunner, setup: EpisodeSetup, snapshots: Snapshots, journal: Journal,
        counts: RecoveryCounts, spawn: Callable[[Coroutine[Any, Any, None]], object], on_end: OnEnd,
    ) -> None:  # fmt: skip
        self._store = store
        self._runner = runner
        self._setup = setup
        self._snapshots = snapshots
        self._journal = journal
        self._counts = counts
        self._spawn = spawn
        self._on_end = on_end
        self._turns = asyncio.Semaphore(AT_ONCE)

    def undo(self, refusal: ShuttingDown) -> dict[str, Undone]:
        """Undo the refused calls of all episodes, and return which entries must not be written."""
        undone: dict[str, Undone] = {}
        for episode in self._store:
            if episode.end_reason is not None or episode.recovering is not None or episode.journal is None:
                continue
            if any(record.withheld is not None for record in episode.records or ()):
                if episode.match is not None or episode.published.cls.outside_effects:
                    self._on_end(
                        episode, EndReason.INFRASTRUCTURE_ERROR, failure_of(episode, _REFUSED_IN_VAIN, refusal.message)
                    )
                else:
                    undone[episode.id] = self._begin(episode, refusal)
        return undone

    def _begin(self, episode: Episode, refusal: ShuttingDown) -> Undone:
        records = episode.records or []
        upto = max((index for index, record in enumerate(records, 1) if record.answered), default=0)
        undone = Undone(
            asked=frozenset(record.key for record in records[upto:]),
            settled=frozenset(record.key for record in records if not record.answered),
            upto=upto,
        )
        running = self._runner.withdraw(episode, refusal)
        calls = [record if record.answered else _without_outcome(record) for record in records[:upto]]
        episode.recovering = asyncio.get_running_loop().create_future()
        episode.journal = None
        episode.drop_calls()
        episode.saved = {step: saved for step, saved in (episode.saved or {}).items() if step <= upto} or None
        self._counts.running += 1
        self._spawn(self._rebuild(episode, running, calls))
        return undone

    async def _rebuild(
        self, episode: Episode, running: Sequence[asyncio.Task[None]], calls: Sequence[StepRecord]
    ) -> None:
        failure: InfrastructureFailed | None = None
        loop = asyncio.get_running_loop()
        age, prompt, tools, task = loop.time() - episode.began, episode.prompt, tuple(episode.tools), episode.task
        await self._setup.tear_down(episode, running)
        await self._until_written()
        async with self._turns:
            episode.renew(task)
            saved = self._snapshots.nearest(episode.saved, len(calls))
            try:
                await self._setup.open(episode, tools)
                if episode.prompt != prompt:
                    raise Departed("its prompt is another one", before=prompt, now=episode.prompt)
                await rebuild(self._runner, self._snapshots, episode, calls, saved)
            except (LudusError, Departed) as error:
                failure = failure_of(episode, _REFUSED_IN_VAIN, str(error))
        self._counts.end(departed=failure is not None)
        if failure is None:
            episode.began, episode.used = loop.time() - age, loop.time()
        elif episode.end_reason is None:
            self._on_end(episode, EndReason.INFRASTRUCTURE_ERROR, failure)
        episode.go_on(self._journal)

    async def _until_written(self) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._journal.when_written(partial(_wake, written))
        await written


def _wake(written: asyncio.Future[None], _: LudusError | None) -> None:
    if not written.done():
        written.set_result(None)


def _without_outcome(record: StepRecord) -> StepRecord:
    """Return a call before the last durable one, which runs again with whatever outcome."""
    again = StepRecord(record.number, record.key, record.tool, record.arguments, record.turn)
    again.refused, again.digest = record.refused, record.digest
    return again
