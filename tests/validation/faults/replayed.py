"""What keeps an episode from being repeated in another process, each with the cause that `ludus validate` must name.

`trap` names the cause of a faulty class; the classes in `SOUND` do the same without the fault.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import random
import secrets
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, ClassVar

import numpy
from sound import C, Sums

from ludus.server import Answer, Call, Result, StepResult, tool

TRAPS: dict[str, frozenset[str]] = {}
"""By class, the names of the causes that may be named; the first one given must be."""
FIRST: dict[str, str] = {}
SOUND: list[str] = []


def trap(cause: str, *others: str) -> Callable[[C], C]:
    """Plant a class whose results follow something; `others` may be named, too."""

    def plant(cls: C) -> C:
        TRAPS[cls.__name__] = frozenset((cause, *others))
        FIRST[cls.__name__] = cause
        return cls

    return plant


def sound(cls: C) -> C:
    """Plant a class whose results follow nothing."""
    SOUND.append(cls.__name__)
    return cls


class Noting(Sums):
    """Add two numbers, and note something on the way."""

    def noted(self) -> object:
        """What the note shows."""
        return self.rng.random()

    @tool
    def note(self, text: str) -> str:
        """Write something down.

        Args:
            text: what to write.
        """
        return f"Noted: {self.noted()}."


# ── clocks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@trap("wall-clock")
class Nanoseconds(Noting):
    """Show a clock that changes all the time."""

    def noted(self) -> object:
        return time.time_ns()


@trap("wall-clock")
class Seconds(Noting):
    """Show a clock that changes once per second."""

    def noted(self) -> object:
        return f"{datetime.datetime.now(datetime.UTC):%H:%M:%S}"


@trap("wall-clock", "zone")
class Days(Noting):
    """Show a date."""

    def noted(self) -> object:
        return datetime.date.today()


@trap("wall-clock", "zone")
class DayAtImport(Noting):
    """Show a date that was read when the module was imported."""

    STAMP: ClassVar[str] = time.strftime("%A %d")

    def noted(self) -> object:
        return self.STAMP


@trap("monotonic-clock")
class WholeSecondsPassed(Noting):
    """Show how many seconds have passed, which is mostly none."""

    def setup(self) -> None:
        self.began = time.monotonic()

    def noted(self) -> object:
        return f"after {int(time.monotonic() - self.began)} s"


@trap("monotonic-clock")
class PerfCounter(Noting):
    """Show a counter of the processor."""

    def noted(self) -> object:
        return time.perf_counter()


@trap("zone")
class LocalHour(Noting):
    """Show a fixed moment in local time."""

    def noted(self) -> object:
        return time.strftime("%H:%M", time.localtime(1_700_000_000))


@trap("wall-clock")
class RewardOfTheDay(Noting):
    """Show the same each time, and pay by the date."""

    @tool
    def note(self, text: str) -> Result:  # type: ignore[override]
        """Write something down.

        Args:
            text: what to write.
        """
        return Result("Noted.", reward=datetime.datetime.now(datetime.UTC).toordinal() % 1000 / 1e6)


@sound
class MeasuresForItself(Noting):
    """Read clocks, and show nothing of them."""

    def setup(self) -> None:
        self.began = time.monotonic()

    def noted(self) -> object:
        self.took = time.monotonic() - self.began
        self.day = datetime.date.today()
        return f"{datetime.datetime.fromtimestamp(self.seed % 10**9, datetime.UTC):%A}"


# ── random ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@trap("urandom")
class Urandom(Noting):
    """Show bytes of the system."""

    def noted(self) -> object:
        return os.urandom(8).hex()


@trap("urandom")
class Token(Noting):
    """Show a token."""

    def noted(self) -> object:
        return secrets.token_hex(8)


@trap("urandom")
class Uuid(Noting):
    """Show a universally unique identifier."""

    def noted(self) -> object:
        return uuid.uuid4()


@trap("random")
class GlobalGenerator(Noting):
    """Draw from the module's generator."""

    def noted(self) -> object:
        return random.random()


@trap("random")
class OwnGeneratorWithoutSeed(Noting):
    """Draw from a generator without a seed."""

    def setup(self) -> None:
        self.dice = random.Random()

    def noted(self) -> object:
        return self.dice.random()


@trap("numpy")
class NumpysGenerator(Noting):
    """Draw from numpy's generator."""

    def noted(self) -> object:
        return numpy.random.rand()


@sound
class SeededGenerators(Noting):
    """Draw from generators with the episode's seed."""

    def noted(self) -> object:
        own = random.Random(self.seed)
        return own.random(), numpy.random.default_rng(self.seed).random(), uuid.UUID(int=self.rng.getrandbits(128))


# ── objects ───────────────────────────────────────────────────────────────────────────────────────────────────────────

WORDS = {"red", "green", "blue", "white", "black", "brown", "yellow", "pink"}


@trap("hash-seed")
class OrderOfASet(Noting):
    """Show a set of words in its order."""

    def noted(self) -> object:
        return " ".join(WORDS)


@trap("hash-seed")
class HashOfAText(Noting):
    """Show the hash of a text."""

    def noted(self) -> object:
        return hash(self.task.answer) % 1000


@sound
class SortedSet(Noting):
    """Show a set of words in alphabetical order."""

    def noted(self) -> object:
        return " ".join(sorted(WORDS))


class Thing:
    """Something without a `__repr__`."""


@trap("addresses")
class Identity(Noting):
    """Show the identity of an object."""

    def noted(self) -> object:
        return id(self)


@trap("addresses")
class DefaultRepr(Noting):
    """Show an object as Python does by default."""

    def setup(self) -> None:
        self.thing = Thing()

    def noted(self) -> object:
        return self.thing


@trap("addresses")
class DefaultHash(Noting):
    """Show the hash of an object."""

    def noted(self) -> object:
        return hash(self)


# ── threads ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@trap("threads")
class FirstThreadWins(Noting):
    """Collect what threads find in the order in which they find it."""

    def noted(self) -> object:
        found: list[int] = []
        threads = [threading.Thread(target=found.append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


@trap("threads")
class AsCompleted(Noting):
    """Collect what a pool of threads finds in the order in which it finds it."""

    def noted(self) -> object:
        with ThreadPoolExecutor(4) as pool:
            return [done.result() for done in as_completed([pool.submit(int, number) for number in range(4)])]


@sound
class InOrder(Noting):
    """Collect what a pool of threads finds in the order in which it was asked."""

    def noted(self) -> object:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(int, range(4)))


# ── what earlier episodes left ────────────────────────────────────────────────────────────────────────────────────────


@trap("earlier-episodes")
class CountsEpisodes(Noting):
    """Count the notes of all episodes."""

    notes: ClassVar[list[str]] = []

    def noted(self) -> object:
        self.notes.append("")
        return len(self.notes)


FAVORITES: dict[str, int] = {}


@trap("earlier-episodes")
class RemembersTheFirst(Noting):
    """Show what the first episode of the process put into the module."""

    def noted(self) -> object:
        return FAVORITES.setdefault("number", self.task.a)


@trap("files")
class FileLeft(Noting):
    """Show what the first episode wrote into a file."""

    def noted(self) -> object:
        path = Path(tempfile.gettempdir()) / "favorite"
        if not path.exists():
            path.write_text(str(self.task.a))
        return path.read_text()


@trap("listing")
class OrderOfAFolder(Noting):
    """Show files in the order in which their folder lists them."""

    def noted(self) -> object:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("red", "green", "blue"):
                (Path(folder) / name).touch()
            return [path.name for path in Path(folder).iterdir()]


@sound
class OwnFolder(Noting):
    """Show the files of a folder of its own in alphabetical order."""

    def noted(self) -> object:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("red", "green", "blue"):
                (Path(folder) / name).touch()
            return sorted(path.name for path in Path(folder).iterdir())


# ── the machine ───────────────────────────────────────────────────────────────────────────────────────────────────────


@trap("variables")
class UserName(Noting):
    """Show the name of the user."""

    def noted(self) -> object:
        return os.environ.get("USER", "nobody")


@trap("host")
class HostName(Noting):
    """Show the name of the machine."""

    def noted(self) -> object:
        return socket.gethostname()


@trap("process")
class ProcessId(Noting):
    """Show the number of the process."""

    def noted(self) -> object:
        return os.getpid()


@trap("folder", "variables")
class WorkingFolder(Noting):
    """Show the working folder."""

    def noted(self) -> object:
        return Path.cwd()


@trap("network")
class Online(Noting):
    """Look something up in the network."""

    def noted(self) -> object:
        with socket.socket() as line:
            line.setblocking(False)
            return "connecting" if line.connect_ex(("192.0.2.1", 80)) else "connected"


@sound
class Configured(Noting):
    """Read a setting and data of its own, and talk to itself."""

    def noted(self) -> object:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()[:2]):
            return os.environ.get("SUMS_STYLE", "plain"), Path(__file__).name


# ── calls that overlap ────────────────────────────────────────────────────────────────────────────────────────────────


@trap("overlap")
class LostUpdate(Sums):
    """Count notes that overlap, and lose some."""

    def setup(self) -> None:
        self.count = 0

    @tool(concurrent=True)
    async def note(self, text: str) -> str:  # type: ignore[override]
        """Write something down.

        Args:
            text: what to write.
        """
        count = self.count
        await asyncio.sleep(0.01)
        self.count = count + 1
        return f"Noted, as number {self.count}."


@sound
class CountsAtOnce(Sums):
    """Count notes that overlap, without an `await` in between."""

    def setup(self) -> None:
        self.count = 0

    @tool(concurrent=True)
    async def note(self, text: str) -> str:  # type: ignore[override]
        """Write something down.

        Args:
            text: what to write.
        """
        await asyncio.sleep(0.01)
        self.count += 1
        return f"Noted, as number {self.count}."

    @classmethod
    def oracle(cls, task: Any) -> Generator[Call | Answer, StepResult, None]:
        yield Call("note", {"text": "I add them."})
        yield Call("note", {"text": "I have added them."})
        yield Answer(task.answer)
