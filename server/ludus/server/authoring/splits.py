"""Named sets of tasks: finite sequences, tasks made on demand, and generators without end."""

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

TaskT = TypeVar("TaskT", bound=Task)
SPLIT_TYPES: tuple[SplitType, ...] = get_args(SplitType)
ENDLESS_INDEX_LIMIT = 2**53
"""Indices of endless splits stay below it, so that every JSON reader keeps them exact."""
_SCAN_LIMIT = 1_000_000
_DIGITS = 17
_TRAILING_NUMBER = re.compile(r"(?:0|[1-9]\d{0,15})$")


@dataclass(frozen=True, slots=True)
class Filter:
    """The split that a filtered split's tasks come from, and the difficulty file that chose them."""

    base: Split[Any]
    file: DifficultyFile
    path: str


class Split(Generic[TaskT]):
    """Tasks that belong together, and what they are for.

    Build one with `Split(tasks)`, `Split.lazy`, `Split.generated` or `Split.load`, and filter it by measured difficulty
    with `within`. The type is taken from the split's name when that is `train`, `validation` or `test`; other names
    must give it.
    """

    def __init__(self, tasks: Sequence[TaskT], type: SplitType | None = None) -> None:
        self.type: SplitType | None = type
        self.count: int | None = len(tasks)
        self.immediate = True
        """Whether a task can be had without running the author's code."""
        self.filter: Filter | None = None
        """Set by `within`."""
        self._tasks: Sequence[TaskT] | None = tasks
        self._load: Callable[[], Sequence[TaskT]] | None = None
        self._make: Callable[[int], TaskT] | None = None
        self._index_of: dict[str, int] | None = None
        self._counted: tuple[str, int] | tuple[None] | None = None

    @classmethod
    def lazy(cls, make: Callable[[int], TaskT], count: int, type: SplitType | None = None) -> Self:
        """`count` tasks, each made from its index when it is asked for."""
        split = cls((), type)
        split._tasks, split._make, split.count, split.immediate = None, make, count, False
        return split

    @classmethod
    def generated(cls, make: Callable[[int], TaskT], type: SplitType | None = None) -> Self:
        """Tasks without end: the index is the seed that makes the task."""
        split = cls((), type)
        split._tasks, split._make, split.count, split.immediate = None, make, None, False
        return split

    @classmethod
    def load(cls, load: Callable[[], Sequence[TaskT]], type: SplitType | None = None) -> Self:
        """A finite sequence that is read at first use."""
        split = cls((), type)
        split._tasks, split._load, split.immediate = None, load, False
        return split

    def within(
        self, difficulty: str | Path, band: tuple[float, float] | None = None, type: SplitType | None = None
    ) -> Self:
        """The tasks whose pass rate was measured to lie in a band, as a finite split of its own.

        Args:
            difficulty: the file that `ludus calibrate --difficulty` wrote for this split. A relative path is seen from
                the working directory; `Path(__file__).with_name(…)` is beside the module.
            band: the least and the greatest pass rate; the file's own when None.
            type: this split's when None.

        Raises:
            AuthoringError: the file cannot be read or is none, or no task lies in the band. Files of another
                environment, version or split, and of tasks that are not here, are refused when the class is published,
                or when this split is first used, where it reads its tasks only then.
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
        """Read what `load` gives; afterwards `count` is known. May block."""
        if self._load is not None and self._tasks is None:
            tasks = list(self._load())
            _check_tasks(tasks)
            self._tasks, self.count, self.immediate = tasks, len(tasks), True

    @property
    def prepared(self) -> bool:
        """Whether `prepare` has nothing left to do."""
        return self._load is None or self._tasks is not None

    def check(self) -> None:
        """Refuse what cannot be a split.

        Raises:
            AuthoringError: not tasks, the same id twice, or no task at all.
        """
        if self.filter is not None and self.filter.base.prepared:
            self.prepare()
        if self._tasks is not None:
            _check_tasks(self._tasks)
        elif self.count is not None and self._load is None and self.count < 1:
            raise AuthoringError(f"it has {self.count} tasks; a split needs at least one")

    def get(self, index: int) -> TaskT:
        """The task at an index.

        Raises:
            IndexError: there is none.
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
        """The task of an id, with its index.

        Tasks made on demand are found without a search when their ids count up with the index, as `sum-17`, `sum-18`
        do. A finite split whose ids do not is searched once; an endless one then has no ids to be found by.

        Raises:
            KeyError: there is none.
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
        """The prefix and the first number of ids that count up with the index, judged by some of them."""
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
    """Return a difficulty file.

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
    """Return the index in `split` of each task that a difficulty file has.

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
    """Return the wanted tasks of a split, in its order.

    Raises:
        AuthoringError: the file has tasks that the split does not have.
    """
    indices = indices_of(split, file, path)
    return [split.get(index) for index in sorted(indices[task] for task in wanted)]
