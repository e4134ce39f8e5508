"""Environments that several agents play together, each in its own seat.

How this works:

* A `Match` is what the agents share: the board, whose move it is, who won. The server makes one for each match.
* A `SeatedEnvironment` is one seat: its prompt, its tools and what it sees. The server makes an instance for each seat
  that an agent takes, and gives it `seat` and `match`.
* To a client, each seat is an episode like any other, with steps, rewards and an end of its own.
* Calls of one match never run at the same time, so the code of a match needs no locks.
* Seats that no agent takes are played by the match itself (`Match.act`), as soon as it is their move.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from ludus.protocol.content import Content
from ludus.protocol.rewards import Reward
from ludus.protocol.tasks import Task
from ludus.server.authoring.environment import Environment
from ludus.server.authoring.results import read_reward
from ludus.server.authoring.tools import StepContext, tool
from ludus.server.execution.errors import ToolError

TaskT = TypeVar("TaskT", bound=Task)

WAIT_TOOL: Final = "wait"
"""The name of the tool that waits for other seats."""

_SCRIPTED_MOVES: Final = 10_000
"""The most calls of `Match.act` between two moves of agents."""

_MARGIN: Final = 0.1
"""The part of a call's time that a wait leaves for the rest of the call."""


class Table(Protocol):
    """What the runtime gives a match: waiting while the calls of other seats run."""

    async def wait(self, environment: SeatedEnvironment[Any, Any], deadline: float) -> None:
        """Wait until `environment.ready()`, the end of the match, or the deadline in seconds of the event loop."""
        ...


class Match(Generic[TaskT]):
    """The base class of what the seats of one match share. Its methods are plain `def`.

    Before `setup` runs, the instance has `id`, `task` (with its private fields), `seed`, `played` and `opponent`.
    """

    seats: ClassVar[Sequence[str]] = ()
    """The names of the seats, at least two. A start that names no seat takes the first."""
    opponents: ClassVar[Sequence[str]] = ()
    """The strengths of the scripted opponents that `act` can play, the weakest first; empty if there are none, so that
    all seats must be started."""
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """The rewards of the loser and the winner when a seat leaves; see `left`."""

    id: str
    task: TaskT
    seed: int
    played: frozenset[str]
    """The seats that agents have taken."""
    opponent: str
    """The strength of the scripted opponents; empty if all seats are played."""

    def __init__(self) -> None:
        self.to_move: str | None = None
        """The seat whose move it is; None if every seat may move."""
        self.rewards: Mapping[str, Reward] | None = None
        """The rewards by seat, once the match has ended."""
        self._rng: random.Random | None = None
        self._acting = False
        self._table: Table | None = None

    @property
    def rng(self) -> random.Random:
        """The random generator of the match, made from its seed. `SeatedEnvironment.rng` is another for each seat."""
        if self._rng is None:
            self._rng = random.Random(self.seed)
        return self._rng

    @property
    def finished(self) -> bool:
        """Whether the match has ended."""
        return self.rewards is not None

    def setup(self) -> None:
        """Prepare the match; it runs once, before the `setup` of the seats."""

    def act(self, seat: str, opponent: str) -> None:
        """Make a move for a seat that no agent takes, and say whose move is next with `pass_to` or `finish`.

        Args:
            seat: the seat to move.
            opponent: how strong to play, one of `opponents`.
        """
        raise NotImplementedError

    def default_opponent(self) -> str:
        """Return the strength of the scripted opponents if the start names none: the weakest, unless overridden."""
        return self.opponents[0]

    def left(self, seat: str) -> Mapping[str, float | Reward]:
        """Return the rewards by seat when a seat leaves before the end: it was closed, it expired or met a limit.

        It must not change the match, because a call of another seat may run. By default the seat that leaves gets the
        lowest reward of `reward_range`, and the others the highest.
        """
        low, high = self.reward_range
        return {
            name: Reward(value=low, reason="it left the match")
            if name == seat
            else Reward(value=high, reason=f"{seat} left the match")
            for name in self.seats
        }

    def pass_to(self, seat: str | None) -> None:
        """Set the seat whose move is next, and let scripted opponents move until it is an agent's move.

        Args:
            seat: the seat; None if every seat may move.
        """
        if seat is not None and seat not in self.seats:
            raise ValueError(f"there is no seat {seat!r}; there are {', '.join(self.seats)}")
        self.to_move = seat
        if self._acting:
            return
        self._acting = True
        try:
            for _ in range(_SCRIPTED_MOVES):
                if self.finished or self.to_move is None or self.to_move in self.played:
                    return
                self.act(self.to_move, self.opponent)
            raise RuntimeError(f"scripted opponents moved {_SCRIPTED_MOVES} times in a row; call `pass_to` or `finish`")
        finally:
            self._acting = False

    def finish(self, rewards: Mapping[str, float | Reward]) -> None:
        """End the match and the episodes of all its seats. Only the first call does anything.

        Args:
            rewards: the reward of every seat.

        Raises:
            ValueError: a seat has no reward, or there is no such seat.
            TypeError: a reward is not a number or a `Reward`.
        """
        if set(rewards) != set(self.seats):
            raise ValueError(f"`rewards` must name each of the seats {', '.join(self.seats)}, not {sorted(rewards)}")
        valid = {seat: read_reward(value) for seat, value in rewards.items()}
        if self.rewards is None:
            self.rewards = {seat: one for seat, one in valid.items() if one is not None}


MatchT = TypeVar("MatchT", bound=Match[Any])


class SeatedEnvironment(Environment[TaskT], Generic[TaskT, MatchT]):
    """The base class of environments with seats; each instance is one seat of a match.

    The match gives the rewards (`Match.finish`), so the class has no `grade` and no rubric; its tools may return
    rewards of steps. Mark tools that are moves with `@tool(move=True)`: out of turn they are refused. A tool with
    `@tool(seats=(…))` belongs to these seats only.
    """

    match_class: ClassVar[type[Match[Any]]]
    """The class of the matches."""
    wait_seconds: ClassVar[float] = 30.0
    """The longest time of one call of `wait`, in seconds; the limit of a tool call may be shorter."""

    seat: str
    """The seat that this instance plays."""
    match: MatchT
    """The match, which all its seats share."""

    def observe(self) -> str | Content | Sequence[str | Content]:
        """Return what the seat sees now, with what happened since it last looked. It must not block."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Return whether the seat has something to do, which ends a `wait`: it may move."""
        return self.match.to_move in (None, self.seat)

    @tool(name=WAIT_TOOL)
    async def wait_for_others(self, context: StepContext) -> Any:
        """Wait until it is your move or the match has ended, and see what happened. If it takes long, call it again."""
        if self.match._table is not None:
            now = asyncio.get_running_loop().time()
            seconds = min(self.wait_seconds, (context.deadline - now) * (1 - _MARGIN))
            await self.match._table.wait(self, now + seconds)
        return self.observe()

    def check_move(self) -> None:
        """Refuse a call that is not in turn.

        Raises:
            ToolError: it is the move of another seat; the message says whose.
        """
        if self.match.to_move not in (None, self.seat):
            raise ToolError(
                f"It is not your move: you are {self.seat}, and it is the move of {self.match.to_move}. "
                f"Call `{WAIT_TOOL}` until it is yours."
            )
