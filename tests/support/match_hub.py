"""A hub with a game of two seats, and accounts that play it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import httpx
import results_hub
from hubs import KEY, Release, WheelParts, release
from results_hub import ResultsHub

from ludus.client.agent_endpoint import open_agent_endpoint
from ludus.hub.results.matches.playing import Matches
from ludus.hub.results.matches.store import MatchStore
from ludus.protocol.episodes import SplitInfo
from ludus.protocol.errors import InfrastructureFailed, LudusError
from ludus.registry.types.packages import EnvironmentEntry
from ludus.server import Match, Private, SeatedEnvironment, Split, Task, tool

BROKEN: Counter[str] = Counter()
"""How many times the tool `look` finds a broken machine, by name of the environment."""


class Deal(Task):
    """The words of the two seats, which the other one must not see."""

    words: Private[dict[str, str]]


class Bids(Match[Deal]):
    """Each seat says a number, red first. The greater one wins."""

    seats = ("red", "blue")
    opponents = ("weak", "strong")

    def setup(self) -> None:
        self.said: dict[str, int] = {}
        self.pass_to("red")

    def say(self, seat: str, number: int) -> None:
        self.said[seat] = number
        if len(self.said) == 2:
            red, blue = self.said["red"], self.said["blue"]
            self.finish({"red": float(red > blue) - float(red < blue), "blue": float(blue > red) - float(blue < red)})
        else:
            self.pass_to("blue")

    def act(self, seat: str, opponent: str) -> None:
        self.say(seat, 2 if opponent == "weak" else 8)


class Auction(SeatedEnvironment[Deal, Bids]):
    """Say a greater number than the other seat."""

    match_class = Bids
    version = "1.0"
    reward_range = (-1.0, 1.0)
    splits = {
        "train": Split([Deal(id=f"t{n}", words={"red": f"rose{n}", "blue": f"sky{n}"}) for n in range(3)]),
        "test": Split([Deal(id=f"deal{n}", words={"red": f"ruby{n}", "blue": f"sea{n}"}) for n in range(30)]),
    }

    def prompt(self) -> str:
        return f"You are {self.seat}. Your word is {self.task.words[self.seat]}."

    def observe(self) -> str:
        return "It is over." if self.match.finished else f"It is the move of {self.match.to_move}."

    @tool(move=True)
    def bid(self, number: int) -> str:
        """Say a number."""
        self.match.say(self.seat, number)
        return self.observe()

    @tool
    def look(self) -> str:
        """Look around."""
        if BROKEN["auction"] > 0:
            BROKEN["auction"] -= 1
            raise InfrastructureFailed("the machine is gone")
        return "Nothing to see."

    @tool
    def kick(self) -> str:
        """Kick the table."""
        raise RuntimeError("it breaks")


class Throws(Match[Deal]):
    """Both seats throw at the same time, for three rounds. The greater sum wins."""

    seats: ClassVar[Sequence[str]] = ("red", "blue")

    def setup(self) -> None:
        self.thrown: dict[str, list[int]] = {"red": [], "blue": []}

    def throw(self, seat: str, number: int) -> None:
        self.thrown[seat].append(number)
        if min(map(len, self.thrown.values())) == 3:
            ahead = sum(self.thrown["red"]) - sum(self.thrown["blue"])
            self.finish({"red": float(ahead > 0) - float(ahead < 0), "blue": float(ahead < 0) - float(ahead > 0)})


class Duel(SeatedEnvironment[Deal, Throws]):
    """Throw greater numbers than the other seat."""

    match_class = Throws
    version = "1.0"
    reward_range = (-1.0, 1.0)
    splits = Auction.splits

    def prompt(self) -> str:
        return f"You are {self.seat}."

    def observe(self) -> str:
        return f"{len(self.match.thrown[self.seat])} throws."

    @tool(move=True)
    def throw(self, number: int = 1) -> str:
        """Throw a number."""
        self.match.throw(self.seat, number)
        return "Thrown."

    @tool
    def look(self) -> str:
        """Look around."""
        return "Nothing to see."


class Crowd(Throws):
    """A match of three seats."""

    seats = ("red", "blue", "green")


class Melee(Duel):
    """A game for three, which has no board of matches."""

    match_class = Crowd


CLASSES: dict[str, Any] = {"auction": Auction, "duel": Duel, "locks": results_hub.Locks, "melee": Melee}


def auction_release(package: str, version: str = "1.0.0") -> Release:
    """Return a release of a package with all environments of `CLASSES`."""
    parts = WheelParts(package.replace("/", "-"), version)
    parts.entry_points = "[ludus.environments]\n" + "".join(f"{name} = {parts.package}:Toss\n" for name in CLASSES)
    splits = {"train": 3, "test": 30}
    entries = tuple(
        results_hub.entry(cls, name, parts.package)
        if name == "locks"
        else EnvironmentEntry(
            name=name, source=f"{parts.package}:Toss", version="1.0", reward_range=cls.reward_range,
            splits=tuple(
                SplitInfo(name=one, type="test" if one == "test" else "train", count=count)
                for one, count in splits.items()
            ),
        )
        for name, cls in CLASSES.items()
    )  # fmt: skip
    return release(package, version, parts=parts, key=KEY, environments=entries)


def publish(hub: ResultsHub, package: str, version: str = "1.0.0") -> str:
    """Publish a package with all environments of `CLASSES`, and return the wheel's digest."""
    return hub.publish_release(auction_release(package, version))


def matches_of(hub: ResultsHub) -> Matches:
    found: Matches = hub.app.state.matches
    return found


def store_of(hub: ResultsHub) -> MatchStore:
    found: MatchStore = hub.app.state.match_store
    return found


def entrant_params(matches: int = 4, model: str = "m", environment: str = "auction", **declared: Any) -> dict[str, Any]:
    """Return the body of a registration."""
    return {
        "environment": environment, "split": "test", "matches": matches,
        "declared": {"model": model, "harness": "h 1", **declared},
    }  # fmt: skip


class Contender:
    """An account that plays matches as one entrant."""

    def __init__(self, client: httpx.AsyncClient, entrant: dict[str, Any]) -> None:
        self.client = client
        self.key: str = entrant["key"]
        self.path = f"/api/v1/entrants/{self.key}"

    @classmethod
    async def register(cls, client: httpx.AsyncClient, package: str, **params: Any) -> Contender:
        """Register an entrant of the package's newest version."""
        where = f"/api/v1/environments/{package}/versions/latest/entrants"
        answer = await client.post(where, json=entrant_params(**params))
        assert answer.status_code == 201, answer.text
        return cls(client, answer.json())

    async def ask(self, wait: float = 20.0) -> dict[str, Any]:
        """The answer to a request for the next match."""
        answer = await self.client.post(f"{self.path}/next", json={"waitSeconds": wait})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def next(self, wait: float = 20.0) -> dict[str, Any]:
        """The next ticket."""
        ticket: dict[str, Any] | None = (await self.ask(wait))["ticket"]
        assert ticket is not None
        return ticket

    async def end(self, ticket: dict[str, Any]) -> dict[str, Any]:
        """Say that a match is done."""
        answer = await self.client.post(f"{self.path}/matches/{ticket['match']}/end")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def info(self) -> dict[str, Any]:
        """The entrant as it is now."""
        found: dict[str, Any] = (await self.client.get(self.path)).json()
        return found

    async def matches(self) -> list[dict[str, Any]]:
        """Its ended matches, the newest one first."""
        found: list[dict[str, Any]] = (await self.client.get(f"{self.path}/matches")).json()["matches"]
        return found


async def meet(one: Contender, other: Contender) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tickets of two entrants that ask at the same time."""
    first, second = await asyncio.gather(one.next(), other.next())
    assert first["match"] == second["match"]
    return first, second


async def bid(ticket: dict[str, Any], number: int) -> str:
    """Say a number at a seat, after waiting until it may, and return what it saw."""
    async with open_agent_endpoint(ticket["playUrl"]) as episode:
        if ticket["seat"] == "blue":
            await episode.call("wait")
        await episode.call("bid", number=number)
        return str(episode.prompt)


async def call(ticket: dict[str, Any], name: str) -> None:
    """Call a tool at a seat, whatever comes of it."""
    with contextlib.suppress(LudusError):
        async with open_agent_endpoint(ticket["playUrl"], reconnect_seconds=0.1) as episode:
            await episode.call(name)


async def play(one: Contender, other: Contender, first: int, second: int) -> tuple[str | None, str | None]:
    """Let two entrants play a match in which they say these numbers, and return their results."""
    tickets = await meet(one, other)
    await asyncio.gather(bid(tickets[0], first), bid(tickets[1], second))
    await one.end(tickets[0])
    ended = [await one.end(tickets[0]), await other.end(tickets[1])]
    return ended[0]["result"], ended[1]["result"]


async def board_of(hub: ResultsHub, package: str, version: str = "1.0.0") -> dict[str, Any]:
    """Return the board of the game, rated now."""
    await matches_of(hub).rate()
    query = {"environment": "auction", "split": "test"}
    async with hub.client(None) as client:
        answer = await client.get(f"/api/v1/environments/{package}/versions/{version}/match-board", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found
