"""What is easily taken for a fault, and faults that look like none; each is for one check.

`fault` names the check that finds the fault of a class, `sound` the check that finds nothing.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Generator
from itertools import permutations
from typing import Any, ClassVar

from pydantic import BaseModel
from sound import Sum, Sums, planting, says, sums

from ludus.server import (
    Answer,
    Call,
    Environment,
    EpisodeLimits,
    Noise,
    Private,
    Result,
    StepResult,
    Task,
    ToolError,
    tool,
)

FAULTS, fault = planting()
SOUND, sound = planting()

Moves = Generator[Call | Answer, StepResult, None]


# ── rewards ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@sound("oracle-max")
class LongWalk(Environment[Sum]):
    """Walk, which takes sixty steps: more than a policy that solves nothing is given."""

    splits: ClassVar[Any] = {"train": sums("train"), "test": sums("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=100)

    def setup(self) -> None:
        self.at = 0

    def prompt(self) -> str:
        return f"Walk sixty steps along the path from {self.task.a} to {self.task.b}."

    @tool
    def walk(self) -> Result:
        """Walk a step."""
        self.at += 1
        return Result("On.", float(self.at == 60), finished=self.at == 60)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        for _ in range(60):
            yield Call("walk")


@fault("oracle-max")
class TinyRewards(Sums):
    """Pay nothing, where there is little to be had."""

    reward_range = (0.0, 1e-7)

    def grade(self, answer: str) -> Any:
        return 0.0


@sound("floor-gap")
class Penalties(Sums):
    """Punish what is wrong; a policy that hands nothing in has not been asked yet."""

    reward_range = (-1.0, 0.0)

    def grade(self, answer: str) -> Any:
        return 0.0 if says(answer, self.task.answer) else -1.0


@fault("floor-gap")
class NoPenalties(Sums):
    """Punish nothing."""

    reward_range = (-1.0, 0.0)

    def grade(self, answer: str) -> Any:
        return 0.0


@fault("floor-gap")
class AllIsChance(Sums):
    """Pay for everything, and say that this is chance."""

    random_baseline = 1.0

    def grade(self, answer: str) -> Any:
        return 1.0


@fault("reward-range")
class PunishesLength(Sums):
    """Punish long answers by more than the range says, which shows in none but the tricks."""

    def grade(self, answer: str) -> Any:
        return -50.0 if len(answer) > 40 else float(says(answer, self.task.answer))


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Vault(Task):
    place: str
    codes: Private[list[str]]


def vaults(split: str) -> list[Vault]:
    made = []
    for index in range(8):
        rng = random.Random(f"{split}{index}")
        codes = [f"{rng.getrandbits(40):010x}" for _ in range(3)]
        made.append(Vault(id=f"{split}-{index}", place=f"{split} {index}", codes=codes))
    return made


class Vaults(Environment[Vault]):
    """Find the codes of a vault."""

    splits: ClassVar[Any] = {"train": vaults("train"), "test": vaults("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=8)

    def prompt(self) -> str:
        return f"Which codes has the vault of {self.task.place}?"

    @tool
    def search(self) -> str:
        """Search the book of codes."""
        return f"They are: {', '.join(self.task.codes)}."

    def grade(self, answer: str) -> Any:
        return float(answer.split() == self.task.codes)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("search")
        yield Answer(" ".join(task.codes))


class Map(BaseModel):
    name: str
    route: Private[dict[str, str]]


class Treasure(Task):
    maps: list[Map]
    key: Private[str]
    owner: Private[str]


class Treasures(Environment[Treasure]):
    """Find the place of a treasure with a map and a key; one of both is declared."""

    splits = {
        split: [
            Treasure(
                id=f"{split}-{number}", maps=[Map(name="old", route={"first": f"cave-of-{split}-{number:04d}"})],
                key=f"silver-{split}-{number:04d}", owner=f"captain-{split}-{number:04d}",
            )
            for number in range(12)
        ]
        for split in ("train", "test")
    }  # fmt: skip
    reward_range = (0.0, 1.0)
    discoverable_fields = ("key",)

    def prompt(self) -> str:
        return "Read the map, take the key, and name the place and the key."

    @tool
    def read(self) -> str:
        """Read the map."""
        return f"{self.task.maps[0].route['first']} with {self.task.key}"

    def grade(self, answer: str) -> Any:
        return float(answer == f"{self.task.maps[0].route['first']} {self.task.key}")

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("read")
        yield Answer(f"{task.maps[0].route['first']} {task.key}")


@sound("leakage")
class ToBeFound(Vaults):
    """Find the codes of a vault, as the class says."""

    discoverable_fields = ("codes",)


@fault("leakage")
class ToBeFoundElsewhere(ToBeFound):
    """Show one of the codes that are to be found before the search, and not the last one."""

    def prompt(self) -> str:
        return f"{super().prompt()} One is {self.task.codes[0]}."


class Stack(Task):
    shelf: int
    order: Private[tuple[str, ...]]


def stacks(split: str) -> list[Stack]:
    numbers = random.Random(f"stacks of {split}")
    names = [f"{color} {thing}" for color in ("silver", "wooden", "golden") for thing in ("spoon", "chest", "globe")]
    return [
        Stack(id=f"{split}-{index}", shelf=numbers.randint(10**4, 10**5), order=tuple(numbers.sample(names, 4)))
        for index in range(16)
    ]


@sound("leakage")
class ToBeOrdered(Environment[Stack]):
    """Offer the values of a private list in another order, since their order is the task."""

    splits: ClassVar[Any] = {"train": stacks("train"), "test": stacks("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=8)

    def prompt(self) -> str:
        return f"Put the things of shelf {self.task.shelf} in order: {', '.join(sorted(self.task.order))}."

    @tool
    def above(self, thing: str) -> str:
        """Return how many things stand above another one.

        Args:
            thing: its name.
        """
        if thing not in self.task.order:
            raise ToolError("there is no such thing")
        return str(self.task.order.index(thing))

    @tool(ends=True)
    def submit(self, order: list[str]) -> Result:
        """Submit the order.

        Args:
            order: the things from the top down.
        """
        return Result("Thank you.", float(tuple(order) == self.task.order), finished=True)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("submit", {"order": list(task.order)})


class Hoard(Task):
    shelf: int
    codes: Private[tuple[str, ...]]


def hoards(split: str) -> list[Hoard]:
    numbers = random.Random(f"hoards of {split}")
    return [
        Hoard(
            id=f"{split}-{index}",
            shelf=numbers.randint(10**4, 10**5),
            codes=tuple(f"{numbers.randrange(16**10):010x}" for _ in range(3)),
        )
        for index in range(16)
    ]


@fault("leakage")
class TellsAllInAnotherOrder(Environment[Hoard]):
    """Show all values of a private list in an error, in another order."""

    splits: ClassVar[Any] = {"train": hoards("train"), "test": hoards("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=8)

    def prompt(self) -> str:
        return f"Open the chest on shelf {self.task.shelf} with its first code."

    @tool
    def look(self, chest: str) -> str:
        """Look at a chest.

        Args:
            chest: its name.
        """
        raise ToolError(f"no chest {chest!r} (codes: {', '.join(reversed(self.task.codes))})")

    def grade(self, answer: str) -> float:
        return float(answer.strip() == self.task.codes[0])

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Answer(task.codes[0])


class Staff(Task):
    person: str
    bosses: Private[dict[str, str]]


STAFF = ("Ana", "Ben", "Cem", "Dora", "Eli", "Fay")


def staff(split: str) -> list[Staff]:
    numbers = random.Random(f"staff of {split}")
    return [
        Staff(
            id=f"{split}-{index}",
            person=numbers.choice(STAFF),
            bosses={name: numbers.choice([boss for boss in STAFF if boss != name]) for name in STAFF},
        )
        for index in range(16)
    ]


@sound("leakage")
class LooksUp(Environment[Staff]):
    """Let a tool show of each name what it is there to show, and not only of the name in the task."""

    splits: ClassVar[Any] = {"train": staff("train"), "test": staff("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=8)

    def prompt(self) -> str:
        return f"Who is the boss of the boss of {self.task.person}?"

    @tool
    def boss(self, name: str) -> str:
        """Return the boss of a person.

        Args:
            name: the person's first name.
        """
        return self.task.bosses.get(name, "not in the list")

    @tool(ends=True)
    def answer(self, name: str) -> Result:
        """Answer with a name.

        Args:
            name: the boss of the boss.
        """
        right = self.task.bosses[self.task.bosses[self.task.person]]
        return Result("Thank you.", float(name == right), finished=True)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("boss", {"name": task.person})
        yield Call("boss", {"name": task.bosses[task.person]})
        yield Call("answer", {"name": task.bosses[task.bosses[task.person]]})


@fault("leakage")
class TellsSecrets(Sums):
    """Show a secret of the episode."""

    def prompt(self) -> str:
        return f"{super().prompt()} ({self.secrets.get('KEY')})"


@sound("prompt")
class Quotes(Sums):
    """Ask about what looks as if it had been forgotten."""

    def prompt(self) -> str:
        code = f"```python\n# TODO: add {self.task.a}\n```"
        return f"What do `{{{{ a }}}}` and `<Foo object at 0x7f00>` mean in\n{code}\nbeside {self.task.b}?"


class Note(Task):
    text: str
    answer: Private[str]


@sound("prompt")
class NotesInFields(Sums):
    """Ask about a note that belongs to the task."""

    splits: ClassVar[Any] = {
        split: [Note(id=one.id, text=f"TODO: buy {one.a} pears", answer=one.answer) for one in sums(split)]
        for split in ("train", "test")
    }

    def prompt(self) -> str:
        return f"How many pears? {self.task.text}"  # type: ignore[attr-defined]


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Difference(Task):
    a: int
    b: int
    answer: Private[int]


_PAIRS = list(permutations(range(10, 40), 2))
random.Random(2).shuffle(_PAIRS)


@sound("near-duplicates")
class Differences(Sums):
    """Subtract: a - b is not b - a, and -11 is not 11."""

    splits: ClassVar[Any] = {
        split: [Difference(id=f"{split}-{a}-{b}", a=a, b=b, answer=a - b) for a, b in _PAIRS[place : place + 100]]
        for place, split in ((0, "train"), (100, "test"))
    }

    def prompt(self) -> str:
        return f"How much is {self.task.a} - {self.task.b}?"


class Row(Task):
    row: int
    question: str
    answer: Private[str]


@fault("split-overlap")
class NumberedRows(Sums):
    """Test on the rows that were trained on, under other numbers."""

    splits: ClassVar[Any] = {
        split: [
            Row(id=f"{split}-{row}", row=first + row, question=f"{one.a} plus {one.b}", answer=one.answer)
            for row, one in enumerate(sums("train"))
        ]
        for first, split in ((0, "train"), (500, "test"))
    }

    def prompt(self) -> str:
        return f"How much is {self.task.question}?"  # type: ignore[attr-defined]


class Level(Task):
    number: int
    size: int


@sound("split-overlap")
class Levels(Environment[Level]):
    """Find the way through a level that its number makes, and that no prompt shows."""

    splits: ClassVar[Any] = {
        split: [Level(id=f"{split}-{size}", number=first + size, size=size) for size in range(4, 12)]
        for first, split in ((0, "train"), (500, "test"))
    }
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=8)

    def prompt(self) -> str:
        return f"Which of {10 ** (self.task.size - 3)} doors is the right one?"

    @tool
    def open_listener(self, number: int) -> Result:
        """Open a door."""
        right = number == self.door(self.task)
        return Result("Light." if right else "Dark.", float(right), finished=right)

    @staticmethod
    def door(task: Level) -> int:
        return random.Random(task.number).randrange(10 ** (task.size - 3))

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("open_listener", {"number": cls.door(task)})


# ── what breaks, and what stays ───────────────────────────────────────────────────────────────────────────────────────


@fault("teardown")
class LeavesHome(Sums):
    """Leave processes running that have left their parents."""

    def setup(self) -> None:
        subprocess.run(["sh", "-c", "setsid sleep 599 >/dev/null 2>&1 </dev/null &"], check=True)


class WantsSecret(Sums):
    """Want a secret."""

    def setup(self) -> None:
        self.key = self.secrets["API_KEY"]


class OwnNoise(Sums):
    """Have noise that no seed repeats."""

    noise = Noise(rate=0.5, delay_seconds=0.02, per_episode=True)
