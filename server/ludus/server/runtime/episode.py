"""The state of one episode, its steps and its open turns; and the episodes that a host holds."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ludus.protocol.content import Message, TextBlock
from ludus.protocol.episodes import (
    EpisodeInfo,
    EpisodeLimits,
    NoiseKind,
    StartParams,
    StepError,
    StepResult,
    TaskRow,
    ToolSpec,
    TurnMark,
)
from ludus.protocol.errors import EpisodeEnded, EpisodeNotFound, LudusError
from ludus.protocol.lifecycle import EVENT_OF_REASON, EndReason, EpisodeStatus, advance
from ludus.protocol.methods import Scope
from ludus.protocol.rewards import Reward, RewardEntry, total
from ludus.sandbox import EpisodeSandboxes
from ludus.server.auth.principal import Principal
from ludus.server.auth.quotas import Account
from ludus.server.authoring.environment import Toolset
from ludus.server.authoring.output_schema import OutputSchema
from ludus.server.authoring.tools import EndedTool, Tool, ToolBase
from ludus.server.durability.journal import Journal, OnDurable, Saved, Started
from ludus.server.execution.clock import Clock
from ludus.server.execution.threads import Home
from ludus.server.rewards.attempt import Attempt, TakenStep, TakenTurn
from ludus.server.runtime.kept_episodes import KeptEpisodes, bytes_of_reward
from ludus.server.tasks.catalog import SUBMIT_SPEC, Published

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from ludus.server.matches.running_match import RunningMatch
    from ludus.server.runtime.limits import ServerLimits
    from ludus.server.runtime.world_versions import Stay, Version

ENDED_BYTES: Final = 4096
"""The memory of an episode that has ended without its calls, its prompt and its rewards, rounded up."""

OUTCOME_BYTES: Final = 2560
"""The memory of an outcome with a reward, besides what limits count for its call, rounded up."""

_UNSCORED = {
    EndReason.ENVIRONMENT_ERROR: "the environment failed",
    EndReason.INFRASTRUCTURE_ERROR: "the infrastructure failed",
    EndReason.EXPIRED: "the episode expired before its end",
    EndReason.SERVER_STOPPED: "the server stopped before the episode's end",
}


@dataclass(slots=True)
class OpenTurn:
    """A turn that is not judged yet. Its calls have consecutive numbers."""

    number: int | None
    """The client's number of the turn; None for a call without a mark, which is a turn by itself."""
    first: int
    last: int
    text: str = ""
    running: int = 0
    """Calls that have not finished."""
    over: bool = False
    """Whether the turn has ended, so that no further call belongs to it."""
    steps: list[TakenStep] = field(default_factory=list)

    def taken(self) -> TakenTurn:
        """Return what checks see of the turn."""
        return TakenTurn(self.number, self.text, tuple(sorted(self.steps, key=lambda step: step.number)))


class StepRecord:
    """One accepted step, or the grade (`tool` is None): the call and its outcome."""

    __slots__ = (
        "_callbacks", "alone", "answered", "arguments", "clock", "deadline", "digest", "final_version", "key", "logged",
        "noise", "number", "order", "original_result", "outcome", "past", "refused", "saved", "sent", "size", "task",
        "tool", "trace", "turn", "turn_rewards", "watchdog", "withheld",
    )  # fmt: skip

    def __init__(
        self, number: int, key: str, tool: str | None, arguments: dict[str, Any], turn: TurnMark | None = None
    ) -> None:
        self.number = number
        self.key = key
        self.tool = tool
        self.arguments = arguments
        self.turn = turn
        self.trace: Context | None = None
        """The context of the request, as the parent of the call's span; None without tracing."""
        self.digest: bytes | None = None
        """The digest of large arguments of a refused call; `arguments` is then empty."""
        self.refused: StepError | None = None
        """The error with which the call is refused before its arguments are read."""
        self.size = 0
        """The memory that the record takes, in bytes."""
        self.outcome: StepResult | LudusError | None = None
        self.answered = False
        """Whether the outcome may be sent: it is durable, if there is a journal."""
        self.withheld: LudusError | None = None
        """Why the outcome cannot be sent yet, if the journal has refused it; it may become durable later."""
        self.original_result: StepResult | None = None
        """The tool's result, if noise changed the one that is reported."""
        self.noise: NoiseKind | None = None
        self.turn_rewards: tuple[RewardEntry, ...] = ()
        """The rewards of the turns that ended with it."""
        self.logged: tuple[RewardEntry, ...] = ()
        """What it added to the reward log."""
        self.order = 0
        """Its place among the calls that have settled; calls that overlap may settle in another order than begun."""
        self.sent: bytes | None = None
        """The outcome as JSON, from its encoding for the journal until it is answered."""
        self.alone = False
        """Whether no other call may start until it has settled: a snapshot of the state is taken."""
        self.saved: Saved | None = None
        """The snapshot of the state after it."""
        self.final_version: Version | None = None
        """The state of the world that it left, if it ends the episode well."""
        self.past: StepRecord | None = None
        """The earlier call that this one repeats, whose judged rewards it takes over; dropped when it settles."""
        self.task: asyncio.Task[None] | None = None
        self.deadline = 0.0
        """When the call must have finished, in seconds of the event loop's clock; set when the call starts."""
        self.watchdog: asyncio.TimerHandle | None = None
        """Settles the record at the deadline."""
        self.clock: Clock | None = None
        """Moves the deadline while the call waits for a thread; None until something asks for it."""
        self._callbacks: list[Callable[[], None]] | None = None

    def settle(self, outcome: StepResult | LudusError, when_durable: Callable[[OnDurable], None] | None = None) -> None:
        """Set the outcome, once, and wake all waiters as soon as it is durable; at once without a journal."""
        self.outcome = outcome
        # The record outlives the episode. The clock refers to the episode, and `past` to a chain of earlier records.
        self.clock = self.past = self.trace = None
        if self.watchdog is not None:
            self.watchdog.cancel()
            self.watchdog = None
        if when_durable is not None:
            when_durable(self._answer)
            return
        self.answered = True
        # Taken before they are called: a callback may add another one, which then is called at once.
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()

    def ask_again(self, when_durable: Callable[[OnDurable], None]) -> None:
        """Find out whether an outcome that was withheld may be sent meanwhile."""
        self.withheld = None
        when_durable(self._answer)

    @property
    def answer(self) -> StepResult | LudusError | None:
        """What to answer: the outcome, or the error that keeps it from being sent for now."""
        return self.withheld or self.outcome

    def _answer(self, error: LudusError | None) -> None:
        self.withheld = error
        self.answered = error is None
        # After a refusal this may be called again (`ask_again`), for the waiters that have come since.
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()
        self.sent = None

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call `callback` when there is an answer, or now if there is one already. The callback must not raise."""
        if self.answered or self.withheld is not None:
            callback()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    async def wait(self) -> StepResult:
        """Wait for the outcome and return it. Canceling the wait does not affect the step.

        Raises:
            LudusError: the outcome is an error, or it cannot be sent for now.
        """
        # A loop, because between the wake-up and this line a repeat may have asked the journal again.
        while not self.answered and self.withheld is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_settled(partial(_wake, waiter))
            await waiter
        answer = self.withheld or self.outcome
        if isinstance(answer, LudusError):
            # Raise a copy, because raising one object from several tasks would mix up their tracebacks.
            raise type(answer)(answer.message, **answer.data)
        assert answer is not None
        return answer


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """What the agent endpoint and ORS show of an episode."""

    id: str
    environment: str
    row: TaskRow
    seed: int
    prompt: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    """The tools, with `submit_answer` if the environment grades answers."""
    status: EpisodeStatus
    end_reason: EndReason | None
    incident: str | None


class Episode:
    """The state of one run of one task.

    `EpisodeSetup` prepares it before the store holds it, so it is visible to nothing else until it is ready.
    """

    __slots__ = (
        "account", "active", "asked", "attempt", "began", "end_reason", "entries", "graded", "group", "held", "home",
        "id", "incident", "instance", "journal", "keys", "limits", "match", "match_id", "origin", "owner", "pending",
        "pending_bytes", "prompt", "published", "queue", "records", "recovering", "retired", "row", "sandboxes",
        "saved", "seat", "secrets", "seed", "shown_chars", "specs", "status", "stay", "task", "tools", "toolsets",
        "turns", "used",
    )  # fmt: skip

    def __init__(
        self, id: str, group: str, published: Published, row: TaskRow, task: Any, seed: int, owner: str,
        limits: EpisodeLimits, secrets: Mapping[str, str], now: float,
    ) -> None:  # fmt: skip
        self.id = id
        self.group = group
        self.published = published
        self.row = row
        self.task = task
        self.seed = seed
        self.owner = owner
        self.limits = limits
        self.secrets: Mapping[str, str] | None = secrets or None
        self.instance: Any = None
        self.home = Home(users=1)
        """The thread of its methods; all episodes of a match have the same one."""
        self.seat: str | None = None
        """The seat that it plays; None if its environment has no seats."""
        self.match: RunningMatch[Episode] | None = None
        """Its match, while it runs; None without seats."""
        self.match_id: str | None = None
        """The id of its match, also after the end."""
        self.stay: Stay | None = None
        """Its stay in a world; None if its world is not kept."""
        self.toolsets: tuple[Toolset, ...] = ()
        self.sandboxes: EpisodeSandboxes | None = None
        self.attempt: Attempt | None = None
        """The attempt as a rubric saw it last; its steps are not described again."""
        self.prompt: tuple[Message, ...] = ()
        self.tools: Mapping[str, ToolBase] = published.tools
        self.specs: tuple[ToolSpec, ...] = published.specs
        self.status = EpisodeStatus.RUNNING
        self.end_reason: EndReason | None = None
        self.incident: str | None = None
        self.asked = 0
        """The number of the last accepted step; the next one is one more."""
        self.records: list[StepRecord] | None = None
        self.keys: dict[str, StepRecord] | None = None
        self.graded: StepRecord | None = None
        self.entries: list[RewardEntry] | None = None
        self.queue: deque[StepRecord] | None = None
        self.active: list[StepRecord] | None = None
        """Records whose tools run now."""
        self.pending = 0
        """Calls that are not settled, including repeats that wait."""
        self.pending_bytes = 0
        """The memory of their arguments, in bytes."""
        self.account: Account | None = None
        """What its owner uses; None before it has its place."""
        self.held = 0
        """The memory of settled calls and their outcomes, in bytes."""
        self.shown_chars = 0
        self.turns: Sequence[OpenTurn] = ()
        """Turns that are not judged yet; empty if the environment does not judge turns."""
        self.journal: Journal | None = None
        """Where its calls are written; None while they are being repeated, and if they are not kept."""
        self.recovering: asyncio.Future[None] | None = None
        """Done when an episode of an earlier process has its state again; None if it has it. Calls wait for it."""
        self.saved: dict[int, Saved] | None = None
        """The snapshots of its state, by the number of the step after which they were taken."""
        self.origin: str | None = None
        """The `noise_key` of the episode that it was forked from."""
        self.began = now
        self.used = now
        self.retired: asyncio.Future[None] | None = None
        """Done when the environment has been torn down; None while the episode runs."""

    async def recovered(self) -> None:
        """Wait until an episode of an earlier process has its state again."""
        if self.recovering is not None:
            await asyncio.wait([self.recovering])

    def go_on(self, journal: Journal | None) -> None:
        """Let the requests of an episode that was rebuilt, or that could not be, go on."""
        # Cleared first: the calls that waited go through `accept`, which would let them wait again.
        recovering, self.recovering = self.recovering, None
        self.journal = journal if self.end_reason is None else None
        if recovering is not None and not recovering.done():
            recovering.set_result(None)

    def log(self, entries: Iterable[RewardEntry]) -> None:
        """Add entries to the reward log."""
        self.entries = [] if self.entries is None else self.entries
        self.entries += entries

    def end(self, reason: EndReason) -> None:
        """Set the end reason and the status it implies."""
        self.status = advance(self.status, EVENT_OF_REASON[reason])
        self.end_reason = reason

    def release(self) -> None:
        """Drop everything that only a running episode needs."""
        self.instance = self.task = self.sandboxes = self.attempt = None
        self.toolsets = self.turns = ()
        if self.tools is not self.published.tools:  # those of the task refer to what their author made for it
            shared = self.published.tools
            self.tools = {
                name: tool if shared.get(name) is tool else EndedTool(tool) for name, tool in self.tools.items()
            }
        self.home.leave()
        if self.match is not None:
            self.match.release()
            self.match = None

    def drop_calls(self) -> None:
        """Drop all calls, which are repeated in a new instance."""
        self.records = self.keys = self.graded = self.entries = self.queue = self.active = None
        self.asked = self.pending = self.pending_bytes = self.held = self.shown_chars = 0
        self.turns = ()

    def renew(self, task: Any) -> None:
        """Make room for a new instance, after the last one was released."""
        self.task, self.home = task, Home(users=1)
        self.tools, self.specs = self.published.tools, self.published.specs

    def forget_calls(self) -> None:
        """Drop the calls and the rewards of an episode that nothing finds any more; its start may be repeated still."""
        self.records = self.keys = self.graded = self.entries = self.secrets = None

    @property
    def kept_bytes(self) -> int:
        """About how many bytes the episode holds once it has ended."""
        size = ENDED_BYTES + self.held + self.pending_bytes
        size += OUTCOME_BYTES * (len(self.records or ()) + (self.graded is not None))
        for message in self.prompt:
            for block in message.content:
                # Not `len`: one character takes up to four bytes in memory.
                size += (block.text if isinstance(block, TextBlock) else block.data).__sizeof__()
        for entry in self.entries or ():
            size += bytes_of_reward(entry.reward)
        return size

    @property
    def has_teardown(self) -> bool:
        """Whether something must be freed at the end: by the class, or because contexts were entered."""
        entered = self.instance is not None and self.instance._contexts is not None
        return self.published.has_teardown or entered

    @property
    def noise_key(self) -> str:
        """The key for drawing noise: the seed, or the id if noise is per episode; a fork has its origin's key."""
        # The calls that a fork repeats from its origin must meet the same noise again.
        if self.origin is not None:
            return self.origin
        noise = self.published.cls.noise
        key = self.id if noise is not None and noise.per_episode else str(self.seed)
        return key if self.seat is None else f"{key}/{self.seat}"

    def hold_clock(self, seconds: float) -> None:
        """Leave out a time in which the server refused the calls of the episode."""
        self.began += seconds
        self.used += seconds

    @property
    def deadline(self) -> float | None:
        """When the time limit passes, in seconds of the event loop's clock; None without a limit."""
        return None if self.limits.seconds is None else self.began + self.limits.seconds

    def overdue(self, now: float) -> EndReason | None:
        """Return the limit of time that has passed, while no call runs; None if there is none."""
        # A running call ends at its own deadline (`StepRunner._overdue`), which counts the episode's limit as well.
        if self.active or self.recovering is not None:
            return None
        if self.deadline is not None and now >= self.deadline:
            return EndReason.TIME_LIMIT
        # Without a limit, `or now` makes the comparison false: nothing is idle for longer than the clock has run.
        return EndReason.EXPIRED if now - self.used > (self.limits.idle_seconds or now) else None

    @property
    def reward(self) -> Reward:
        """The total reward; unscored if the platform ended the episode or its environment failed."""
        cause = _UNSCORED.get(self.end_reason) if self.end_reason is not None else None
        if cause is not None:
            return Reward.unscored(cause if self.incident is None else f"{cause} (incident {self.incident})")
        return total(entry.reward for entry in self.entries or ())

    @property
    def busy(self) -> bool:
        """Whether a call of the episode runs."""
        return bool(self.active)

    def join(self, match: RunningMatch[Episode], seat: str) -> None:
        """Make it the episode of a seat of a match."""
        self.match, self.match_id, self.seat = match, match.id, seat
        match.episodes[seat] = self
        self.home = match.home
        match.home.users += 1

    def started(self, params: StartParams, key: str, digest: bytes, size: int, *, fork: bool) -> Started:
        """Return the journal's entry of its start.

        Args:
            params: the request that started it.
            key: the key of that request, or of the fork.
            digest: the digest of the request's params.
            size: the number of episodes that the request started.
            fork: whether the request was a fork.
        """
        return Started(
            episode=self.id, group=self.group, size=size, environment=self.published.name,
            version=self.published.cls.version, split=self.row.split, task=self.row.id, seed=self.seed,
            owner=self.owner, limits=self.limits, tools=params.tools, prompt=self.prompt, key=key,
            digest=digest, fork=fork, origin=self.origin, has_secrets=bool(params.secrets),
            match=self.match_id, seat=self.seat, opponent=params.opponent,
            played=() if self.match is None else tuple(self.match.episodes),
            world=None if self.stay is None else self.stay.world.id,
            world_version=0 if self.stay is None else self.stay.version,
        )  # fmt: skip

    def ended_error(self) -> EpisodeEnded:
        """Return the error for a call after the end."""
        return EpisodeEnded(
            f"episode {self.id} has ended ({self.end_reason}); start a new one",
            episode=self.id,
            endReason=str(self.end_reason),
        )

    def info(self, *, rewards: bool) -> EpisodeInfo:
        """Return the episode's public status, with its reward only if `rewards` is true."""
        on_move = None
        if self.match is not None and self.seat is not None and self._has_moves:
            on_move = self.match.on_move(self.seat)
        return EpisodeInfo(
            episode=self.id,
            group=self.group,
            environment=self.published.name,
            task=self.row,
            seed=self.seed,
            status=self.status,
            end_reason=self.end_reason,
            steps=self.asked,
            reward=self.reward if rewards else None,
            incident=self.incident,
            seat=self.seat,
            match=self.match_id,
            on_move=on_move,
            moves=self.match.moves[self.seat or ""] if self.match is not None and on_move is not None else None,
            world=None if self.stay is None else self.stay.info,
        )

    @property
    def _has_moves(self) -> bool:
        return any(isinstance(tool, Tool) and tool.move for tool in self.tools.values())

    def view(self) -> EpisodeView:
        """Return what the agent sees."""
        tools = (*self.specs, SUBMIT_SPEC) if self.published.gradable else self.specs
        return EpisodeView(
            self.id, self.published.name, self.row, self.seed, self.prompt, tools,
            self.status, self.end_reason, self.incident,
        )  # fmt: skip


Call = Callable[[Episode, StepRecord], Awaitable[StepResult]]
"""Runs one call of an episode and returns its result. An exception means that the environment has failed."""


class EpisodeStore:
    """Holds open and recently closed episodes, and finds them by id, for principals that may see them.

    Args:
        journal: forgets what the store forgets.
        limits: how long closed episodes are kept, and how many bytes of ended ones.
        on_archive: called with each episode that is closed.
    """

    def __init__(self, journal: Journal | None, limits: ServerLimits, on_archive: Callable[[Episode], None]) -> None:
        self._journal = journal
        self._on_archive = on_archive
        self._result_ttl_seconds = limits.result_ttl_seconds
        self.ended = KeptEpisodes(limits.ended_bytes)
        """The memory of the episodes that have ended."""
        self.short_of_room = False
        """Whether episodes were forgotten for lack of room since the host last looked."""
        self._loop = asyncio.get_running_loop()
        self._living: dict[str, Episode] = {}
        self._closed: OrderedDict[str, tuple[float, Episode]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._living) + len(self._closed)

    def __contains__(self, episode_id: str) -> bool:
        return episode_id in self._living or episode_id in self._closed

    def __iter__(self) -> Iterator[Episode]:
        """Iterate over the episodes that are not closed, whether or not they have ended."""
        # A copy, because callers end, archive and evict episodes while they iterate.
        return iter(list(self._living.values()))

    def everything(self) -> list[Episode]:
        """Return all episodes that are held, the closed ones included."""
        return [*self._living.values(), *(episode for _, episode in self._closed.values())]

    def add(self, episode: Episode) -> None:
        """Add an episode."""
        self._living[episode.id] = episode

    def find(self, episode_id: str) -> Episode:
        """Return the episode with an id; the call counts as use of the episode.

        Raises:
            EpisodeNotFound: there is no such episode.
        """
        episode = self._living.get(episode_id)
        if episode is None:
            return self._find_closed(episode_id)
        episode.used = self._loop.time()
        return episode

    def output_of(self, episode_id: str, tool: str) -> OutputSchema | None:
        """Return the output schema of a tool of an episode; None if it has none, or there is no such tool or episode.

        With noise there is none: it would show which observations were changed.
        """
        episode = self._living.get(episode_id)
        if episode is None and episode_id in self._closed:
            episode = self._closed[episode_id][1]
        definition = None if episode is None else episode.tools.get(tool)
        return (
            None
            if episode is None or definition is None or episode.published.cls.noise is not None
            else definition.output
        )

    def _find_closed(self, episode_id: str) -> Episode:
        closed = self._closed.get(episode_id)
        if closed is None:
            raise _not_found(episode_id)
        return closed[1]

    def runs(self, episode_id: str) -> bool:
        """Return whether an episode is here and has not ended. Unlike `find`, the call does not count as use."""
        episode = self._living.get(episode_id)
        return episode is not None and episode.end_reason is None

    def get_owned(self, episode_id: str, principal: Principal) -> Episode:
        """Return the episode with an id if the principal owns it or is an admin; for others it does not exist.

        Raises:
            EpisodeNotFound: there is no such episode for the principal.
        """
        episode = self._living.get(episode_id)
        if episode is None:
            episode = self._find_closed(episode_id)
        else:
            episode.used = self._loop.time()
        if episode.owner != principal.name and Scope.ADMIN not in principal.scopes:
            raise _not_found(episode_id)
        return episode

    def restore(self, episodes: Iterable[Episode]) -> None:
        """Add the episodes of an earlier process; those that had ended go to the archive."""
        for episode in episodes:
            self.add(episode)
            if episode.end_reason is not None:
                self.count_ended(episode)
                self.archive(episode)

    def count_ended(self, episode: Episode) -> None:
        """Count the memory of an episode that has ended, and forget others if it is too much now."""
        if episode.id in self._living:
            self.ended.add(episode.id, episode.owner, episode.kept_bytes)
            self._make_room()

    def archive(self, episode: Episode) -> None:
        """Keep a closed episode for a short time, for repeated requests only."""
        if self._living.pop(episode.id, None) is None:
            return
        # A closed episode is kept for `result_ttl_seconds`; its secrets are not.
        episode.secrets = None
        self._on_archive(episode)
        self.ended.close(episode.id)
        self._closed[episode.id] = (self._loop.time() + self._result_ttl_seconds, episode)

    def evict(self, now: float) -> None:
        """Drop archived episodes whose time to live has passed, and those for which there is no room."""
        # The first one closed is the first to go, because all are kept for the same time.
        while self._closed and next(iter(self._closed.values()))[0] <= now:
            self._evict(next(iter(self._closed)))
        self._make_room()

    def _make_room(self) -> None:
        while (name := self.ended.surplus(self._may_go)) is not None:
            self._evict(name)
            self.short_of_room = True

    def _may_go(self, name: str) -> bool:
        """Return whether an episode that has ended has been torn down."""
        episode = self._living.get(name)
        return episode is None or (episode.retired is not None and episode.retired.done())

    def _evict(self, name: str) -> None:
        episode = self._living.pop(name, None)
        if episode is not None:
            self._on_archive(episode)
        else:
            _, episode = self._closed.pop(name)
        episode.forget_calls()
        self.ended.remove(name)
        if self._journal is not None:
            self._journal.evict(name)


def _not_found(episode_id: str) -> EpisodeNotFound:
    excerpt = episode_id[:64]
    return EpisodeNotFound(
        f"this server does not know the episode {excerpt!r}: it ended or was closed a while ago and its result is no "
        "longer kept, it belongs to another token, or it was started on another server (behind a load balancer, "
        "requests must reach the server that started the episode)",
        episode=excerpt,
    )
