"""An episode as its player holds it: calls in, observations and rewards out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from ludus.client._params import check_json, make, wrong
from ludus.protocol import errors
from ludus.protocol.actions import Call
from ludus.protocol.episodes import (
    Candidate,
    CloseParams,
    EpisodeInfo,
    EpisodeLimits,
    GetEpisodeParams,
    GradeParams,
    GradeResult,
    RewardsParams,
    RewardsResult,
    StartedEpisode,
    StepParams,
    StepResult,
    TaskRow,
    ToolSpec,
    TurnMark,
)
from ludus.protocol.methods import CLOSE, GET_EPISODE, GRADE, REWARDS, STEP
from ludus.protocol.text import replace_surrogates

if TYPE_CHECKING:
    from ludus.client.client import Client
    from ludus.protocol.content import Message
    from ludus.protocol.rewards import Reward


class Episode:
    """One run of one task. Made by `RemoteEnvironment.episode`, closed when its `async with` block is left.

    Steps are numbered and keyed here, so that a step whose answer was lost is never run twice. Several calls may be
    made at once; their steps are numbered in the order of the calls.
    """

    def __init__(self, client: Client, started: StartedEpisode, *, group: str, environment: str, fresh: bool) -> None:
        self._client = client
        self._wire = client._wire
        self._started = started
        self._group = group
        self._environment = environment
        self._key = client._nonce
        self._next = 1
        self._unacknowledged: list[StepParams] = []
        self._uncertain = not fresh
        """Whether the server must be asked for the number of the last step before the next one."""
        self._doubt_lock = asyncio.Lock()
        self._in_order = None if client._wire.capabilities.ordered else asyncio.Lock()
        self._used_at = 0.0
        self._last: StepResult | EpisodeInfo | None = None
        self._closed: EpisodeInfo | None = None

    @property
    def id(self) -> str:
        """Its id on the server."""
        return self._started.episode

    @property
    def group(self) -> str:
        """The id of the group it was opened in; an episode opened alone is a group of one."""
        return self._group

    @property
    def environment(self) -> str:
        """The name of its environment."""
        return self._environment

    @property
    def task(self) -> TaskRow:
        """The task, as far as a trainer may see it."""
        return self._started.task

    @property
    def prompt(self) -> tuple[Message, ...]:
        """What the policy is shown first."""
        return self._started.prompt

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of this episode."""
        return self._started.tools

    @property
    def seed(self) -> int:
        """The seed of its randomness."""
        return self._started.seed

    @property
    def limits(self) -> EpisodeLimits:
        """The limits that hold for it."""
        return self._started.limits

    @property
    def judges_turns(self) -> bool:
        """Whether its environment judges turns, so that calls should say theirs by `call_in_turn`."""
        return self._started.turns

    @property
    def play_url(self) -> str | None:
        """Where any MCP client plays this one episode, None on servers without a play plane.

        Whoever has it can play the episode: treat it as a secret.
        """
        play = self._started.play
        if play is None:
            return None
        return play.url or self._client.url + play.path

    @property
    def ended(self) -> bool:
        """Whether the last answer said that the episode is over."""
        return self._closed is not None or (self._last is not None and self._last.end_reason is not None)

    async def call(self, tool: str | Call, /, **arguments: Any) -> StepResult:
        """Call a tool; this is one step.

        A mistake of the policy (an unknown tool, wrong arguments, a refusal of the environment) is no exception: it is
        an observation, with `error` set in the result.

        Args:
            tool: its name, or a `Call` that holds name and arguments.
            arguments: by name, JSON-ready.

        Raises:
            EpisodeEnded: the episode was over before.
            EpisodeFailed: the environment broke; the episode is over and unscored.
            InvalidParams: the arguments cannot be written as JSON.
            TransportError: no answer. The step may have run; the next call finds out before it is made.
        """
        return await self._call(tool, arguments, None)

    async def call_in_turn(self, turn: TurnMark, tool: str | Call, /, **arguments: Any) -> StepResult:
        """`call`, as part of a turn: environments may judge the calls of one turn together.

        Args:
            turn: the turn's number, whether this is its last call, and what the policy said beside its calls.
            tool: as in `call`.
            arguments: as in `call`.

        Raises:
            InvalidParams: as in `call`, and where the turn was over before.
        """
        return await self._call(tool, arguments, turn)

    async def _call(self, tool: str | Call, arguments: dict[str, Any], turn: TurnMark | None) -> StepResult:
        if isinstance(tool, Call):
            arguments = {**tool.arguments, **arguments}
            tool = tool.tool
        if self._in_order is None:
            return await self._step(tool, arguments, turn)
        async with self._in_order:
            return await self._step(tool, arguments, turn)

    async def grade(self, answer: str) -> GradeResult:
        """Submit the policy's final message: the environment grades it and the episode ends.

        Where the environment grades nothing, the episode ends as submitted all the same, and keeps what it earned; the
        result's own `reward` is then None.

        Raises:
            EpisodeEnded: the episode was over before.
            EpisodeFailed: the environment broke; the episode is unscored.
        """
        params = make(GradeParams, episode=self.id, answer=replace_surrogates(answer), key=f"{self._key}.grade")
        result = await self._wire.request(GRADE, params)
        self._note(result.info)
        return result

    async def rewards(self, after: int = 0) -> RewardsResult:
        """The reward log, without its first `after` entries, and the total of all of it."""
        result = await self._wire.request(REWARDS, make(RewardsParams, episode=self.id, after=after))
        self._touch()
        return result

    async def info(self) -> EpisodeInfo:
        """Where the episode stands."""
        result = await self._wire.request(GET_EPISODE, GetEpisodeParams(episode=self.id))
        self._note(result.info)
        return result.info

    async def fork(self, step: int | None = None) -> Episode:
        """A new episode that stands where this one stood after `step`, or stands now.

        It must be closed, most easily by `async with await episode.fork() as branch:`.

        Raises:
            Unsupported: the environment cannot be forked.
        """
        branch = await self._client._fork(self, step)
        self._touch()
        return branch

    async def close(self) -> EpisodeInfo:
        """End the episode and free what it holds. What it has earned stands. Closing twice is no error.

        Returns:
            Where it stood at the end.
        """
        if self._closed is None:
            result = await self._wire.request(CLOSE, CloseParams(episode=self.id))
            self._closed = result.info
            self._note(result.info)
        return self._closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed is not None:
            return
        if error is not None:
            await self._client._finish(self.close())
            return
        try:
            await self.close()
        except errors.NotFound:
            self._client._forget(self)

    def __repr__(self) -> str:
        return f"<Episode {self.id} of {self._environment}, task {self.task.id}>"

    # ── steps ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _step(self, tool: str, arguments: dict[str, Any], turn: TurnMark | None) -> StepResult:
        if self._uncertain:
            await self._resolve()
        number = self._next
        for name, value in arguments.items():
            check_json(value, name)
        try:
            params = StepParams(
                episode=self._started.episode, step=number, tool=tool, arguments=arguments, turn=turn,
                key=f"{self._key}.{number}",
            )  # fmt: skip
        except ValidationError as error:
            raise wrong(error) from None
        self._next = number + 1
        try:
            result = await self._wire.request(STEP, params)
        except BaseException as error:
            self._mark_uncertain(params, error)
            raise
        self._used_at = self._client._now()
        if result.end_reason is not None:
            self._note(result)
        return result

    def _mark_uncertain(self, params: StepParams, error: BaseException) -> None:
        """A step without a result: was its number used?"""
        if isinstance(error, (errors.EpisodeFailed, errors.EpisodeEnded, errors.EpisodeNotFound)):
            self._client._forget(self)
            return
        self._uncertain = True
        if isinstance(error, (errors.TransportError, asyncio.CancelledError)):
            self._unacknowledged.append(params)

    async def _resolve(self) -> None:
        """Ask again, under their keys, for steps whose answer was lost; then learn the number of the last step."""
        async with self._doubt_lock:
            if not self._uncertain:
                return
            if self._wire.capabilities.exactly_once:
                while self._unacknowledged:
                    await self._settle(self._unacknowledged[0])
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
            # The server has answered, which is all that was missing; the next step meets whatever is wrong.
            return

    def _note(self, outcome: StepResult | EpisodeInfo) -> None:
        self._last = outcome
        self._touch()
        if outcome.end_reason is not None:
            self._client._forget(self)

    def _touch(self) -> None:
        self._used_at = self._client._now()


class Group:
    """Episodes of one task with one seed, opened by one request. Closed together when their block is left."""

    def __init__(self, client: Client, group: str, episodes: Sequence[Episode]) -> None:
        self._client = client
        self._id = group
        self._episodes = tuple(episodes)

    @property
    def id(self) -> str:
        """Its id on the server."""
        return self._id

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """Its episodes; iterating over the group and indexing it give the same."""
        return self._episodes

    def __len__(self) -> int:
        return len(self._episodes)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._episodes)

    def __getitem__(self, index: int) -> Episode:
        return self._episodes[index]

    async def score(self, candidates: Mapping[str, Candidate]) -> dict[str, Reward]:
        """Have the environment compare the episodes; see `Client.score_group`."""
        return await self._client.score_group(self._id, candidates)

    async def close(self) -> None:
        """Close every episode of the group."""
        await asyncio.gather(*(episode.__aexit__(None, None, None) for episode in self._episodes))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._client._finish(self.close())
        else:
            await self.close()

    def __repr__(self) -> str:
        return f"<Group {self._id} of {len(self)} episodes>"
