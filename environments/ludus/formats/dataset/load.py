"""Reads a dataset once, checks each row, and makes an environment of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from ludus.formats.dataset.columns import Columns, find_columns
from ludus.formats.dataset.golds import GoldSample
from ludus.formats.dataset.graders import make_grader
from ludus.formats.dataset.layout import TYPES, find_tables
from ludus.formats.dataset.rows import Rows, RowSplit, id_hash
from ludus.formats.dataset.settings import DatasetSettings
from ludus.formats.dataset.tables import Row, Table
from ludus.formats.dataset.tasks import DatasetTask, TaskMaker
from ludus.protocol.episodes import SplitType
from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import did_you_mean
from ludus.server import Answer, Call, Environment, Message, SandboxSettings, StepResult, TextBlock

_NAME_CHARS: Final = re.compile(r"[^a-z0-9_.-]+")
_MOST_SPLITS: Final = 100
_FIRST_COUNTS: Final = (
    "by GSM8K's convention the first number after #### counts: a list earns only for its first number"
)


class DatasetEnvironment(Environment[DatasetTask]):
    """The base class of datasets: each task is a row, and the final message is graded."""

    blocking = False
    reward_range = (0.0, 1.0)

    gold_message: ClassVar[Callable[[Any], str | None]]
    """Returns the right answer as a message in the form that the prompt asks for, from what the grader expects."""

    @classmethod
    def right_messages(cls, task: DatasetTask) -> Sequence[str]:
        """Return the right answer in the form that the prompt asks for."""
        message = cls.gold_message(task.answer)
        return () if message is None else (message,)

    def prompt(self) -> str | list[Message]:
        """Return the row's prompt."""
        prompt = self.task.prompt
        if isinstance(prompt, str):
            return prompt
        return [
            Message.model_validate({"role": one["role"], "content": (TextBlock(text=one["content"]),)})
            for one in prompt
        ]


class AnsweredDatasetEnvironment(DatasetEnvironment):
    """A dataset that shows what a right message is."""

    @classmethod
    def oracle(cls, task: DatasetTask) -> Generator[Call | Answer, StepResult, None]:
        """Give the right answer."""
        yield Answer(task.best or "")


def load_dataset(target: str, settings: DatasetSettings) -> type[Environment[Any]]:
    """Return the environment of a file or folder. Reads all of it once, one row at a time.

    Raises:
        EnvironmentNotFound: there is no such file or folder.
        AuthoringError: the files, a row or an option cannot be used; the message says where, and what to do.
    """
    sources = find_tables(target)
    tables = [table for source in sources.values() for table in source]
    columns = find_columns(tables, settings)
    for table in tables:
        table.select(columns.used)
    grader = make_grader(columns, settings)
    golds = GoldSample(grader, columns.grader)
    reader = _Reader(columns, TaskMaker(columns, grader, settings), settings, golds)
    for split, source in sources.items():
        reader.read(split, source, alone=len(sources) == 1)
    splits = reader.splits()
    golds.check()
    base = AnsweredDatasetEnvironment if grader.knows_best or columns.solution else DatasetEnvironment
    name = settings.name or _published_name(Path(target))
    fields: dict[str, Any] = {
        "__doc__": _description(name, columns, sources, splits),
        "__module__": __name__,
        "name": name,
        "version": f"1-{reader.digest}",
        "splits": splits,
        "rubric": grader.rubric,
        "gold_message": staticmethod(grader.best),
        "random_baseline": reader.guessing if columns.grader == "choice" else None,
    }
    if columns.grader in ("gsm8k", "skyrl"):
        fields["waived_checks"] = {"gameability:stuffing": _FIRST_COUNTS}
    if columns.grader == "code":
        fields["sandbox_settings"] = SandboxSettings(provider=settings.sandbox)
    return cast(type[Environment[Any]], type("Dataset_" + name, (base,), fields))


class _Reader:
    """Reads the rows of all sources into splits."""

    def __init__(self, columns: Columns, maker: TaskMaker, settings: DatasetSettings, golds: GoldSample) -> None:
        self._columns = columns
        self._maker = maker
        self._golds = golds
        self._settings = settings
        self._rows: dict[str, Rows] = {}
        self._hash = hashlib.blake2b(repr(settings).encode(), digest_size=4)
        self._guesses, self._count = 0.0, 0

    def read(self, name: str, tables: Sequence[Table], *, alone: bool) -> None:
        """Read the tables of one source.

        Args:
            name: the split that its files show.
            tables: its tables.
            alone: whether there is no other source.
        """
        divided = self._divided(name, alone)
        prefix = "row" if divided else name
        number = 0
        for table in tables:
            for row in table.scan():
                task = self._maker.make(row, f"{prefix}-{number}")
                split = self._split_of(row, task, name) if divided else name
                if split not in self._rows:
                    if len(self._rows) >= _MOST_SPLITS:
                        raise AuthoringError(f"{row.place}: there are more than {_MOST_SPLITS} splits")
                    self._rows[split] = Rows(tables, prefix, chosen=divided, named=self._columns.id is not None)
                self._rows[split].add(number, task.id)
                self._golds.add(row.place, task)
                self._hash.update(repr((task.id, task.prompt, task.answer)).encode("utf-8", "replace"))
                self._guesses += 1 / len(task.choices) if task.choices else 0.0
                number += 1
        self._count += number
        if number == 0:
            raise AuthoringError(f"{', '.join(table.shown for table in tables)} has no rows")

    def _divided(self, name: str, alone: bool) -> bool:
        """Return whether the rows of a source belong to several splits."""
        by_column, fraction = self._columns.split, self._settings.test_fraction
        if by_column is not None and fraction is not None:
            raise AuthoringError(
                f"the column {by_column!r} and test_fraction both divide the rows; leave out test_fraction, or ignore "
                "the column with split= (empty)"
            )
        if fraction is not None and (not alone or TYPES.get(name) == "test"):
            raise AuthoringError("test_fraction divides one set of rows, and the files show a test split or several")
        return fraction is not None or (by_column is not None and (alone or self._settings.split is not None))

    def _split_of(self, row: Row, task: DatasetTask, name: str) -> str:
        fraction = self._settings.test_fraction
        if fraction is None:
            return self._maker.split_of(row)
        return "test" if id_hash(task.id) < fraction * 2**64 else name

    def splits(self) -> Mapping[str, RowSplit]:
        """Return the splits with their types.

        Raises:
            AuthoringError: the type of a split is not known, a split has no rows, or two rows have the same id.
        """
        types = self._settings.split_types
        if unknown := [name for name in types if name not in self._rows]:
            raise AuthoringError(
                f"the option 'split_types' names {unknown[0]!r}, and there is no such split"
                f"{did_you_mean(unknown[0], self._rows)}; there are: {', '.join(self._rows)}"
            )
        fraction = self._settings.test_fraction
        if fraction is not None and len(self._rows) < 2:
            raise AuthoringError(
                f"test_fraction={fraction:g} puts all {self._count} tasks into {next(iter(self._rows))!r}"
            )
        order: list[SplitType] = ["train", "validation", "test"]
        found = {name: RowSplit.of(rows, self._maker, self._type_of(name)) for name, rows in self._rows.items()}
        for rows in self._rows.values():
            rows.finish(self._maker.make)
        return dict(sorted(found.items(), key=lambda one: order.index(one[1].type or "test")))

    def _type_of(self, name: str) -> SplitType:
        found = self._settings.split_types.get(name) or TYPES.get(name.lower())
        if found is None:
            raise AuthoringError(
                f"the name of the split {name!r} does not show its type; say it with "
                f'split_types={{"{name}":"train"}} (or validation, or test)'
            )
        return found

    @property
    def digest(self) -> str:
        """A short hash of the options and of all tasks."""
        return self._hash.hexdigest()

    @property
    def guessing(self) -> float:
        """The average reward of choosing at random."""
        return self._guesses / max(self._count, 1)


def _published_name(path: Path) -> str:
    path = path.resolve()
    name = path.stem if path.is_file() else path.name
    if name.lower() in (*TYPES, "data"):
        name = path.parent.name
    return _NAME_CHARS.sub("-", name.lower()).strip("-._")[:100] or "dataset"


def _description(
    name: str, columns: Columns, sources: Mapping[str, Sequence[Table]], splits: Mapping[str, RowSplit]
) -> str:
    """Return what the environment is, with the columns and splits that were found."""
    kinds = sorted({table.kind for source in sources.values() for table in source})
    roles = {
        "prompt": "the template" if columns.template is not None else repr(columns.prompt),
        "choices": ", ".join(map(repr, columns.choices)),
        "answer": repr(columns.answer) if columns.answer else "",
        "id": repr(columns.id) if columns.id else "the row's number",
        "system": repr(columns.system) if columns.system else "",
        "starter": repr(columns.starter) if columns.starter else "",
        "function": repr(columns.function) if columns.function else "",
        "split": repr(columns.split) if columns.split else "",
        "show": ", ".join(map(repr, columns.show)),
    }
    used = [f"{role} {what}{' (found)' if role in columns.found else ''}" for role, what in roles.items() if what]
    found = " (found)" if "grader" in columns.found else ""
    files = "; ".join(f"{split}: {', '.join(table.shown for table in source)}" for split, source in sources.items())
    counts = ", ".join(f"{split} {one.count}" for split, one in splits.items())
    return (
        f"The rows of the dataset {name} ({', '.join(kinds)}), one task each. The final message is graded by "
        f"{columns.grader}{found}.\n\nColumns: {'; '.join(used)}. Files: {files}. Tasks: {counts}."
    )
