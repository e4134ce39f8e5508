"""Environments whose tasks are drawn from random numbers: without end for training, held out for validation and test.

How this works. The author's `make_task` returns the task of a `TaskDraw`: a place in a split, with a difficulty. The
class derives everything else from it:

* `splits`: training without end, and `counts` tasks of validation and test. Difficulties take turns.
* `variants`: one environment per difficulty.
* held-out tasks without duplicates, if `task_identity` says which tasks are the same problem.
* fresh tests: where the host sets `LUDUS_TEST_SECRET`, the test split is drawn from that secret. `fresh_tests` is the
  only place that reads it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeVar

from ludus.protocol.episodes import SplitType
from ludus.protocol.errors import AuthoringError
from ludus.protocol.tasks import Task
from ludus.server.authoring.environment import Environment
from ludus.server.authoring.partition import SPLITS, digest
from ludus.server.authoring.splits import Split

TaskT = TypeVar("TaskT", bound=Task)
DifficultyT = TypeVar("DifficultyT")

Difficulty = Literal["easy", "medium", "hard"]
"""A usual level of difficulty."""
DIFFICULTIES: Final[tuple[Difficulty, ...]] = ("easy", "medium", "hard")
"""The usual levels of difficulty."""
SECRET_VARIABLE: Final = "LUDUS_TEST_SECRET"
"""The environment variable with a secret, from which the tasks of test splits are drawn where it is set."""

_MOST_DUPLICATES: Final = 10_000
"""How many duplicates in a row are drawn for a held-out split before it counts as impossible."""


class FreshTests(NamedTuple):
    """Unseen test tasks.

    Attributes:
        secret: what the tasks are drawn from.
        name: a part of their ids, from which the secret does not follow, so that results on other tasks are never
            taken for results on these.
    """

    secret: str
    name: str


def fresh_tests(split: SplitType) -> FreshTests | None:
    """Return how to draw fresh tasks of a split; None for tasks that everybody with the package can compute.

    Only the split for tests is ever fresh, where the host sets `LUDUS_TEST_SECRET`.
    """
    secret = os.environ.get(SECRET_VARIABLE, "") if split == "test" else ""
    return FreshTests(secret, f"{digest(f'name:{secret}'):016x}"[:8]) if secret else None


@dataclass(frozen=True)
class TaskDraw(Generic[DifficultyT]):
    """Which task to make, and what to draw it from.

    Attributes:
        split: the split that the task must belong to.
        difficulties: those of the environment, which take turns.
        fresh: how fresh tests are drawn; None for tasks that everybody can compute.
        index: the index of the task in the split.
        place: a number that no other draw of the split and difficulty has: the turn of the difficulty. Where
            duplicates are left out of a held-out split, it counts the draws of the split instead, duplicates included.
    """

    split: SplitType
    difficulties: Sequence[DifficultyT]
    fresh: FreshTests | None = field(default=None, repr=False)  # a log or traceback must not show the secret
    index: int = 0
    place: int = 0

    @property
    def difficulty(self) -> DifficultyT:
        """The difficulty whose turn it is."""
        return self.difficulties[self.index % len(self.difficulties)]

    @property
    def secret(self) -> str:
        """What fresh tests are drawn from; empty for tasks that everybody can compute."""
        return self.fresh.secret if self.fresh else ""

    @property
    def series(self) -> str:
        """The split, with the secret of fresh tests: a text to seed from. Unlike ids, it must not be shown."""
        return self.split if self.split == "train" else f"{self.split}:{self.secret}"

    @property
    def prefix(self) -> str:
        """What the task's id begins with, which differs for fresh tests, and does not give their secret away."""
        return f"{self.split}-{self.fresh.name}" if self.fresh else self.split

    @property
    def id(self) -> str:
        """The id of the task."""
        return f"{self.prefix}-{self.index}"

    @cached_property
    def rng(self) -> random.Random:
        """A random generator for this draw, which gives other numbers for each split, secret, difficulty and place."""
        return random.Random(digest(f"{self.series}:{self.difficulty}:{self.place}"))

    def at(self, index: int, place: int = 0) -> TaskDraw[DifficultyT]:
        """Return the draw for another index and place of the same split."""
        return TaskDraw(self.split, self.difficulties, self.fresh, index, place)


class ProceduralEnvironment(Environment[TaskT]):
    """The base class of environments whose tasks are drawn from random numbers; define `make_task`.

    The class gets its `splits` unless it lists them, and a variant for each of its difficulties unless it lists its
    `variants`. A variant with the name of a difficulty has only tasks of that difficulty; others may change
    `difficulties` themselves.
    """

    difficulties: ClassVar[Sequence[Any]] = DIFFICULTIES
    """The difficulties of tasks, which take turns. They may be of any type that can be a key."""
    counts: ClassVar[Mapping[SplitType, int]] = {"validation": 300, "test": 300}
    """The number of tasks of the splits that end. Training does not, unless it is listed."""

    _made: ClassVar[dict[Any, tuple[Sequence[Any], frozenset[str]]]]
    """The held-out tasks that were made together, and their identities."""
    _made_together: ClassVar[bool] = False
    """Whether the held-out tasks of a split are made together, because each depends on those before it."""

    _derives_splits: ClassVar[bool] = False
    """Whether `splits` follow from `make_task`; False if the author wrote them."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__mro__[: cls.__mro__.index(ProceduralEnvironment)]
        defined = {name for base in own for name in base.__dict__}
        cls._made, cls._made_together = {}, not defined.isdisjoint({"task_identity", "make_held_out_tasks"})
        home = next(base for base in cls.__mro__ if "splits" in base.__dict__)
        if "make_task" not in defined or home is not Environment and not home.__dict__.get("_derives_splits"):
            return
        levels = tuple(cls.difficulties)
        cls._derives_splits, cls.splits = True, cls.splits_of(levels)
        if "variants" not in defined and len(levels) > 1:
            cls.variants = {str(level): {} for level in levels}
        named = {str(level): {"difficulties": (level,)} for level in levels}
        cls.variants = {name: {**named.get(name, {}), **changes} for name, changes in cls.variants.items()}

    @classmethod
    def make_task(cls, draw: TaskDraw[Any]) -> TaskT:
        """Return the task of a draw, always the same one, with `draw.id` as its id.

        Whatever is random has to follow from `draw.rng`, or from `draw.series` or `draw.secret`, so that fresh tests
        are unknown to those without the secret. A task must belong to `draw.split`: draw until `split_of` says so for
        what makes it the problem that it is, or hold kinds of problems out.
        """
        raise NotImplementedError

    @classmethod
    def task_identity(cls, task: TaskT, draw: TaskDraw[Any]) -> str:
        """Return a text that is equal for two tasks exactly if they are the same problem.

        If a class defines it, no problem is twice in a split for validation or test, and fresh tests have none of the
        public ones.
        """
        raise NotImplementedError

    @classmethod
    def count_tasks(cls, split: SplitType, difficulties: Sequence[Any]) -> int | None:
        """Return how many tasks of some difficulties a split has, by default as `counts` says; None if it has no end.

        Of validation and test, None says that there is no such split.
        """
        return cls.counts.get(split)

    @classmethod
    def make_held_out_tasks(cls, draw: TaskDraw[Any], count: int, taken: set[str]) -> Sequence[TaskT]:
        """Return all tasks of a split for validation or test.

        Define it for tasks that are not drawn one by one.

        Args:
            draw: a draw of the split; its method `at` gives the others.
            count: how many tasks.
            taken: the identities of problems that must not come again. Those of the returned tasks are added.

        Raises:
            AuthoringError: there are too few different problems.
        """
        tasks: list[TaskT] = []
        duplicates = place = 0
        while len(tasks) < count:
            candidate = draw.at(len(tasks), place)
            task = cls.make_task(candidate)
            identity = cls.task_identity(task, candidate)
            duplicates = duplicates + 1 if identity in taken else 0
            if not duplicates:
                taken.add(identity)
                tasks.append(task)
            elif duplicates == _MOST_DUPLICATES:
                raise AuthoringError(
                    f"{cls.__qualname__}: the split {draw.split} cannot have {count} tasks: after {len(tasks)}, "
                    f"{duplicates} draws in a row were problems that it has. Lower `counts`, or draw from more problems"
                )
            place += 1
        return tasks

    @classmethod
    def splits_of(cls, difficulties: Sequence[Any]) -> dict[str, Split[TaskT]]:
        """Return the splits with tasks of some difficulties."""
        splits: dict[str, Split[TaskT]] = {}
        for split in SPLITS:
            load = partial(cls.load_task, split, difficulties=difficulties)
            count = cls.count_tasks(split, difficulties)
            if count is not None:
                splits[split] = Split.lazy(load, count)
            elif split == "train":
                splits[split] = Split.generated(load)
        return splits

    @classmethod
    def load_task(cls, split: SplitType, index: int, difficulties: Sequence[Any] = ()) -> TaskT:
        """Return the task at an index of a split.

        Args:
            split: the split.
            index: the index, from 0.
            difficulties: the difficulties that take turns; all of the class by default.
        """
        levels = tuple(difficulties) or tuple(cls.difficulties)
        draw = TaskDraw(split, levels, fresh_tests(split), index, index // len(levels))
        if split == "train" or not cls._made_together:
            return cls.make_task(draw)
        tasks: Sequence[TaskT] = cls._held_out(draw.at(0))[0]
        return tasks[index]

    @classmethod
    def load_tasks(cls, split: SplitType, difficulties: Sequence[Any] = ()) -> Sequence[TaskT]:
        """Return all tasks of a split.

        Args:
            split: the split.
            difficulties: the difficulties that take turns; all of the class by default.

        Raises:
            ValueError: the split has no end.
        """
        count = cls.count_tasks(split, tuple(difficulties) or tuple(cls.difficulties))
        if count is None:
            raise ValueError(f"{cls.__qualname__}: the split {split} has no end; load single tasks of it")
        return [cls.load_task(split, index, difficulties) for index in range(count)]

    @classmethod
    def _held_out(cls, draw: TaskDraw[Any]) -> tuple[Sequence[Any], frozenset[str]]:
        if draw not in cls._made:
            public = cls._held_out(replace(draw, fresh=None))[1] if draw.fresh else frozenset[str]()
            taken = set(public)
            count = cls.count_tasks(draw.split, draw.difficulties) or 0
            tasks = cls.make_held_out_tasks(draw, count, taken)
            cls._made[draw] = tasks, frozenset(taken)
        return cls._made[draw]
