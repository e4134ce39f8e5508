"""Environments whose episodes come back by other ways than by repeating their calls."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from pathlib import Path

from ludus.protocol.rewards import Reward
from ludus.sandbox import SandboxSettings
from ludus.server import Environment, Result, Task, tool
from ludus.server.rewards import TakenStep, TakenTurn, Verdict, reward

TASKS = [Task(id=f"t{number}") for number in range(3)]


def note(name: str, line: str) -> None:
    """Add a line to a file of the server's folder."""
    with Path(name).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


class Base(Environment[Task]):
    """What all have in common."""

    version = "1.0.0"
    splits = {"train": TASKS}

    def prompt(self) -> str:
        """Return the prompt."""
        return "Go on."


class Vault(Base):
    """Draws numbers that no repetition gives again, and keeps them in its snapshots."""

    durable = "snapshot"
    forkable = True

    def setup(self) -> None:
        """Begin with a number of its own."""
        self.drawn = [os.urandom(4).hex()]

    def snapshot(self) -> bytes:
        """Return the numbers."""
        return " ".join(self.drawn).encode()

    def restore(self, state: bytes) -> None:
        """Take the numbers over."""
        self.drawn = state.decode().split()

    @tool
    def draw(self) -> Result:
        """Draw a number of this process and one of the seed."""
        note("draws.txt", "draw")
        self.drawn += [os.urandom(4).hex(), str(self.rng.randrange(10**9))]
        return Result(" ".join(self.drawn), reward=1.0)


class Sparse(Vault):
    """Saves every third state only. Its calls can be repeated."""

    snapshot_every = 3

    def setup(self) -> None:
        """Begin with nothing."""
        self.drawn: list[str] = []

    @tool
    def draw(self) -> Result:
        """Draw a number of the seed."""
        note("draws.txt", "draw")
        self.drawn += [str(self.rng.randrange(10**9))]
        return Result(" ".join(self.drawn), reward=1.0)


class Workshop(Base):
    """Has its whole state in the work directory of a sandbox."""

    durable = "snapshot"
    forkable = True
    blocking = False
    sandbox_settings = SandboxSettings(provider="bubblewrap")

    async def setup(self) -> None:
        """Write a file that differs each time."""
        await self.sandbox.write("born", os.urandom(4).hex().encode())

    @tool
    async def shell(self, command: str) -> str:
        """Run a command."""
        return (await self.sandbox.run(["sh", "-c", command])).text


class Mailer(Base):
    """Sends what must not be sent twice."""

    durable = "snapshot"
    outside_effects = True

    def setup(self) -> None:
        """Begin with nothing sent."""
        self.sent = 0

    def snapshot(self) -> bytes:
        """Return how many were sent."""
        return str(self.sent).encode()

    def restore(self, state: bytes) -> None:
        """Take the number over."""
        self.sent = int(state)

    @tool
    def send(self, text: str) -> Result:
        """Send a text. `wait` is sent when a file says so."""
        note("sent.txt", text)
        while text == "wait" and not Path("go").exists():
            time.sleep(0.01)
        self.sent += 1
        return Result(f"sent {self.sent}", reward=1.0)


class Fleeting(Base):
    """Is worth nothing after a restart."""

    durable = "none"

    @tool
    def act(self) -> Result:
        """Do something."""
        return Result("done", reward=1.0)


class Judged(Base):
    """Asks judges that say something else each time."""

    forkable = True

    @tool
    def act(self, text: str) -> str:
        """Do something."""
        return text

    @reward(when="step")
    def taste(self, step: TakenStep) -> Verdict:
        """Return another value each time."""
        note("asked.txt", "step")
        return Verdict(int.from_bytes(os.urandom(3), "big") / 2**24, step.text)

    @reward(when="turn")
    def talk(self, turn: TakenTurn) -> Verdict:
        """Return another value each time."""
        note("asked.txt", "turn")
        return Verdict(int.from_bytes(os.urandom(3), "big") / 2**24, str(len(turn.steps)))

    def grade(self, answer: str) -> Reward:
        """Return 1."""
        return Reward.of(1.0)


class Lucky(Base):
    """Shows the same, and pays something else each time."""

    forkable = True

    @tool
    def act(self) -> Result:
        """Do something."""
        return Result("done", reward=float(int.from_bytes(os.urandom(6), "big")))


class Racing(Base):
    """Has calls that overlap; the state shows in which order they ended."""

    blocking = False

    async def setup(self) -> None:
        """Begin with an empty list."""
        self.ended: list[str] = []
        self.events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    @tool(concurrent=True)
    async def run(self, label: str, after: str = "") -> Result:
        """Run until another one has ended."""
        if after:
            await self.events[after].wait()
        self.ended.append(label)
        self.events[label].set()
        return Result(" ".join(self.ended), reward=float(len(self.ended)))


class Slow(Base):
    """Takes as long as a file says to repeat a call."""

    @tool
    def act(self, text: str) -> str:
        """Wait until no file forbids it."""
        note("acts.txt", text)
        while Path("stop").exists():
            time.sleep(0.01)
        return text
