"""Faults that let blind trying, a field that no task asks for, or a text that gives the answer away solve the task.

Each class has one fault, which the finding named by `fault` must report.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar

from sound import planting

from ludus.server import Answer, Call, Environment, EpisodeLimits, Private, Result, StepResult, Task, ToolError, tool

FAULTS, fault = planting()

Moves = Generator[Call | Answer, StepResult, None]

COLORS = ("red", "green", "blue", "white", "black")


class Cards(Task):
    box: int
    colors: Private[tuple[str, ...]]


def boxes(split: str, count: int = 24, cards: int = 4) -> list[Cards]:
    numbers = random.Random(f"boxes of {split}")
    return [
        Cards(
            id=f"{split}-{index}",
            box=numbers.randint(10**6, 10**7),
            colors=tuple(numbers.choice(COLORS) for _ in range(cards)),
        )
        for index in range(count)
    ]


class Boxes(Environment[Cards]):
    """Read the cards of a box, of which each has a color."""

    splits: ClassVar[Any] = {"train": boxes("train"), "test": boxes("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=60)
    discoverable_fields = ("colors",)

    @tool
    def read(self, card: int) -> str:
        """Read the color of a card.

        Args:
            card: its number, from 1 to 4.
        """
        return f"The card is {self.color(card)}."

    def color(self, card: int) -> str:
        if not 1 <= card <= len(self.task.colors):
            raise ToolError(f"there is no card {card}")
        return self.task.colors[card - 1]


@fault("shortcut:search")
class TellsEachCard(Boxes):
    """Say for each card whether a guess is right, as often as the policy likes."""

    def prompt(self) -> str:
        return f"Which colors ({', '.join(COLORS)}) have the four cards of box {self.task.box}? Submit them once."

    @tool
    def hold_next_to(self, card: int, color: str) -> str:
        """Hold a color next to a card.

        Args:
            card: its number, from 1 to 4.
            color: the color.
        """
        return "They are alike." if self.color(card) == color else "They differ."

    @tool(ends=True)
    def submit(self, colors: list[str]) -> Result:
        """Submit the colors.

        Args:
            colors: the color of each card, in order.
        """
        return Result("Thank you.", float(tuple(colors) == self.task.colors), finished=True)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        for card in range(1, 5):
            yield Call("read", {"card": card})
        yield Call("submit", {"colors": list(task.colors)})


class Painted(Boxes):
    """Paint the doors of a house in the colors of the cards."""

    def setup(self) -> None:
        self.doors = ["none"] * len(self.task.colors)

    def prompt(self) -> str:
        return f"Paint doors 1 to 4 in the colors of the four cards of box {self.task.box}, then call `leave`."

    @tool
    def paint(self, door: int, color: str) -> str:
        """Paint a door.

        Args:
            door: its number, from 1 to 4.
            color: red, green, blue, white or black.
        """
        self.color(door)
        if color not in COLORS:
            raise ToolError(f"there is no paint for {color!r}")
        self.doors[door - 1] = color
        return f"Door {door} is {color}."

    @tool(ends=True)
    def leave(self) -> Result:
        """Leave the house."""
        return Result("Goodbye.", float(tuple(self.doors) == self.task.colors), finished=True)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        for door, color in enumerate(task.colors, 1):
            yield Call("read", {"card": door})
            yield Call("paint", {"door": door, "color": color})
        yield Call("leave")


@fault("shortcut:search")
class ShowsWhatIsRight(Painted):
    """Show which doors are right, before the policy leaves."""

    @tool
    def inspect(self) -> str:
        """Look at the doors."""
        pairs = zip(self.doors, self.task.colors, strict=True)
        return "\n".join("in order" if door == color else "to be painted" for door, color in pairs)


class Deliveries(Task):
    parcels: tuple[str, ...]
    gates: Private[tuple[int, ...]]


def deliveries(split: str, count: int = 24) -> list[Deliveries]:
    numbers = random.Random(f"deliveries of {split}")
    return [
        Deliveries(
            id=f"{split}-{index}",
            parcels=tuple(f"P-{number}" for number in numbers.sample(range(1000, 9999), 3)),
            gates=tuple(numbers.randint(1, 6) for _ in range(3)),
        )
        for index in range(count)
    ]


@fault("shortcut:search")
class TriesCostNothing(Environment[Deliveries]):
    """Send parcels that are at the wrong gate back, as often as the policy likes."""

    splits: ClassVar[Any] = {"train": deliveries("train"), "test": deliveries("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=30)
    discoverable_fields = ("gates",)

    def setup(self) -> None:
        self.waiting = set(self.task.parcels)

    def prompt(self) -> str:
        return f"Bring the parcels {', '.join(self.task.parcels)} to their gates, which the labels tell."

    def gate(self, parcel: str) -> int:
        if parcel not in self.waiting:
            raise ToolError(f"no parcel {parcel!r} is waiting")
        return self.task.gates[self.task.parcels.index(parcel)]

    @tool
    def label(self, parcel: str) -> str:
        """Read the label of a parcel.

        Args:
            parcel: its number.
        """
        return f"Gate {self.gate(parcel)}."

    @tool
    def bring(self, parcel: str, gate: int) -> Result:
        """Bring a parcel to a gate.

        Args:
            parcel: its number.
            gate: the gate, from 1 to 6.
        """
        if self.gate(parcel) != gate:
            return Result("The porter sends you back.")
        self.waiting.remove(parcel)
        return Result("The porter takes it.", 0.0 if self.waiting else 1.0, finished=not self.waiting)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        for parcel, gate in zip(task.parcels, task.gates, strict=True):
            yield Call("label", {"parcel": parcel})
            yield Call("bring", {"parcel": parcel, "gate": gate})


class Claims(Task):
    limit: int
    amounts: Private[tuple[int, ...]]


def claims(split: str, count: int = 24) -> list[Claims]:
    numbers = random.Random(f"claims of {split}")
    return [
        Claims(
            id=f"{split}-{index}",
            limit=(limit := numbers.randint(200, 900)),
            amounts=tuple(limit + numbers.choice((-1, 1)) * numbers.randint(5, 150) for _ in range(4)),
        )
        for index in range(count)
    ]


class Decisions(Environment[Claims]):
    """Decide claims with a tool that sets any field."""

    splits: ClassVar[Any] = {"train": claims("train"), "test": claims("test")}
    reward_range = (0.0, 1.0)
    random_baseline = 1 / 16
    limits = EpisodeLimits(max_steps=20)
    discoverable_fields = ("amounts",)

    def setup(self) -> None:
        self.records = {
            f"claim{number}": {
                "amount": str(amount), "status": "open", "due": "granted" if amount <= self.task.limit else "refused",
            }
            for number, amount in enumerate(self.task.amounts, 1)
        }  # fmt: skip

    def prompt(self) -> str:
        return (
            f"Set the status of claims up to {self.task.limit} to granted, and of others to refused. Then call `close`."
        )

    @tool
    def claims(self) -> str:
        """List the claims."""
        return "\n".join(f"{name}: {record['amount']}, {record['status']}" for name, record in self.records.items())

    @tool
    def update(self, claim: str, field: str, value: str) -> str:
        """Set a field of a claim.

        Args:
            claim: its name.
            field: the field.
            value: its new value.
        """
        if claim not in self.records:
            raise ToolError(f"there is no {claim!r}")
        self.records[claim][field] = value
        return "Set."

    @tool(ends=True)
    def close(self) -> Result:
        """Close the day."""
        right = all(record["status"] == record["due"] for record in self.records.values())
        return Result("Closed.", float(right), finished=True)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("claims")
        for number, amount in enumerate(task.amounts, 1):
            status = "granted" if amount <= task.limit else "refused"
            yield Call("update", {"claim": f"claim{number}", "field": "status", "value": status})
        yield Call("close")


@fault("gameability:verifier-files")
class BothSidesOfAComparison(Decisions):
    """Let the policy set the field with which its work is compared."""


class Sold(Task):
    shop: str
    sales: tuple[int, ...]


def sold(split: str, count: int = 24) -> list[Sold]:
    numbers = random.Random(f"shops of {split}")
    return [
        Sold(
            id=f"{split}-{index}",
            shop=f"{split} shop {numbers.randint(1000, 9999)}",
            sales=tuple(numbers.sample(range(1000, 9000), 3)),
        )
        for index in range(count)
    ]


class Sales(Environment[Sold]):
    """Add up the sales of a shop."""

    splits: ClassVar[Any] = {"train": sold("train"), "test": sold("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=8)

    @tool
    def book(self) -> str:
        """Read the book of the shop."""
        return "; ".join(map(str, self.task.sales))

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("book")
        yield Call("report", {"total": sum(task.sales)})


def _report(total: int, example: int) -> Callable[[int], Result]:
    def report(total: int) -> Result:
        return Result("Reported.", float(total == right), finished=True)

    right = total
    report.__doc__ = f"Report the sales.\n\nArgs:\n    total: the sum, such as {example}."
    report.__annotations__ = {"total": int, "return": Result}
    return tool(ends=True)(report)


@fault("leakage")
class ExampleIsTheAnswer(Sales):
    """Describe an argument by an example that is the answer, which no field holds."""

    def prompt(self) -> str:
        return f"Report the sum of the sales of {self.task.shop}, which its book shows."

    def task_tools(self) -> Sequence[Callable[..., Any]]:
        total = sum(self.task.sales)
        return [_report(total, total)]


@fault("shortcut:prompt-only")
class ToolsTellNothingNew(Sales):
    """Give in the prompt what the tool is there to show."""

    def prompt(self) -> str:
        sales = ", ".join(map(str, self.task.sales))
        return f"Report the sum of the sales of {self.task.shop}, which its book shows (last seen: {sales})."

    def task_tools(self) -> Sequence[Callable[..., Any]]:
        return [_report(sum(self.task.sales), 12)]


class Shopping(Task):
    missing: dict[str, int]


def shopping(split: str, count: int = 24) -> list[Shopping]:
    numbers = random.Random(f"shopping of {split}")
    parts = ("bolts", "nuts", "washers", "screws", "clips")
    return [
        Shopping(id=f"{split}-{index}", missing={part: numbers.randint(2, 90) for part in numbers.sample(parts, 3)})
        for index in range(count)
    ]


@fault("gameability:excess")
class AnyAmountIsEnough(Environment[Shopping]):
    """Accept more than what is missing, although the task asks for no more."""

    splits: ClassVar[Any] = {"train": shopping("train"), "test": shopping("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=12)

    def setup(self) -> None:
        self.ordered: dict[str, int] = {}

    def prompt(self) -> str:
        missing = ", ".join(f"{count} {part}" for part, count in self.task.missing.items())
        return f"Missing: {missing}. Order just that, each part once, and send the order."

    @tool
    def order(self, part: str, count: int) -> str:
        """Put a part into the order.

        Args:
            part: what to order.
            count: how many.
        """
        self.ordered[part] = count
        return "Noted."

    @tool(ends=True)
    def send(self) -> Result:
        """Send the order."""
        right = self.ordered.keys() == self.task.missing.keys()
        enough = all(self.ordered.get(part, 0) >= count for part, count in self.task.missing.items())
        return Result("Sent.", float(right and enough), finished=True)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        for part, count in task.missing.items():
            yield Call("order", {"part": part, "count": count})
        yield Call("send")


class Case(Task):
    number: int
    code: Private[int]


def cases(split: str, count: int = 24) -> list[Case]:
    numbers = random.Random(f"cases of {split}")
    return [
        Case(id=f"{split}-{index}", number=numbers.randint(10**5, 10**6), code=numbers.randint(1000, 9999))
        for index in range(count)
    ]


@fault("shortcut:search")
class TooLowOrTooHigh(Environment[Case]):
    """Say of a wrong code on which side the right one lies, and let the policy try again."""

    splits: ClassVar[Any] = {"train": cases("train"), "test": cases("test")}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=25)

    def prompt(self) -> str:
        return f"Open case {self.task.number}. The owner knows its code."

    @tool
    def unlock(self, code: int) -> Result:
        """Try a code.

        Args:
            code: the code.
        """
        if code == self.task.code:
            return Result("It opens.", 1.0, finished=True)
        return Result("The bolt stops before the notch." if code < self.task.code else "The bolt stops behind it.")

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        yield Call("unlock", {"code": task.code})


@fault("gameability:variation")
class PaidAtEachArrival(Boxes):
    """Pay whenever a card comes to the tray of its color, also after it was taken away."""

    random_baseline = 1 / len(COLORS)
    shortcut_bounds: ClassVar[Any] = {"constant": 1.0, "search": 1.0}  # the trays may all be tried

    def setup(self) -> None:
        self.trays = ["none"] * len(self.task.colors)
        self.paid = 0

    def prompt(self) -> str:
        return f"Put the four cards of box {self.task.box} into the trays of their colors ({', '.join(COLORS)})."

    @tool
    def put(self, card: int, tray: str) -> Result:
        """Put a card into a tray.

        Args:
            card: its number, from 1 to 4.
            tray: the color of the tray.
        """
        color = self.color(card)
        if tray not in COLORS or self.trays[card - 1] == tray:
            raise ToolError("the card is there already, or there is no such tray")
        self.trays[card - 1] = tray
        pays = tray == color and self.paid < len(self.trays)
        self.paid += pays
        return Result("Done.", 0.25 * pays)

    @tool(ends=True)
    def leave(self) -> Result:
        """End the work."""
        return Result("Goodbye.", finished=True)

    @classmethod
    def oracle(cls, task: Any) -> Moves:
        for card, color in enumerate(task.colors, 1):
            yield Call("put", {"card": card, "tray": color})
        yield Call("leave")


@fault("crash")
class FailsAtZero(Sales):
    """Divide by an optional argument, for which zero is allowed."""

    def prompt(self) -> str:
        return f"Report the sum of the sales of {self.task.shop}, which its book shows."

    @tool
    def per_day(self, days: float = 7.0) -> str:
        """Return the number of entries in the book per day.

        Args:
            days: the days.
        """
        return f"{len(self.task.sales) / days:.2f}"

    def task_tools(self) -> Sequence[Callable[..., Any]]:
        return [_report(sum(self.task.sales), 12)]
