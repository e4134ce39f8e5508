"""The client side of an episode: it sends calls and returns observations and rewards.

How this works:

* Every operation is one request over the client's `Wire`. `StartedEpisode` holds what the server returned at the start.
* Each step carries its number (1, 2, …) and an idempotency key made of the client's nonce and that number. The server
  runs a key at most once and answers a repeated request with the first result.
* Numbers are assigned in the order of the calls. A wire that keeps the order of requests may carry several steps at
  the same time; on other wires the lock `_in_order` makes an episode send one step at a time.
* A step without a result leaves the number of the last step unknown: `_mark_uncertain` notes this, and keeps the
  request if it may still reach the server (a transport error, or a canceled call).
* Before the next step, `_resolve` sends such requests again under their keys and then reads the number of the last step
  from the server. So no step runs twice and no number is skipped. Servers without keys cannot do this
  (`WireCapabilities.exactly_once` is false); the numbers then continue as if the step had run.
* A fork of the present state begins in the uncertain state, because only the server knows how many steps it has.
* An episode is registered with the client's session until it has ended. The session closes it with the client, and
  sends a request for an episode that has been unused for long; `used_at` is the time of the last answer.
* Leaving the `async with` block closes the episode. If an exception leaves the block, the close is shielded from
  cancellation and bounded in time, and its own errors are dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import ValidationError

from ludus.client._params import check_json, make, wrong
from ludus.client._session import Session
from ludus.client.transports.base import module_missing
from ludus.protocol import errors
from ludus.protocol.actions import Call
from ludus.protocol.episodes import (
    Candidate,
    CloseParams,
    EpisodeInfo,
    EpisodeLimits,
    EpisodeWorld,
    ForkParams,
    GetEpisodeParams,
    GradeParams,
    GradeResult,
    RewardsParams,
    RewardsResult,
    ScoreGroupParams,
    StartedEpisode,
    StepParams,
    StepResult,
    TaskRow,
    ToolSpec,
    TurnMark,
)
from ludus.protocol.methods import CLOSE, FORK, GET_EPISODE, GRADE, REWARDS, SCORE_GROUP, STEP
from ludus.protocol.modules import Module
from ludus.protocol.text import replace_surrogates

if TYPE_CHECKING:
    from ludus.protocol.content import Message
    from ludus.protocol.rewards import Reward

__all__ = ["Episode"]


class Episode:
    """One run of one task. `RemoteEnvironment.episode` makes it; leaving its `async with` block closes it.

    A step whose answer was lost never runs twice. Several calls may be made at once; their steps are numbered in the
    order of the calls.
    """

    def __init__(
        self, session: Session, started: StartedEpisode, *, group: str, environment: str, steps: int | None = 0
    ) -> None:
        self.id: Final[str] = started.episode
        """The episode's id on the server."""
        self.group: Final[str] = group
        """The id of the episode's group; an episode opened alone is a group of one."""
        self.environment: Final[str] = environment
        """The name of the episode's environment."""
        self.task: Final[TaskRow] = started.task
        """The task, with the fields that a trainer may see."""
        self.prompt: Final[tuple[Message, ...]] = started.prompt
        """The messages that the policy gets first."""
        self.tools: Final[tuple[ToolSpec, ...]] = started.tools
        """The tools of this episode."""
        self.seed: Final[int] = started.seed
        """The seed of the episode's randomness."""
        self.gradable: Final[bool] = started.gradable
        """Whether a final message can be graded; if not, it only ends the episode."""
        self.limits: Final[EpisodeLimits] = started.limits
        """The limits that apply to the episode."""
        self.judges_turns: Final[bool] = started.turns
        """Whether the environment judges turns; if so, use `call_in_turn` to say which turn a call belongs to."""
        self.seat: Final[str | None] = started.seat
        """The seat that the episode plays; None if its environment has no seats."""
        self.match: Final[str | None] = started.match
        """The id of its match; None if its environment has no seats."""
        self.world: Final[EpisodeWorld | None] = started.world
        """The world that it plays in, with the version that it began with; None if its world is not kept."""
        self._session = session
        self._wire = session.wire
        self._play = started.play
        self._key = session.nonce
        self._next = 1 if steps is None else steps + 1
        self._unacknowledged: list[StepParams] = []
        self._uncertain = steps is None
        """Whether the client must ask the server for the number of the last step before it sends the next one."""
        self._resolve_lock = asyncio.Lock()
        self._in_order = None if session.wire.capabilities.ordered else asyncio.Lock()
        self._ended = False
        self._closed: EpisodeInfo | None = None
        self._exited = False
        self.used_at = time.monotonic()
        """The time of the last answer, by `time.monotonic`."""
        session.add(self)

    @property
    def play_url(self) -> str | None:
        """The URL of this episode's agent endpoint, for any MCP client; None on servers without agent endpoints.

        Any client that has the URL can play the episode: treat it as a secret.
        """
        if self._play is None:
            return None
        return self._play.url or self._session.url + self._play.path

    def require_play_url(self) -> str:
        """Return the URL of this episode's agent endpoint.

        Raises:
            Unsupported: the server does not offer agent endpoints.
        """
        if (url := self.play_url) is None:
            raise module_missing(Module.PLAY, "the agent endpoint of an episode")
        return url

    @property
    def ended(self) -> bool:
        """Whether the last answer said that the episode has ended."""
        return self._ended or self._closed is not None

    async def call(self, tool: str | Call, /, **arguments: Any) -> StepResult:
        """Call a tool, which is one step, and return its result.

        A mistake of the policy (an unknown tool, wrong arguments, a refusal of the environment) raises no exception:
        the result is an observation with `error` set.

        Args:
            tool: the tool's name, or a `Call` that holds name and arguments.
            arguments: the arguments by name, JSON-ready.

        Raises:
            EpisodeEnded: the episode had already ended.
            EpisodeFailed: the environment broke; the episode has ended and is unscored.
            InvalidParams: the arguments cannot be written as JSON.
            TransportError: there was no answer. The step may have run; the next call finds out before it sends its own.
        """
        return await self._call(tool, arguments, None)

    async def call_in_turn(self, turn: TurnMark, tool: str | Call, /, **arguments: Any) -> StepResult:
        """Call a tool as part of a turn; an environment may judge the calls of one turn together. See `call`.

        Args:
            turn: the turn's number, whether this is its last call, and the text that the policy wrote next to its
                calls.
            tool: as in `call`.
            arguments: as in `call`.

        Raises:
            InvalidParams: as in `call`, and if the turn had already ended.
            Unsupported: the server does not offer the module `turns`.
        """
        if not self.judges_turns:
            offered = await self._wire.modules()
            if offered is not None and Module.TURNS not in offered:
                raise module_missing(Module.TURNS, "`turn`")
        return await self._call(tool, arguments, turn)

    async def _call(self, tool: str | Call, arguments: dict[str, Any], turn: TurnMark | None) -> StepResult:
        if isinstance(tool, Call):
            arguments = {**tool.arguments, **arguments}
            tool = tool.tool
        if self._in_order is None:
            return await self._step(tool, arguments, turn)
        # Held until the answer: on a wire without order, the next step could overtake this one.
        async with self._in_order:
            return await self._step(tool, arguments, turn)

    async def grade(self, answer: str) -> GradeResult:
        """Submit the policy's final message: the environment grades it and the episode ends.

        If the environment does not grade messages, the episode still ends as submitted and keeps what it earned; the
        `reward` of the result is then None.

        Raises:
            EpisodeEnded: the episode had already ended.
            EpisodeFailed: the environment broke; the episode is unscored.
        """
        params = make(GradeParams, episode=self.id, answer=replace_surrogates(answer), key=f"{self._key}.grade")
        result = await self._wire.request(GRADE, params)
        self._record_outcome(result.info)
        return result

    async def rewards(self, after: int = 0) -> RewardsResult:
        """Return the reward log without its first `after` entries, and the total of the whole log."""
        result = await self._wire.request(REWARDS, make(RewardsParams, episode=self.id, after=after))
        self.used_at = time.monotonic()
        return result

    async def info(self) -> EpisodeInfo:
        """Return the current state of the episode."""
        result = await self._wire.request(GET_EPISODE, GetEpisodeParams(episode=self.id))
        self._record_outcome(result.info)
        return result.info

    async def fork(self, step: int | None = None) -> Episode:
        """Return a new episode in the state that this one had after `step`, or has now if `step` is None.

        The caller must close it, most easily with `async with await episode.fork() as branch:`.

        Args:
            step: the number of a step that the server has answered; 0 is the start.

        Raises:
            Unsupported: the environment cannot be forked, or the episode has ended and its server can fork only
                episodes that run.
            InvalidParams: the episode has not finished that step.
        """
        params = make(ForkParams, episode=self.id, step=step, key=self._session.new_key())
        result = await self._session.open(FORK, params)
        self.used_at = time.monotonic()
        return Episode(self._session, result.episode, group=result.group, environment=self.environment, steps=step)

    @asynccontextmanager
    async def branch(self, count: int, step: int | None = None) -> AsyncIterator[tuple[Episode, ...]]:
        """Open `count` forks of this episode, all in one state, and close them when the block is left.

        Args:
            count: how many forks; at least 1.
            step: the number of a step that the server has answered; 0 is the start, None the last one.

        Raises:
            Unsupported, InvalidParams: as for `fork`. No fork is open then.
            CapacityError: the server has no room for that many episodes. No fork is open then.
        """
        if count < 1:
            raise errors.InvalidParams(f"{count} branches cannot be opened; ask for at least 1")
        if FORK.name not in self._wire.capabilities.methods:
            raise errors.Unsupported(f"the wire {self._wire.name!r} cannot fork episodes; use wire='channel' or 'mcp'")
        chosen = (await self.info()).steps if step is None else step
        async with AsyncExitStack() as stack:

            async def open_one() -> Episode:
                return await stack.enter_async_context(await self.fork(chosen))

            # All are awaited: a fork that opened after an error was raised would never be closed.
            opened = await asyncio.gather(*(open_one() for _ in range(count)), return_exceptions=True)
            if failed := [error for error in opened if isinstance(error, BaseException)]:
                raise failed[0]
            yield tuple(fork for fork in opened if isinstance(fork, Episode))

    async def close(self) -> EpisodeInfo:
        """End the episode and free its resources. It keeps what it has earned. Closing it twice is no error.

        Returns:
            The final state of the episode.
        """
        if self._closed is None:
            result = await self._wire.request(CLOSE, CloseParams(episode=self.id))
            self._closed = result.info
            self._record_outcome(result.info)
        return self._closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed is not None or self._exited:
            return
        self._exited = True  # if this fails, the client tries once more when it is closed
        if error is not None or self._ended:
            # The exception matters more, or all that the episode earned is known: a close only frees what it holds.
            await self._session.finish(self.close())
            return
        try:
            await self.close()
        except errors.NotFound:
            self._session.discard(self.id)

    def __repr__(self) -> str:
        return f"<Episode {self.id} of {self.environment}, task {self.task.id}>"

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _step(self, tool: str, arguments: dict[str, Any], turn: TurnMark | None) -> StepResult:
        if self._uncertain:
            await self._resolve()
        # No await until `_next` is advanced: calls at the same time take numbers in the order of the calls.
        number = self._next
        check_json(arguments)
        try:
            params = StepParams(
                episode=self.id, step=number, tool=tool, arguments=arguments, turn=turn,
                key=f"{self._key}.{number}",
            )  # fmt: skip
        except ValidationError as error:
            raise wrong(error) from None
        self._next = number + 1
        try:
            result = await self._wire.request(STEP, params)
        # A canceled call counts too: its request may have reached the server.
        except BaseException as error:
            self._mark_uncertain(params, error)
            raise
        self._record_outcome(result)
        return result

    def _mark_uncertain(self, params: StepParams, error: BaseException) -> None:
        """Note that a step has no result, so that the next one first finds out whether its number was used."""
        if isinstance(error, (errors.EpisodeFailed, errors.EpisodeEnded, errors.EpisodeNotFound)):
            self._session.discard(self.id)
            return
        self._uncertain = True
        if isinstance(error, (errors.TransportError, asyncio.CancelledError)):
            self._unacknowledged.append(params)

    async def _resolve(self) -> None:
        """Send steps without an answer again under their keys, then read the number of the last step."""
        async with self._resolve_lock:
            # Another call has settled it while this one waited for the lock.
            if not self._uncertain:
                return
            if self._wire.capabilities.exactly_once:
                while self._unacknowledged:
                    await self._settle(self._unacknowledged[0])
                    # Only after the answer: if this is canceled, the next `_resolve` sends the step again.
                    self._unacknowledged.pop(0)
                self._next = (await self.info()).steps + 1
            self._unacknowledged.clear()
            self._uncertain = False

    async def _settle(self, params: StepParams) -> None:
        try:
            await self._wire.request(STEP, params)
        except errors.TransportError:
            raise
        except errors.LudusError:
            # Any answer settles the step. If something is wrong with the episode, the next step reports it.
            return

    def _record_outcome(self, outcome: StepResult | EpisodeInfo) -> None:
        self.used_at = time.monotonic()
        if outcome.end_reason is not None:
            self._ended = True
            self._session.discard(self.id)


class Group:
    """Episodes of one task with one seed, opened by one request. Leaving the `async with` block closes all of them."""

    def __init__(self, session: Session, group: str, episodes: Sequence[Episode]) -> None:
        self.id: Final[str] = group
        """The group's id on the server."""
        self.episodes: Final[tuple[Episode, ...]] = tuple(episodes)
        """The episodes; iterating over the group or indexing it gives the same ones."""
        self._session = session

    def __len__(self) -> int:
        return len(self.episodes)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.episodes)

    def __getitem__(self, index: int) -> Episode:
        return self.episodes[index]

    async def score(self, candidates: Mapping[str, Candidate]) -> dict[str, Reward]:
        """Ask the environment to compare the episodes; see `Client.score_group`."""
        params = make(ScoreGroupParams, group=self.id, candidates=dict(candidates), key=self._session.new_key())
        return (await self._session.wire.request(SCORE_GROUP, params)).rewards

    async def close(self) -> None:
        """Close every episode of the group."""
        await asyncio.gather(*(episode.__aexit__(None, None, None) for episode in self.episodes))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._session.finish(self.close())
        else:
            await self.close()

    def __repr__(self) -> str:
        return f"<Group {self.id} of {len(self)} episodes>"
