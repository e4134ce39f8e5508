"""Checklists from a file: 100 to 200 small items, each met or not, with a result like 120/183.

A file is JSON or TOML:

    name = "support"
    version = "3"

    [[items]]
    id = "greets"
    check = "my_package.checks:greets"      # a Python function of the attempt

    [[items]]
    id = "short"
    check = "pattern"                       # or a check of this package, with its arguments
    arguments = {pattern = "^.{0,800}$"}

    [[items]]
    id = "polite"
    prompt = "Is the answer polite throughout?"
    group = "style"
    optional = true                         # left out of the count if the judge gives no verdict

An item is met when its check's value reaches `at_least`. The checklist's value is the share of the items met, by
weight. A required item that could not be judged leaves the whole checklist unscored; an optional one is left out.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import describe_invalid, did_you_mean
from ludus.server.rewards.attempt import Attempt
from ludus.server.rewards.calls import CallOrder, Efficiency, NoErrors, ToolCalled, ToolNotCalled
from ludus.server.rewards.located import Located, Place, SyntaxProblem, locate_json, locate_toml
from ludus.server.rewards.mathematics import MathEqual
from ludus.server.rewards.methods import FunctionCheck
from ludus.server.rewards.nodes import Check, Offload, Pending, Weighted
from ludus.server.rewards.rubric import Rubric
from ludus.server.rewards.structure import Fields, JsonSchema
from ludus.server.rewards.text import Exact, NormalizedMatch, Numeric, Pattern
from ludus.server.rewards.verdict import Verdict

__all__ = ["ItemCheck", "load_checklist"]


BUILT_IN: Final[Mapping[str, Callable[..., Check]]] = {
    "called": ToolCalled, "call_order": CallOrder, "efficiency": Efficiency, "exact": Exact, "fields": Fields,
    "json_schema": JsonSchema, "math_equal": MathEqual, "no_errors": NoErrors, "normalized": NormalizedMatch,
    "not_called": ToolNotCalled, "numeric": Numeric, "pattern": Pattern,
}  # fmt: skip
"""Checks that a file may name without a module."""

FILE_BYTES: Final = 4 * 1024 * 1024
_ALIKE: Final = 0.95
"""The similarity from which two prompts are probably one item written twice."""

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^/\s][^/]*$")]
MakeJudge = Callable[[str, str], Check]
"""A function that makes the check of a judged item from its id and its prompt."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class Item(_Strict):
    """One item of a checklist file."""

    id: Name
    check: str | None = None
    """`module:function`, or the name of a built-in check."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the function or the check."""
    prompt: Annotated[str, Field(min_length=1, max_length=20_000)] | None = None
    """The question for a judge."""
    group: Name | None = None
    """A prefix of its component's name, as in `group/id`."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    optional: bool = False
    at_least: float | None = None
    """The value from which the item is met; by default 1 for a check, 0.5 for a judged item."""
    note: str | None = None
    """A note for readers of the file; it is not used."""


class ChecklistFile(_Strict):
    """A whole checklist file."""

    name: Name
    version: Annotated[str, Field(min_length=1, max_length=100)]
    description: str = ""
    items: Annotated[list[Item], Field(min_length=1, max_length=10_000)]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a checklist file."""

    line: int
    severity: Literal["error", "warning"]
    message: str
    item: str | None = None
    """The id of the item, if it has one."""


class ChecklistError(AuthoringError):
    """A checklist cannot be used; the message lists each error with its line."""


@dataclass(frozen=True)
class ItemCheck(Check):
    """One item: met or not, as its inner check decides."""

    inner: Check
    group: str | None = None
    at_least: float = 1.0

    @property
    def label(self) -> str:
        """The group, if any, and the id."""
        return f"{self.group}/{self.name}" if self.group else self.name

    def evaluate(self, attempt: Attempt, offload: Offload) -> Pending:
        """Evaluate the inner check."""
        pending = self.inner.evaluate(attempt, offload)
        return self._met(pending) if isinstance(pending, Verdict) else self._later(pending)

    async def _later(self, pending: Any) -> Verdict:
        return self._met(await pending)

    def _met(self, verdict: Verdict) -> Verdict:
        verdict.name = self.label
        if verdict.value is not None:
            verdict.value = 1.0 if verdict.value >= self.at_least else 0.0
        return verdict


@dataclass(frozen=True)
class Checklist(Weighted):
    """The share of the items that are met; the evidence counts them, as in `120/183 met`."""

    children: Sequence[ItemCheck] = field(default_factory=tuple)

    def _combine(self, outcomes: Sequence[Verdict]) -> Verdict:
        combined = super()._combine(outcomes)
        judged = [outcome.value for outcome in outcomes if outcome.value is not None]
        evidence = f"{sum(value == 1.0 for value in judged)}/{len(judged)} met"
        if missing := len(outcomes) - len(judged):
            evidence += f", {missing} could not be judged"
        combined.evidence = f"{evidence}; {combined.evidence}" if combined.evidence else evidence
        return combined


def load_checklist(
    path: str | Path, *, functions: Mapping[str, Callable[..., Any]] | None = None, judge: MakeJudge | None = None
) -> Rubric:
    """Return the rubric that a file describes, with the file's name and version.

    Args:
        path: a `.json` or `.toml` file.
        functions: further functions, by the names that items use for them.
        judge: makes the check of each judged item, such as `judged_by(endpoint)`; needed if there are any.

    Raises:
        ChecklistError: the file has errors; the message lists each one with its line.
    """
    path = Path(path)
    file, problems, checks = _read(path, functions or {}, judge)
    wrong = [problem for problem in problems if problem.severity == "error"]
    if file is not None and judge is None and not wrong:
        judged = [item.id for item in file.items if item.prompt is not None]
        if judged:
            wrong.append(Problem(1, "error", f"{len(judged)} items need a judge ({judged[0]!r}, …); give judge=…"))
    if wrong or file is None:
        lines = "\n".join(f"{path}:{problem.line}: {problem.message}" for problem in wrong[:50])
        raise ChecklistError(f"the checklist {path} has {len(wrong)} errors:\n{lines}")
    return Rubric(Checklist(children=tuple(checks)), name=file.name, version=file.version)


def lint_checklist(path: str | Path, *, functions: Mapping[str, Callable[..., Any]] | None = None) -> list[Problem]:
    """Return the problems of a file in the order of its lines. The modules that it names are imported."""
    _, problems, _ = _read(Path(path), functions or {}, None, warn=True)
    return sorted(problems, key=lambda problem: problem.line)


def _read(
    path: Path, functions: Mapping[str, Callable[..., Any]], judge: MakeJudge | None, *, warn: bool = False
) -> tuple[ChecklistFile | None, list[Problem], list[ItemCheck]]:
    """Return a file, its problems (with `warn`, also what is only doubtful), and the checks of its valid items."""
    try:
        located = _locate(path)
    except SyntaxProblem as error:
        return None, [Problem(error.line, "error", str(error))], []
    except OSError as error:
        return None, [Problem(1, "error", f"it cannot be read: {error.strerror}")], []
    file, problems = None, []
    try:
        file = ChecklistFile.model_validate(located.value)
    except ValidationError as error:
        problems = [_invalid(located, problem) for problem in error.errors(include_url=False)]
    items = _valid_items(located)  # check these even if other items are malformed
    problems += _repeated(located, items)
    checks: list[ItemCheck] = []
    for position, item in items:
        try:
            check = _check_of(item, functions, judge)
        except AuthoringError as error:
            location = ("items", position, "check" if item.check is not None else "id")
            problems.append(Problem(located.line(location), "error", error.message, item.id))
            continue
        at_least = item.at_least if item.at_least is not None else 0.5 if item.prompt is not None else 1.0
        if check is not None:
            checks.append(
                ItemCheck(check, item.group, at_least, name=item.id, weight=item.weight, optional=item.optional)
            )
    if warn:
        problems += _doubtful(located, items)
    return file, problems, checks


def _valid_items(located: Located) -> list[tuple[int, Item]]:
    """Return the well-formed items, each with its position."""
    entries = located.value.get("items") if isinstance(located.value, dict) else None
    valid = []
    for position, entry in enumerate(entries if isinstance(entries, list) else ()):
        with suppress(ValidationError):
            valid.append((position, Item.model_validate(entry)))
    return valid


def _locate(path: Path) -> Located:
    if path.suffix not in (".json", ".toml"):
        raise SyntaxProblem(1, f"a checklist is a .json or .toml file, not {path.suffix or 'one without a suffix'!r}")
    if path.stat().st_size > FILE_BYTES:
        raise SyntaxProblem(1, f"it is larger than {FILE_BYTES} bytes")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SyntaxProblem(1, f"it is not UTF-8 (byte {error.start})") from None
    return locate_json(text) if path.suffix == ".json" else locate_toml(text.replace("\r\n", "\n"))


def _invalid(located: Located, error: Any) -> Problem:
    path: Place = error["loc"]
    message = describe_invalid(error)
    item = None
    if len(path) > 1 and path[0] == "items" and isinstance(path[1], int):
        entry = located.value["items"][path[1]]
        item = entry.get("id") if isinstance(entry, dict) and isinstance(entry.get("id"), str) else None
    if error["type"] == "extra_forbidden":
        section, field_name = next(iter(path), ""), next(reversed(path), "")
        fields = Item.model_fields if section == "items" else ChecklistFile.model_fields
        message = f"there is no such field{did_you_mean(str(field_name), fields)}"
    path_text = ".".join(str(part) for part in path)
    return Problem(located.line(path), "error", f"{path_text}: {message}" if path_text else message, item)


def _repeated(located: Located, items: Sequence[tuple[int, Item]]) -> list[Problem]:
    problems = []
    ids: dict[tuple[str | None, str], int] = {}
    for position, item in items:
        line, key = located.line(("items", position)), (item.group, item.id)
        if key in ids:
            problems.append(Problem(line, "error", f"the id {item.id!r} was used on line {ids[key]}", item.id))
        ids.setdefault(key, line)
    return problems


def _doubtful(located: Located, items: Sequence[tuple[int, Item]]) -> list[Problem]:
    problems = []
    prompts: dict[str, str] = {}
    for position, item in items:
        line = located.line(("items", position))
        if item.prompt is None and item.optional:
            doubt = "a deterministic item that is optional leaves the count whenever its function raises"
            problems.append(Problem(line, "warning", doubt, item.id))
        if item.prompt is not None:
            plain = " ".join(item.prompt.casefold().split())[:500]
            near = difflib.get_close_matches(plain, prompts, n=1, cutoff=_ALIKE) if len(prompts) < 500 else []
            if near:
                doubt = f"its prompt is nearly that of {prompts[near[0]]!r}, so one thing would count twice"
                problems.append(Problem(line, "warning", doubt, item.id))
            prompts.setdefault(plain, item.id)
    return problems


def _check_of(item: Item, functions: Mapping[str, Callable[..., Any]], judge: MakeJudge | None) -> Check | None:
    if (item.check is None) == (item.prompt is None):
        raise AuthoringError("an item has either a check (a function) or a prompt (for a judge), and not both")
    if item.at_least is not None and not math.isfinite(item.at_least):
        raise AuthoringError("at_least must be a finite number")
    if item.prompt is not None:
        if item.arguments:
            raise AuthoringError("a prompt takes no arguments")
        return judge(item.id, item.prompt) if judge is not None else None
    assert item.check is not None
    if item.check in BUILT_IN and item.check not in functions:
        try:
            return BUILT_IN[item.check](**item.arguments)
        except TypeError as error:
            raise AuthoringError(f"check {item.check!r}: {str(error).partition('() ')[2] or error}") from None
    function = _function(item.check, functions)
    try:
        inspect.signature(function).bind(None, **item.arguments)
    except TypeError as error:
        raise AuthoringError(
            f"{item.check} cannot be called with the attempt and the arguments {sorted(item.arguments)}: {error}"
        ) from None
    except ValueError:  # some functions in C have no signature
        pass
    return FunctionCheck(partial(function, **item.arguments) if item.arguments else function)


def _function(name: str, functions: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    if name in functions:
        return functions[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        names = sorted([*BUILT_IN, *functions])
        hint = did_you_mean(name, names) or f"; there are {', '.join(names)}."
        raise AuthoringError(f"there is no check {name!r}{hint} A function of yours is named as module:function")
    try:
        target: Any = importlib.import_module(module)
    except Exception as error:
        raise AuthoringError(f"importing {module!r} failed: {type(error).__name__}: {error}") from None
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise AuthoringError(f"{module} has no {attribute!r}{did_you_mean(part, dir(target))}")
        target = getattr(target, part)
    if not callable(target):
        raise AuthoringError(f"{name} is no function but {type(target).__name__}")
    function: Callable[..., Any] = target
    return function
