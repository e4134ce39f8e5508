"""Finds which columns of a dataset hold the prompt, the answer and the rest: as options say, or by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from ludus.formats.dataset.choices import LETTERS
from ludus.formats.dataset.gsm8k import final_number
from ludus.formats.dataset.settings import DatasetSettings, Grader
from ludus.formats.dataset.tables import Table
from ludus.formats.dataset.template import Template
from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import did_you_mean

_PROMPTS: Final = ("question", "problem", "prompt", "instruction", "messages")
_ANSWERS: Final = ("answer", "solution", "target", "label")
_TESTS: Final = ("tests", "test_cases", "input_output")
_IDS: Final = ("id", "task_id")
_CHOICES: Final = ("choices", "options")
_SKYRL: Final = ("prompt", "env_class", "reward_spec")
_LEVELS: Final = ("difficulty", "level")


@dataclass(frozen=True)
class Columns:
    """Which column holds what; None or empty where there is none."""

    grader: Grader
    prompt: str | None
    answer: str | None
    id: str | None = None
    system: str | None = None
    choices: tuple[str, ...] = ()
    solution: str | None = None
    starter: str | None = None
    function: str | None = None
    function_name: str | None = None
    split: str | None = None
    show: tuple[str, ...] = ()
    template: Template | None = None
    found: dict[str, str] = field(default_factory=dict)
    """What was found by names or by content, with the option that would change it: `prompt` → `question`."""

    @property
    def used(self) -> list[str]:
        """The names of all columns that are read."""
        single = [
            self.prompt, self.answer, self.id, self.system, self.solution, self.starter, self.function, self.split,
        ]  # fmt: skip
        extra = _SKYRL if self.grader == "skyrl" else ()
        inside = self.template.names if self.template is not None else ()
        return list(dict.fromkeys([*(one for one in single if one), *self.choices, *self.show, *inside, *extra]))


def find_columns(tables: Sequence[Table], settings: DatasetSettings) -> Columns:
    """Return which column holds what.

    Raises:
        AuthoringError: a column does not exist, or the names do not show what is needed; the message lists the columns
            and names the option.
    """
    found = _Finder(tables[0], settings).find()
    for table in tables[1:]:
        there = table.columns
        if missing := [name for name in found.used if name not in there]:
            raise AuthoringError(
                f"{table.shown} has no column {missing[0]!r}, which {tables[0].shown} has; its columns are: "
                f"{_list(there)}"
            )
    return found


class _Finder:
    """Finds the columns of one table."""

    def __init__(self, table: Table, settings: DatasetSettings) -> None:
        self.table = table
        self.settings = settings
        self.columns = table.columns
        if not self.columns:
            raise AuthoringError(f"{table.shown} has no rows")
        self.found: dict[str, str] = {}
        named = [
            settings.prompt, settings.answer, settings.id, settings.system, settings.solution, settings.starter,
            settings.split,
        ]  # fmt: skip
        self.taken = {name for name in named if name} | set(_several(settings.choices))
        if settings.function is not None:
            self.taken.add(settings.function)

    def find(self) -> Columns:
        """Return which column holds what."""
        settings = self.settings
        grader = settings.grader
        if grader is None and all(name in self.columns for name in _SKYRL):
            grader = "skyrl"
            self.found["grader"] = grader
        if grader == "skyrl":
            return self._skyrl()
        choices = self._choices() if grader in (None, "choice") or settings.choices else ()
        if grader is None and choices:
            grader = "choice"
            self.found["grader"] = grader
        answer = self._answer(grader)
        if grader is None:
            grader = self._grader_of(answer)
        template = self._template(answer, choices)
        prompt = self._named("prompt", settings.prompt)
        if prompt is None and template is None:
            prompt = self._one("prompt", _PROMPTS)
        function, function_name = self._function(grader)
        return Columns(
            grader=grader,
            prompt=prompt,
            answer=answer,
            id=self._optional("id", settings.id, _IDS),
            system=self._optional("system", settings.system, ("system",)),
            choices=choices,
            solution=self._named("solution", settings.solution),
            starter=self._starter(grader),
            function=function,
            function_name=function_name,
            split=self._optional("split", settings.split, ("split",)),
            show=self._show((answer, settings.solution)),
            template=template,
            found=self.found,
        )

    def _skyrl(self) -> Columns:
        settings = self.settings
        for name in ("prompt", "answer", "choices", "solution", "function", "system", "template"):
            if getattr(settings, name) is not None:
                raise AuthoringError(f"the option {name!r} does not go with SkyRL's rows, which have their own columns")
        for name in _SKYRL:
            self._named(name, name)
        return Columns(
            grader="skyrl",
            prompt="prompt",
            answer="reward_spec",
            id=self._named("id", settings.id or None),
            split=self._named("split", settings.split or None),
            show=self._show(("reward_spec",)),
            found=self.found,
        )

    def _template(self, answer: str | None, choices: Sequence[str]) -> Template | None:
        if self.settings.template is None:
            return None
        found = Template(self.settings.template, self.columns, choices)
        if hidden := [name for name in found.names if name in (answer, self.settings.solution)]:
            raise AuthoringError(f"the template names the column {hidden[0]!r}, which would show the agent the answer")
        return found

    def _choices(self) -> tuple[str, ...]:
        if self.settings.choices is not None:
            names = _several(self.settings.choices)
            for name in names:
                self._named("choices", name)
            return names
        if named := [name for name in self._free() if name.lower() in _CHOICES]:
            return (self._note("choices", named[0]),)
        letters: list[str] = []
        for letter in LETTERS:
            if letter not in self.columns:
                break
            letters.append(letter)
        if len(letters) > 1:
            self._note("choices", "+".join(letters))
            return tuple(letters)
        if self.settings.grader == "choice":
            raise self._missing("choices", "COLUMN or choices=A+B+C+D")
        return ()

    def _answer(self, grader: Grader | None) -> str | None:
        if self.settings.answer is not None:
            return self._named("answer", self.settings.answer)
        if grader == "code":
            named = [name for name in self._free() if name.lower() in _TESTS]
            if len(named) == 1:
                return self._note("answer", named[0])
            raise self._missing("answer", "COLUMN, with the tests of each program")
        if grader == "checklist":
            return None
        return self._one("answer", _ANSWERS)

    def _grader_of(self, answer: str | None) -> Grader:
        first = next(islice(self.table.scan(), 1), None)
        value = first.values.get(answer) if first is not None and answer is not None else None
        if isinstance(value, str) and final_number(value) is not None:
            self.found["grader"] = "gsm8k"
            return "gsm8k"
        raise AuthoringError(
            f"{self.table.shown} does not show how answers are graded; say it with grader=exact, normalized, numeric, "
            f"math, choice, code, checklist or gsm8k (the answers are in the column {answer!r})"
        )

    def _starter(self, grader: Grader) -> str | None:
        if grader == "code":
            return self._optional("starter", self.settings.starter, ("starter_code",))
        if self.settings.starter is not None:
            raise AuthoringError("the option 'starter' goes with grader=code")
        return None

    def _function(self, grader: Grader | None) -> tuple[str | None, str | None]:
        """Return the column that names the function to test, or the name itself."""
        given = self.settings.function
        if grader != "code":
            if given is not None:
                raise AuthoringError("the option 'function' goes with grader=code")
            return None, None
        if given is None and "entry_point" in self._free():
            return self._note("function", "entry_point"), None
        return (given, None) if given in self.columns else (None, given)

    def _show(self, hidden: Sequence[str | None]) -> tuple[str, ...]:
        if self.settings.show is None:
            return tuple(name for name in _LEVELS if name in self._free())
        names = _several(self.settings.show)
        for name in names:
            self._named("show", name)
            if name in hidden:
                raise AuthoringError(
                    f"the option 'show' names the column {name!r}, which would show the agent the answer"
                )
        return names

    def _named(self, option: str, name: str | None) -> str | None:
        if name is not None and name not in self.columns:
            raise AuthoringError(
                f"{self.table.shown} has no column {name!r}, which the option {option!r} names"
                f"{did_you_mean(name, self.columns)}; its columns are: {_list(self.columns)}"
            )
        return name

    def _optional(self, option: str, given: str | None, names: Sequence[str]) -> str | None:
        """Return the column that an option names, else the first of `names` that exists; empty is none."""
        if given is not None:
            return self._named(option, given or None)
        there = [name for name in names if name in self._free()]
        return self._note(option, there[0]) if there else None

    def _one(self, option: str, names: Sequence[str]) -> str:
        there = [name for name in self._free() if name.lower() in names]
        if len(there) > 1:
            raise AuthoringError(
                f"{self.table.shown} has several columns that may hold the {option}: {_list(there)}; choose one with "
                f"{option}={there[0]}"
            )
        if not there:
            raise self._missing(option, "COLUMN")
        return self._note(option, there[0])

    def _missing(self, option: str, value: str) -> AuthoringError:
        return AuthoringError(
            f"no column of {self.table.shown} is known by its name to hold the {option}; its columns are: "
            f"{_list(self.columns)}; name it with {option}={value}"
        )

    def _free(self) -> list[str]:
        """Return the columns that no option names for something else."""
        return [name for name in self.columns if name not in self.taken]

    def _note(self, option: str, value: str) -> str:
        self.found[option] = value
        if value in self.columns:
            self.taken.add(value)
        return value


def _several(names: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in names.split("+") if part.strip()) if names else ()


def _list(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))
