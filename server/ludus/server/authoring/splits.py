"""Splits: sets of tasks as finite sequences, tasks made on demand, or endless generators."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, get_args

from ludus.protocol.difficulty import DifficultyFile, check_band, parse_difficulty
from ludus.protocol.episodes import SplitType
from ludus.protocol.errors import AuthoringError, ParseError
from ludus.protocol.tasks import Task

__all__ = ["SPLIT_TYPES"]


TaskT = TypeVar("TaskT", bound=Task)
SPLIT_TYPES: tuple[SplitType, ...] = get_args(SplitType)
ENDLESS_INDEX_LIMIT = 2**53
"""The upper bound of indices in endless splits; below it, every JSON reader keeps integers exact."""
_SCAN_LIMIT = 1_000_000
_DIGITS = 17
_TRAILING_NUMBER = re.compile(r"(?:0|[1-9]\d{0,15})$")


@dataclass(frozen=True, slots=True)
class Filter:
    """The base split of a filtered split, and the difficulty file that selected its tasks."""

    base: Split[Any]
    file: DifficultyFile
    path: str


class Split(Generic[TaskT]):
    """A set of tasks and its type: train, validation or test.

    Build one with `Split(tasks)`, `Split.lazy`, `Split.generated` or `Split.load`, and filter it by measured difficulty
    with `within`. The type is taken from the split's name when that is `train`, `validation` or `test`; other names
    must give it.
    """

    def __init__(self, tasks: Sequence[TaskT], type: SplitType | None = None) -> None:
        self.type: SplitType | None = type
        self.count: int | None = len(tasks)
        self.immediate = True
        """Whether tasks are available without running the author's code."""
        self.filter: Filter | None = None
        """The filter of a split made by `within`."""
        self._tasks: Sequence[TaskT] | None = tasks
        self._load: Callable[[], Sequence[TaskT]] | None = None
        self._make: Callable[[int], TaskT] | None = None
        self._index_of: dict[str, int] | None = None
        self._counted: tuple[str, int] | tuple[None] | None = None

    @classmethod
    def lazy(cls, make: Callable[[int], TaskT], count: int, type: SplitType | None = None) -> Self:
        """Return a split of `count` tasks, each made from its index when it is requested."""
        split: Self = cls((), type)
        split._tasks, split._make, split.count, split.immediate = None, make, count, False
        return split

    @classmethod
    def generated(cls, make: Callable[[int], TaskT], type: SplitType | None = None) -> Self:
        """Return an endless split: `make` makes each task from its index, which serves as the seed."""
        split: Self = cls((), type)
        split._tasks, split._make, split.count, split.immediate = None, make, None, False
        return split

    @classmethod
    def load(cls, load: Callable[[], Sequence[TaskT]], type: SplitType | None = None) -> Self:
        """Return a finite split whose tasks `load` returns at first use."""
        split: Self = cls((), type)
        split._tasks, split._load, split.immediate = None, load, False
        return split

    def within(
        self, difficulty: str | Path, band: tuple[float, float] | None = None, type: SplitType | None = None
    ) -> Self:
        """Return a finite split of the tasks whose measured pass rate lies in a band.

        Args:
            difficulty: the file that `ludus calibrate --difficulty` wrote for this split. A relative path starts at
                the working directory; `Path(__file__).with_name(…)` is next to the module.
            band: the least and the greatest pass rate, both included; the file's own band by default.
            type: the type of the new split; this split's type by default.

        Raises:
            AuthoringError: the file cannot be read or is not a difficulty file, or no task lies in the band. A file for
                another environment, version or split, or with unknown tasks, is refused when the class is published;
                for a split that loads its tasks at first use, unknown tasks are refused then.
        """
        file, path = read_difficulty(difficulty), str(difficulty)
        try:
            low, high = check_band(band or file.band)
        except ValueError as error:
            raise AuthoringError(f"within({path!r}): {error}") from None
        wanted = file.within(low, high)
        if not wanted:
            raise AuthoringError(
                f"{path} has no task with a pass rate from {low:g} to {high:g} among {len(file.tasks)}; choose another "
                "band, or measure more tasks with `ludus calibrate --difficulty`"
            )
        split = self.load(lambda: _choose(self, file, path, wanted), type or self.type)
        split.count, split.filter = len(wanted), Filter(self, file, path)
        return split

    def prepare(self) -> None:
        """Load the tasks of a `load` split; afterwards `count` is known. May block."""
        if self._load is not None and self._tasks is None:
            tasks = list(self._load())
            _check_tasks(tasks)
            self._tasks, self.count, self.immediate = tasks, len(tasks), True

    @property
    def prepared(self) -> bool:
        """Whether the tasks are loaded, so that `prepare` has nothing to do."""
        return self._load is None or self._tasks is not None

    def check(self) -> None:
        """Check that the split is valid.

        Raises:
            AuthoringError: an item is not a task, two tasks have the same id, or there are no tasks.
        """
        if self.filter is not None and self.filter.base.prepared:
            self.prepare()
        if self._tasks is not None:
            _check_tasks(self._tasks)
        elif self.count is not None and self._load is None and self.count < 1:
            raise AuthoringError(f"it has {self.count} tasks; a split needs at least one")

    def get(self, index: int) -> TaskT:
        """Return the task at an index.

        Raises:
            IndexError: there is no such index.
            TypeError: the author's function did not return a task.
        """
        self.prepare()
        limit = ENDLESS_INDEX_LIMIT if self.count is None else self.count
        if not 0 <= index < limit:
            raise IndexError(index)
        if self._tasks is not None:
            return self._tasks[index]
        assert self._make is not None
        task = self._make(index)
        if not isinstance(task, Task):
            raise TypeError(
                f"the split's generator returned {type(task).__name__} for index {index}; it must return a Task"
            )
        return task

    def find(self, task_id: str) -> tuple[int, TaskT]:
        """Return the index and the task of an id.

        Tasks made on demand are found without a search if their ids count up with the index, such as `sum-17`,
        `sum-18`. Otherwise a finite split is searched once to build an index of ids; tasks cannot be found by id in an
        endless split, or in one that makes more than a million tasks on demand.

        Raises:
            KeyError: there is no such task.
        """
        self.prepare()
        counted = self._counted_ids() if self._tasks is None else None
        if counted is not None:
            prefix, first = counted
            digits = task_id.removeprefix(prefix)
            if not (task_id.startswith(prefix) and digits.isascii() and digits.isdigit() and len(digits) < _DIGITS):
                raise KeyError(task_id)
            index = int(digits) - first
            if not 0 <= index < (ENDLESS_INDEX_LIMIT if self.count is None else self.count):
                raise KeyError(task_id)
            task = self.get(index)
            if task.id != task_id:
                raise KeyError(task_id)
            return index, task
        if self.count is None or (self._tasks is None and self.count > _SCAN_LIMIT):
            raise KeyError(task_id)
        if self._index_of is None:
            self._index_of = {self.get(index).id: index for index in range(self.count)}
        index = self._index_of[task_id]
        return index, self.get(index)

    def _counted_ids(self) -> tuple[str, int] | None:
        """Return the prefix and first number of ids that count up with the index, or None; checks only some ids."""
        if self._counted is None:
            some = [0, 1, 2, 7] if self.count is None else [0, self.count // 2, self.count - 1]
            ids = {index: self.get(index).id for index in some}
            number = _TRAILING_NUMBER.search(ids[0])
            self._counted = (None,)
            if number is not None:
                prefix, first = ids[0][: number.start()], int(number.group())
                if all(task_id == f"{prefix}{first + index}" for index, task_id in ids.items()):
                    self._counted = (prefix, first)
        return self._counted if len(self._counted) == 2 else None


def _check_tasks(tasks: Sequence[Task]) -> None:
    if not tasks:
        raise AuthoringError("it has no tasks; a split needs at least one")
    seen: set[str] = set()
    for position, task in enumerate(tasks):
        if not isinstance(task, Task):
            raise AuthoringError(
                f"item {position} is {type(task).__name__}, not a Task; subclass ludus.server.Task and build that"
            )
        if task.id in seen:
            raise AuthoringError(f"two of its tasks have the id {task.id!r}; ids must be unique within a split")
        seen.add(task.id)


def read_difficulty(path: str | Path) -> DifficultyFile:
    """Read a difficulty file.

    Raises:
        AuthoringError: the file does not exist, or is not a difficulty file.
    """
    try:
        return parse_difficulty(Path(path).read_bytes(), str(path))
    except OSError as error:
        where = "" if Path(path).is_absolute() else f" (seen from {Path.cwd()})"
        raise AuthoringError(f"the difficulty file {path} cannot be read{where}: {error.strerror}") from None
    except ParseError as error:
        raise AuthoringError(error.message) from None


def indices_of(split: Split[Any], file: DifficultyFile, path: str) -> dict[str, int]:
    """Return the index in `split` of each task in a difficulty file, by task id.

    Raises:
        AuthoringError: the file has tasks that the split does not have.
    """
    indices: dict[str, int] = {}
    unknown = []
    for task in file.tasks:
        try:
            indices[task] = split.find(task)[0]
        except KeyError:
            unknown.append(task)
    if unknown:
        raise AuthoringError(
            f"{path} has {len(unknown)} tasks that the split does not have, such as {unknown[0]!r}: the split's tasks "
            "are not the ones that were measured; measure again with `ludus calibrate --difficulty`"
        )
    return indices


def _choose(split: Split[Any], file: DifficultyFile, path: str, wanted: Iterable[str]) -> list[Any]:
    """Return the wanted tasks of a split, in the split's order.

    Raises:
        AuthoringError: the file has tasks that the split does not have.
    """
    indices = indices_of(split, file, path)
    return [split.get(index) for index in sorted(indices[task] for task in wanted)]
