"""Tasks from a template: a TOML file with the fields of a proposal and generators for the values in them.

    [slots.a]
    integer = [100, 999]
    [slots.b]
    integer = [2, 20]
    [slots.product]
    compute = "a * b"

    [task]
    expression = "{a} × {b}"

    [rules]
    where = ["product < 5000"]

`{a}` in a text stands for the value of a slot; a text that is only `{a}` becomes the value itself, with its type.
"""

from __future__ import annotations

import ast
import operator
import random
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ludus.generation.candidates import Candidate, Rejected
from ludus.generation.model import BudgetSpent
from ludus.generation.propose import candidate_of
from ludus.generation.task_folder import Mode
from ludus.protocol.errors import InvalidParams
from ludus.protocol.messages import describe_invalid
from ludus.protocol.tasks import Task
from ludus.server.tasks.catalog import Published

TRIES: Final = 200
"""How many draws may fail the rules before the template is refused."""
_LARGEST_FILE: Final = 4 * 2**20
_LARGEST_EXPONENT: Final = 64
_SLOT: Final = re.compile(r"\{([A-Za-z_]\w*)\}|\{\{|\}\}")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


class Slot(BaseModel):
    """A generator of values; exactly one field says which."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    integer: tuple[int, int] | None = None
    """A whole number between two, both included."""
    decimal: tuple[float, float] | None = None
    """A number between two, rounded to `digits`."""
    digits: int = Field(default=2, ge=0, le=12)
    choice: list[Any] | None = Field(default=None, min_length=1)
    """One of these values."""
    lines: str | None = None
    """One of the lines of a file, which is found next to the template."""
    day: tuple[date, date] | None = None
    """A date between two, written as YYYY-MM-DD."""
    compute: str | None = None
    """A value computed from slots above: numbers, + - * / // % **, comparisons, `min`, `max`, `abs`, `round`, `len`."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [
            name
            for name in ("integer", "decimal", "choice", "lines", "day", "compute")
            if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise ValueError("a slot has one of integer, decimal, choice, lines, day, compute")
        for name in ("integer", "decimal", "day"):
            bounds = getattr(self, name)
            if bounds is not None and bounds[0] > bounds[1]:
                raise ValueError(f"{name} is {bounds[0]} to {bounds[1]}; the lower one comes first")
        return self


class Rules(BaseModel):
    """Conditions on the values of a draw."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: list[str] = []


class TemplateFile(BaseModel):
    """A template."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    slots: dict[str, Slot] = {}
    task: dict[str, Any] = Field(min_length=1)
    rules: Rules = Rules()


class Template:
    """A template that was read.

    Raises:
        InvalidParams: the file cannot be read or used; the message says where.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            data = path.read_bytes()[: _LARGEST_FILE + 1]
            if len(data) > _LARGEST_FILE:
                raise InvalidParams(f"{path} has more than {_LARGEST_FILE // 2**20} MiB")
            self._file = TemplateFile.model_validate(tomllib.loads(data.decode("utf-8")))
        except OSError as error:
            raise InvalidParams(f"{path} cannot be read: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InvalidParams(f"{path}: {'.'.join(map(str, first['loc']))}: {describe_invalid(first)}") from None
        except ValueError as error:
            raise InvalidParams(f"{path} is not TOML: {error}") from None
        self._lines = {name: self._read(name, slot.lines) for name, slot in self._file.slots.items() if slot.lines}
        if bad := [name for name in self._file.slots if not _NAME.fullmatch(name)]:
            raise InvalidParams(f"{path}: {bad[0]!r} is no name of a slot; use letters, digits and _")
        if unknown := sorted(_names_in(self._file.task) - self._file.slots.keys()):
            raise InvalidParams(
                f"{path}: task uses {{{unknown[0]}}}, and there is no slot of that name; write {{{{ for {{"
            )
        self.fill(random.Random(0))

    def fill(self, rng: random.Random) -> dict[str, Any]:
        """Return a proposal with values drawn from a generator.

        Raises:
            InvalidParams: a value cannot be computed, or no draw of many meets the rules.
        """
        for _ in range(TRIES):
            values: dict[str, Any] = {}
            for name, slot in self._file.slots.items():
                values[name] = self._draw(name, slot, rng, values)
            if all(self._evaluate(one, values) for one in self._file.rules.where):
                return {name: _filled(value, values) for name, value in self._file.task.items()}
        raise InvalidParams(f"{self.path}: none of {TRIES} draws meets the rules; loosen `where` or the slots")

    def _draw(self, name: str, slot: Slot, rng: random.Random, values: Mapping[str, Any]) -> Any:
        if slot.integer is not None:
            return rng.randint(*slot.integer)
        if slot.decimal is not None:
            return round(rng.uniform(*slot.decimal), slot.digits)
        if slot.choice is not None:
            return rng.choice(slot.choice)
        if slot.day is not None:
            first, last = slot.day
            return (first + timedelta(rng.randint(0, (last - first).days))).isoformat()
        if slot.lines is not None:
            return rng.choice(self._lines[name])
        assert slot.compute is not None
        return self._evaluate(slot.compute, values)

    def _read(self, name: str, file: str) -> list[str]:
        place = self.path.parent / file
        try:
            found = [line.strip() for line in place.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidParams(f"{self.path}: slots.{name}: {place} cannot be read: {error}") from None
        if not found:
            raise InvalidParams(f"{self.path}: slots.{name}: {place} has no lines")
        return found

    def _evaluate(self, text: str, values: Mapping[str, Any]) -> Any:
        try:
            return evaluate(text, values)
        except (ValueError, ArithmeticError, TypeError, SyntaxError) as error:
            raise InvalidParams(f"{self.path}: {text!r} cannot be computed: {error}") from None


class Filling:
    """Makes candidates from a template, without a model."""

    mode: Mode = "template"
    per_request = 1
    whole = False
    spent: BudgetSpent | None = None

    def __init__(self, published: Published, template: Template, *, seed: int) -> None:
        self._published = published
        self._template = template
        self._seed = seed

    async def make(self, numbers: Sequence[int], kept: Sequence[Task]) -> list[Candidate | Rejected]:
        """Return the candidates with some numbers; each depends on the seed and its number only."""
        found: list[Candidate | Rejected] = []
        for number in numbers:
            proposal = self._template.fill(random.Random(f"{self._seed}/template/{number}"))
            made = candidate_of(self._published, f"generated-{number}", number, proposal)
            named = self._template.path.name
            found.append(Candidate(number, made, source=named) if isinstance(made, Task) else made)
        return found


_Operation = Callable[..., Any]
_OPERATIONS: Final = dict[type[ast.AST], _Operation]({
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.USub: operator.neg,
    ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
})  # fmt: skip
_FUNCTIONS: Final = dict[str, _Operation]({
    "min": min, "max": max, "abs": abs, "round": round, "len": len, "int": int, "str": str,
})  # fmt: skip
_LARGEST: Final = 10**60


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression over slots; it is read as data, so it can do nothing else.

    Raises:
        ValueError, ArithmeticError, TypeError, SyntaxError: it cannot be computed, or uses what is not allowed.
    """
    return _value(ast.parse(text.strip(), mode="eval").body, values)


def _value(node: ast.AST, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() | str() | bool()):
            return node.value
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) if (operation := _OPERATIONS.get(type(op))) is not None:
            one, other = _value(left, values), _value(right, values)
            if isinstance(op, ast.Pow) and (not isinstance(other, int) or abs(other) > _LARGEST_EXPONENT):
                raise ValueError(f"an exponent is a whole number up to {_LARGEST_EXPONENT}")
            if isinstance(op, ast.Mult | ast.Mod) and (isinstance(one, str) or isinstance(other, str)):
                raise ValueError("texts can only be joined with +")
            found = operation(one, other)
            if isinstance(found, int) and abs(found) > _LARGEST:
                raise ValueError("a number is too large")
            return found
        case ast.UnaryOp(op=op, operand=operand) if (operation := _OPERATIONS.get(type(op))) is not None:
            return operation(_value(operand, values))
        case ast.BoolOp(op=op, values=parts):
            found = [_value(part, values) for part in parts]
            return all(found) if isinstance(op, ast.And) else any(found)
        case ast.Compare(left=left, ops=ops, comparators=parts) if all(type(op) in _OPERATIONS for op in ops):
            chain = [_value(left, values), *(_value(part, values) for part in parts)]
            return all(
                _OPERATIONS[type(op)](*pair) for op, pair in zip(ops, zip(chain, chain[1:], strict=False), strict=True)
            )
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, values) for argument in arguments))
        case ast.Name(id=name):
            raise ValueError(f"there is no slot {name!r} above it")
        case _:
            raise ValueError(f"{ast.unparse(node)} is not allowed")


def _names_in(value: Any) -> set[str]:
    if isinstance(value, str):
        return {found[1] for found in _SLOT.finditer(value) if found[1]}
    if isinstance(value, Mapping):
        return {name for part in value.values() for name in _names_in(part)}
    if isinstance(value, list):
        return {name for part in value for name in _names_in(part)}
    return set()


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        whole = _SLOT.fullmatch(value)
        if whole is not None and whole[1]:
            return values[whole[1]]
        return _SLOT.sub(lambda found: str(values[found[1]]) if found[1] else found[0][0], value)
    if isinstance(value, Mapping):
        return {name: _filled(part, values) for name, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, values) for part in value]
    return value
