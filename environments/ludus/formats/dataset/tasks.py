"""Makes tasks of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ludus.formats.dataset.choices import lettered, read_choices, right_letter
from ludus.formats.dataset.code import Tests
from ludus.formats.dataset.columns import Columns
from ludus.formats.dataset.graders import Grader, check_skyrl, decoded
from ludus.formats.dataset.settings import DatasetSettings
from ludus.formats.dataset.tables import Row
from ludus.protocol.errors import AuthoringError
from ludus.protocol.text import is_unicode, json_problem
from ludus.server import Private, Task

_ID_CHARS: Final = 200
_PROGRAM: Final = (
    "Answer with a Python program in one fenced block. It reads standard input and writes standard output."
)
_ROLES: Final = ("system", "user", "assistant")


class DatasetTask(Task):
    """A row of a dataset."""

    prompt: str | list[dict[str, str]]
    """The prompt: text, or messages with `role` and `content`."""
    choices: dict[str, str] = {}
    """The choices of multiple choice, by letter."""
    function: str | None = None
    """The name of the function to write, if the tests call one."""
    shown: dict[str, Any] = {}
    """Further columns that the agent may see."""
    answer: Private[Any] = None
    """The expected answer, as the grader needs it."""
    best: Private[str | None] = None
    """A message that earns 1, if it is known."""

    def public(self) -> dict[str, Any]:
        """Return the prompt, the choices and the function if there are any, and the columns that are shown."""
        further = {"choices": self.choices, "function": self.function}
        return {"prompt": self.prompt, **{name: value for name, value in further.items() if value}, **self.shown}


class TaskMaker:
    """Makes tasks of rows.

    Args:
        columns: which column holds what.
        grader: how answers are graded.
        settings: the options.
    """

    def __init__(self, columns: Columns, grader: Grader, settings: DatasetSettings) -> None:
        self._columns = columns
        self._grader = grader
        self._settings = settings

    def make(self, row: Row, default_id: str) -> DatasetTask:
        """Return the task of a row.

        Args:
            row: the row.
            default_id: its id, if no column has ids.

        Raises:
            AuthoringError: the row cannot be used; the message names the file and the line.
        """
        try:
            return self._make(row.values, default_id)
        except ValueError as error:
            raise AuthoringError(f"{row.place}: {error}") from None

    def split_of(self, row: Row) -> str:
        """Return the value of the column with splits.

        Raises:
            AuthoringError: the row has none.
        """
        found = row.values.get(self._columns.split or "")
        if not isinstance(found, str) or not found.strip() or not is_unicode(found):
            raise AuthoringError(f"{row.place}: its {self._columns.split!r} must name a split, not {found!r}")
        return found.strip()

    def _make(self, values: Mapping[str, Any], default_id: str) -> DatasetTask:
        columns, grader = self._columns, self._grader
        if columns.grader == "skyrl":
            check_skyrl(values)
        choices = read_choices([decoded(_value(values, name)) for name in columns.choices]) if columns.choices else {}
        answer = self._answer(values, choices)
        function = self._function(values, answer) if isinstance(answer, Tests) else None
        if isinstance(answer, Tests):
            answer = replace(answer, function=None)  # the task shows it
        prompt = self._prompt(values, choices, answer, function)
        best = self._solution(values) if columns.solution else grader.best(answer)
        if best is not None and isinstance(answer, Tests) and "```" not in best:
            best = f"```python\n{best}\n```"
        shown = {name: values.get(name) for name in columns.show}
        if (problem := json_problem(shown, "the row")) is not None:
            raise ValueError(problem)
        return DatasetTask.model_construct(
            id=self._id(values, default_id), prompt=prompt, choices=choices if columns.grader == "choice" else {},
            function=function,
            shown=shown, answer=answer, best=best,
        )  # fmt: skip

    def _id(self, values: Mapping[str, Any], default: str) -> str:
        name = self._columns.id
        if name is None:
            return default
        value = _value(values, name)
        text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
        if not 1 <= len(text) <= _ID_CHARS or not is_unicode(text):
            raise ValueError(
                f"its {name!r} must be a text of 1 to {_ID_CHARS} characters or a whole number, not {value!r}"
            )
        return text

    def _answer(self, values: Mapping[str, Any], choices: Mapping[str, str]) -> Any:
        columns = self._columns
        if columns.answer is None:
            return self._grader.read(None)
        value = _value(values, columns.answer)
        if isinstance(value, str) and not value.strip():
            raise ValueError(f"its {columns.answer!r} is empty")
        if columns.grader == "choice":
            return right_letter(value, choices, self._settings.answer_as)
        if columns.grader in ("code", "skyrl") or (
            columns.grader in ("exact", "normalized") and isinstance(value, list)
        ):
            value = decoded(value)
        return self._grader.read(value)

    def _solution(self, values: Mapping[str, Any]) -> str:
        """Return the row's message that earns 1; of several programs, the first."""
        name = self._columns.solution or ""
        solutions = decoded(_value(values, name)) if self._columns.grader == "code" else None
        if isinstance(solutions, list) and solutions:
            return _text({name: solutions[0]}, name)
        return _text(values, name)

    def _function(self, values: Mapping[str, Any], tests: Tests) -> str | None:
        """Return the function that the tests call; None if they run programs."""
        if not tests.functions:
            return None
        column = self._columns.function
        name = tests.function or (_text(values, column) if column else self._columns.function_name)
        if name is None or not name.isidentifier():
            raise ValueError(f"the function to test is {name!r}; name it, or its column, with function=NAME")
        return name

    def _starter(self, values: Mapping[str, Any]) -> str:
        """Return what the prompt says about the code to begin with; empty if the row has none."""
        value = values.get(self._columns.starter or "")
        if value is None or value == "":
            return ""
        if not isinstance(value, str):
            raise ValueError(f"its {self._columns.starter!r} must be text, not {type(value).__name__}")
        return f"Begin with this code:\n\n```python\n{value.strip(chr(10))}\n```"

    def _prompt(
        self, values: Mapping[str, Any], choices: Mapping[str, str], answer: Any, function: str | None
    ) -> str | list[dict[str, str]]:
        columns = self._columns
        if columns.template is not None:
            prompt: Any = columns.template.fill(values, lettered(choices))
        else:
            prompt = _value(values, columns.prompt or "")
        if isinstance(prompt, str):
            if not prompt.strip():
                raise ValueError(f"its {columns.prompt or 'prompt'!r} is empty")
            if columns.template is None and columns.grader != "skyrl":
                line = self._grader.instruction or _code_line(answer, function)
                starter = self._starter(values)
                prompt = "\n\n".join(part for part in (prompt, lettered(choices), starter, line) if part)
        else:
            prompt = _messages(prompt, columns.prompt or "")
        if columns.system is not None:
            prompt = _with_system(_text(values, columns.system), prompt)
        if not is_unicode(str(prompt)):
            raise ValueError("its prompt holds what is not a character")
        return prompt  # type: ignore[no-any-return]


def _code_line(answer: Any, function: str | None) -> str:
    if not isinstance(answer, Tests):
        return ""
    if function is None:
        return _PROGRAM
    return f"Answer with Python code in one fenced block. It defines the function {function}."


def _value(values: Mapping[str, Any], name: str) -> Any:
    value = values.get(name)
    if value is None:
        raise ValueError(f"it has no {name!r}")
    return value


def _text(values: Mapping[str, Any], name: str) -> str:
    value = _value(values, name)
    if not isinstance(value, str) or not value.strip() or not is_unicode(value):
        raise ValueError(f"its {name!r} must be text that is not empty, not {str(value)[:80]!r}")
    return value


def _messages(value: Any, name: str) -> list[dict[str, str]]:
    """Return the messages of a prompt.

    Raises:
        ValueError: they are no messages, or the last one is the assistant's, which would show the agent an answer.
    """
    if not isinstance(value, list) or not value:
        raise ValueError(f"its {name!r} must be text or a list of messages, not {type(value).__name__}")
    found = []
    for message in value:
        role = message.get("role") if isinstance(message, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else None
        if role not in _ROLES or not isinstance(content, str):
            raise ValueError(
                f"its {name!r} holds {str(message)[:80]!r}; a message has a role ({', '.join(_ROLES)}) and a content, "
                "which is text"
            )
        found.append({"role": role, "content": content})
    if found[-1]["role"] != "user":
        raise ValueError(
            f"its {name!r} ends with a message of the {found[-1]['role']}; the last one must be the user's"
        )
    return found


def _with_system(system: str, prompt: str | list[dict[str, str]]) -> list[dict[str, str]]:
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if messages[0]["role"] == "system":
        raise ValueError("its prompt has a system message, and there is a column with another; leave one out")
    return [{"role": "system", "content": system}, *messages]
