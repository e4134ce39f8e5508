"""Executes a recorded episode again, call by call, to see where it departs from what was recorded.

How this works:

* Recovery (`recovery.py`) stops at the first call that gives something else, because the episode cannot go on. Here,
  for a person who looks for the cause, each call is compared and the next one runs in any case.
* Only what an episode needs is made: its environment, threads, sandboxes and a runner of steps. There is no host, no
  journal and no transport, so nothing that happens here reaches the recorded episode.
* There is one instance at a time. To go back, a new one is set up and the calls before are repeated: an environment's
  state is made of Python objects, and only its calls make it again.
* Calls run in the order in which they settled, as in recovery. What judges and rubrics said is taken over.
* A call of one's own (`attempt`) continues from the present state. The instance is then a branch: the next recorded
  call first sets a new one up.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import EpisodeEnded, EpisodeFailed, LudusError, Unsupported
from ludus.protocol.lifecycle import EndReason
from ludus.sandbox import Sandboxes
from ludus.server.authoring.environment import Environment
from ludus.server.execution import user_code
from ludus.server.execution.threads import Workers
from ludus.server.recovery.histories import History
from ludus.server.recovery.repeating import Outcome, differences
from ludus.server.runtime.episode import Episode, StepRecord
from ludus.server.runtime.limits import ServerLimits
from ludus.server.runtime.setup import EpisodeSetup
from ludus.server.runtime.snapshots import Snapshots
from ludus.server.runtime.startup import StartupHooks
from ludus.server.runtime.steps import StepRunner
from ludus.server.runtime.task_sandboxes import open_sandboxes
from ludus.server.runtime.world_states import WorldStates
from ludus.server.tasks.catalog import Catalog, Published
from ludus.server.tasks.service import TaskService

NAMES: Final = {"content": "observation", "end_reason": "end"}
"""The fields of a result that are called otherwise here."""


@dataclass(frozen=True, slots=True)
class Departure:
    """Something that is not as it was recorded."""

    what: str
    """`prompt`, `observation`, `reward`, `error`, `end` or `outcome`."""
    before: Any
    now: Any


@dataclass(frozen=True, slots=True)
class Repeated:
    """A recorded call that was executed again."""

    past: StepRecord
    outcome: Outcome | None
    """What it gave now; None if it did not run: the episode has ended already, or nothing can repeat the call."""
    departures: tuple[Departure, ...]


class Reexecution:
    """A recorded episode that is executed again. Use it as an async context manager.

    Args:
        environment: the class, as it is now.
        history: what the journal holds of the episode.

    Raises:
        Unsupported: the episode cannot be executed again; the message says why.
        AuthoringError: the class has a mistake, or does not have the episode's environment.
    """

    def __init__(self, environment: type[Environment[Any]], history: History) -> None:
        catalog = Catalog([environment])
        self.history = history
        self.published: Published = catalog.get(history.started.environment) or next(iter(catalog.values()))
        _refuse(self.published, history)
        self._catalog = catalog
        self._limits = ServerLimits()
        self._stack = AsyncExitStack()
        self._accepted = history.calls()
        self.calls: Sequence[StepRecord] = sorted(self._accepted, key=lambda call: (call.outcome is None, call.order))
        """The recorded calls, in the order in which they are executed."""
        self.place = 0
        """How many of the recorded calls have been executed."""
        self.branched = 0
        """How many calls of one's own came after them."""
        self._episode: Episode | None = None
        self._due = iter(self._accepted)
        """The recorded calls that are not accepted yet, in the order in which they were."""
        self._entered: dict[str, StepRecord] = {}
        """Accepted calls that have not started, by key."""

    @property
    def version_differs(self) -> bool:
        """Whether the environment has another version than the recorded episode."""
        return self.published.cls.version != self.history.started.version

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._workers = Workers(self._limits.threads, self._catalog)
            stack.callback(self._workers.close)
            self._snapshots = Snapshots(None, self._workers)
            stack.callback(self._snapshots.close)
            sandboxes = Sandboxes()
            stack.push_async_callback(sandboxes.aclose)
            self._tasks = TaskService(self._catalog, self._workers, None)
            worlds = WorldStates(self._workers, self._snapshots, self._limits.world_bytes)
            self._setup = EpisodeSetup(
                self._workers, sandboxes, self._snapshots, worlds, self._limits.setup_seconds,
                self._limits.grace_seconds,
            )  # fmt: skip
            self._runner = StepRunner([self.published], self._workers, None, self._snapshots, self._end, self._limits)
            startup = StartupHooks(self._workers, self._limits.startup_seconds)
            stack.push_async_callback(startup.aclose)
            await startup.open([self.published])
            await open_sandboxes(sandboxes, [self.published])
            # Last, so that it runs first: the episode's teardown needs its sandboxes and threads.
            stack.push_async_callback(self._tear_down)
            # Only now: if anything above fails, leaving the block frees what was made until then.
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # ── time travel ────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self) -> tuple[Departure, ...]:
        """Set a new instance up, before the first call; return whether its prompt is another one.

        Raises:
            LudusError: the task is not there, or the author's setup fails.
        """
        await self._tear_down()
        started = self.history.started
        index, task = await self._tasks.choose(self.published, started.split, started.task, None, started.seed)
        # Without the limits of the wall clock: a person looks at the episode meanwhile.
        limits = started.limits.model_copy(update={"seconds": None, "idle_seconds": None})
        episode = self._episode = Episode(
            started.episode, started.group, self.published, self.published.row(started.split, index, task), task,
            started.seed, started.owner, limits, {}, asyncio.get_running_loop().time(),
        )  # fmt: skip
        episode.origin = started.origin
        self.place = self.branched = 0
        self._due, self._entered = iter(self._accepted), {}
        await self._setup.open(episode, started.tools)
        if episode.prompt == started.prompt:
            return ()
        return (Departure("prompt", started.prompt, episode.prompt),)

    async def advance(self) -> Repeated:
        """Execute the next recorded call; after a branch, first return to the recorded episode.

        Raises:
            IndexError: there is no further call.
            LudusError: the instance cannot be set up again.
        """
        if self.branched or self._episode is None:
            await self.go_to(self.place)
        episode = self._open_episode
        past = self.calls[self.place]
        self.place += 1
        if _cannot_repeat(past):
            return Repeated(past, None, ())
        if episode.end_reason is not None:
            gone = (Departure("end", None, str(episode.end_reason)),) if past.outcome is not None else ()
            return Repeated(past, None, gone)
        # Calls are accepted in the order of their numbers but run in the order in which they settled, so all up to this
        # one are accepted now and wait in `_entered`.
        while past.key not in self._entered:
            due = next(self._due)
            if not _cannot_repeat(due):
                self._entered[due.key] = self._runner.enter_again(episode, due, due.key)
        record = self._entered.pop(past.key)
        self._runner.queue(episode, record)
        outcome = await _outcome_of(record)
        return Repeated(past, outcome, departures(past.outcome, outcome))

    async def go_to(self, index: int) -> list[Repeated]:
        """Bring the episode to the state after so many of its recorded calls; return those that were executed.

        Raises:
            IndexError: there are not so many.
            LudusError: the instance cannot be set up again.
        """
        if not 0 <= index <= len(self.calls):
            raise IndexError(index)
        # There is no way back within an instance: state is not undone, it is made again.
        if self._episode is None or self.branched or index < self.place:
            await self.begin()
        return [await self.advance() for _ in range(index - self.place)]

    async def attempt(self, tool: str, arguments: dict[str, Any]) -> Outcome:
        """Make a call of one's own in the present state, on a branch that belongs to no recorded episode."""
        if self._episode is None:
            await self.go_to(self.place)
        episode = self._open_episode
        self.branched += 1
        try:
            record = self._runner.accept(episode, None, f"attempt/{secrets.token_hex(8)}", tool, arguments)
        except LudusError as error:
            return error
        return await _outcome_of(record)

    @property
    def ended(self) -> EndReason | None:
        """Why the instance has ended; None if it has not."""
        return self._episode.end_reason if self._episode is not None else None

    @property
    def tools(self) -> Sequence[str]:
        """The names of the tools that can be called now."""
        return tuple(self._open_episode.tools)

    async def saved_state(self) -> bytes | None:
        """Return what the author's `snapshot` gives now; None if the class has none, or the episode has ended."""
        instance = self._instance
        if instance is None or type(instance).snapshot is Environment.snapshot:
            return None
        offload = self.published.cls.blocking and not inspect.iscoroutinefunction(instance.snapshot)
        threads = self._workers.share(self.published.name).at(self._open_episode.home)
        state = await user_code.run(threads, offload, instance.snapshot)
        return bytes(state)

    def attributes(self) -> dict[str, Any]:
        """Return the public attributes that the author's code has set on the instance; none after the end."""
        from_server = {"task", "seed", "secrets", "sandboxes"}
        variables = vars(self._instance) if self._instance is not None else {}
        return {
            name: value for name, value in variables.items() if not name.startswith("_") and name not in from_server
        }

    @property
    def _instance(self) -> Any:
        return self._episode.instance if self._episode is not None and self._episode.end_reason is None else None

    @property
    def _open_episode(self) -> Episode:
        assert self._episode is not None, "`begin` comes first"
        return self._episode

    # ── ends ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _end(
        self, episode: Episode, reason: EndReason, failure: EpisodeFailed | None, ended_by: StepRecord | None = None
    ) -> None:
        episode.end(reason)
        self._runner.drain(episode)

    async def _tear_down(self) -> None:
        episode, self._episode = self._episode, None
        if episode is None:
            return
        running = self._runner.abandon(episode)
        await self._setup.tear_down(episode, running)


def departures(before: Outcome | None, now: Outcome) -> tuple[Departure, ...]:
    """Return what differs between two outcomes of a call; nothing if the first one is unknown."""
    return tuple(
        Departure(NAMES.get(name, name), recorded, repeated) for name, recorded, repeated in differences(before, now)
    )


async def _outcome_of(record: StepRecord) -> Outcome:
    try:
        return await record.wait()
    except LudusError as error:
        return error


def _cannot_repeat(past: StepRecord) -> bool:
    """Return whether a recorded call never ran, because the episode had ended, or was cut off by the clock."""
    if isinstance(past.outcome, StepResult):
        return past.outcome.end_reason is EndReason.TIME_LIMIT
    return isinstance(past.outcome, EpisodeEnded)


def _refuse(published: Published, history: History) -> None:
    """Raise `Unsupported` if an episode cannot, or must not, be executed again."""
    if history.started.has_secrets:
        raise Unsupported("its start gave secrets, which no journal holds, so it cannot be executed again")
    if history.started.match is not None:
        raise Unsupported(
            f"it is the seat {history.started.seat!r} of match {history.started.match}, which cannot be executed again "
            "without the steps of the other seats"
        )
    if history.started.world is not None:
        raise Unsupported(
            f"it played in version {history.started.world_version} of world {history.started.world}, which only its "
            "server has"
        )
    if published.cls.outside_effects:
        raise Unsupported("its environment acts on the outside (`outside_effects`), so its calls must not run again")
