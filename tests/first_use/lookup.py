"""Look up in two steps: who the boss of a person is, and in which room the boss sits."""

from collections.abc import Generator
from random import Random

from ludus.server import Answer, Call, Environment, Private, Result, Split, StepResult, Task, text_of, tool

NAMES = ["Ana", "Ben", "Cem", "Dora", "Eli", "Fay", "Gus", "Hana"]


class Question(Task):
    person: str
    bosses: Private[dict[str, str]]
    rooms: Private[dict[str, int]]


def make(split: str, index: int) -> Question:
    rng = Random(f"{split}:{index}")
    bosses = {n: rng.choice([m for m in NAMES if m != n]) for n in NAMES}
    rooms = {n: rng.randint(10, 99) for n in NAMES}
    return Question(id=f"{split}-{index}", person=rng.choice(NAMES), bosses=bosses, rooms=rooms)


class BossRoom(Environment[Question]):
    """Find the room of a person's boss."""

    splits = {"train": Split.lazy(lambda i: make("train", i), 2000), "test": Split.lazy(lambda i: make("test", i), 200)}

    reward_range = (0.0, 1.0)

    def prompt(self) -> str:
        return f"In which room is the boss of {self.task.person}?"

    @tool
    def boss(self, name: str) -> str:
        """Find the boss of a person.

        Args:
            name: the person's first name.
        """
        return self.task.bosses.get(name, "nobody of that name")

    @tool
    def room(self, name: str) -> int | str:
        """Find the room of a person.

        Args:
            name: the person's first name.
        """
        return self.task.rooms.get(name, "nobody of that name")

    @tool
    def answer(self, room: int) -> Result:
        """Answer with the room.

        Args:
            room: its number.
        """
        right = room == self.task.rooms[self.task.bosses[self.task.person]]
        return Result("Thank you.", reward=float(right), finished=True)

    @classmethod
    def oracle(cls, task: Question) -> Generator[Call | Answer, StepResult, None]:
        found = yield Call("boss", {"name": task.person})
        room = yield Call("room", {"name": text_of(found.content)})
        yield Call("answer", {"room": int(text_of(room.content))})
