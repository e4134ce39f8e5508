"""Verifiers: they read the final state of the servers, the agent's calls and its final message, and give the reward."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from ludus.formats.mcp.instances import Instance, Reading
from ludus.formats.mcp.tasks import Row, StateCheck
from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import did_you_mean
from ludus.protocol.rewards import Reward
from ludus.server import Environment, values_equal
from ludus.server.rewards.checklist import load_checklist
from ludus.server.rewards.rubric import Rubric
from ludus.server.tasks.loading import import_file

_CHECKLISTS = (".json", ".toml")


class Verifier(Protocol):
    """Gives the reward of an episode that has ended."""

    async def __call__(self, row: Row, instance: Instance, answer: str) -> float | Reward:
        """Return the reward."""
        ...


def read_verifier(name: str | None, rows: Sequence[Row]) -> Verifier | Rubric:
    """Return the verifier that an option names, checked against the tasks.

    Raises:
        AuthoringError: it does not exist, or a task lacks what it compares with.
    """
    if name is None or name in ("state", "answer"):
        lacking = [row for row in rows if not _has(row, name)]
        if lacking:
            what = {"state": "`expect`", "answer": "`answer`", None: "neither `answer` nor `expect`"}[name]
            verb = "has" if name is None else "lacks"
            raise AuthoringError(
                f"the task {lacking[0].id!r} {verb} {what}, so nothing says what it earns; add it, or give the option "
                "verifier=FILE.py:FUNCTION"
            )
        return _Fields(use_answer=name != "state", use_state=name != "answer")
    if name.endswith(_CHECKLISTS):
        return load_checklist(name, functions={"state": _state_item})
    place, separator, function = name.rpartition(":")
    if not separator or not function:
        raise AuthoringError(
            f"the verifier {name!r} is none of: FILE.py:FUNCTION, module:FUNCTION, a checklist FILE.json or FILE.toml, "
            "`state`, `answer`"
        )
    return _Function(_find_function(place, function))


def _has(row: Row, name: str | None) -> bool:
    found = {"state": bool(row.checks), "answer": row.answer is not None}
    return any(found.values()) if name is None else found[name]


# ── the fields of a task ───────────────────────────────────────────────────────────────────────────────────────────


class _Fields:
    """Compares the final message and the final state with the task's fields; all must agree."""

    def __init__(self, *, use_answer: bool, use_state: bool) -> None:
        self._use_answer = use_answer
        self._use_state = use_state

    async def __call__(self, row: Row, instance: Instance, answer: str) -> Reward:
        parts: dict[str, float] = {}
        if self._use_answer and row.answer is not None:
            parts["answer"] = float(is_right(answer, row.answer))
        for number, check in enumerate(row.checks if self._use_state else (), 1):
            parts[f"state {number}" if len(row.checks) > 1 else "state"] = float(await holds(check, instance))
        return Reward.of(float(all(parts.values())), parts)


def is_right(given: str, right: Any) -> bool:
    """Return whether a final message is the answer: equal as a number, or as text without regard to case and spaces."""
    if isinstance(right, (list, tuple)):
        return any(is_right(given, one) for one in right)
    if isinstance(right, int | float) and not isinstance(right, bool):
        try:
            return math.isclose(float(given.strip().replace(",", "")), right, rel_tol=1e-9, abs_tol=1e-12)
        except ValueError:
            return False
    return " ".join(given.split()).casefold() == " ".join(str(right).split()).casefold()


async def holds(check: StateCheck, instance: Instance) -> bool:
    """Return whether the state is as a check says."""
    if check.resource is not None:
        found = await instance.resource(check.resource)
    else:
        found = await instance.read(check.tool or "", check.arguments)
    if found.is_error != bool(check.error):
        return False
    given = check.model_fields_set
    if "equals" in given and not _equals(found, check.equals):
        return False
    if "includes" in given and not _includes(found.data, check.includes):
        return False
    wanted = (check.contains,) if isinstance(check.contains, str) else check.contains
    unwanted = (check.lacks,) if isinstance(check.lacks, str) else check.lacks
    return all(one in found.text for one in wanted) and not any(one in found.text for one in unwanted)


def _equals(found: Reading, expected: Any) -> bool:
    if isinstance(expected, str) and found.text.strip() == expected.strip():
        return True
    return values_equal(found.data, expected, exact_types=False)


def _includes(found: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping):
        return isinstance(found, Mapping) and all(
            name in found and _includes(found[name], value) for name, value in expected.items()
        )
    if isinstance(expected, (list, tuple)):
        return isinstance(found, (list, tuple)) and all(
            any(_includes(one, value) for one in found) for value in expected
        )
    return values_equal(found, expected, exact_types=False)


async def _state_item(attempt: Any, **fields: Any) -> bool:
    """Judge an item `state` of a checklist, whose arguments are those of `expect`."""
    return await holds(StateCheck.model_validate(fields), attempt.environment.instance)


# ── functions ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _Function:
    """Calls `function(task, calls, answer, read)`; a plain function runs in a thread, and its `read` waits there."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    async def __call__(self, row: Row, instance: Instance, answer: str) -> float | Reward:
        task = row.model_dump(mode="json", exclude_unset=True)
        calls = tuple(instance.calls)
        if inspect.iscoroutinefunction(self._function):
            return _reward(await self._function(task, calls, answer, instance.read))
        loop = asyncio.get_running_loop()

        def read(tool: str, arguments: Mapping[str, Any] | None = None) -> Reading:
            return asyncio.run_coroutine_threadsafe(instance.read(tool, arguments), loop).result()

        return _reward(await asyncio.to_thread(self._function, task, calls, answer, read))


def _reward(value: Any) -> float | Reward:
    if isinstance(value, Reward):
        return value
    if isinstance(value, bool | int | float):
        return float(value)
    if inspect.isawaitable(value):
        raise TypeError("the verifier returned a coroutine; declare it with `async def`")
    raise TypeError(f"the verifier returned {type(value).__name__}; return a number, a bool or a Reward")


def _find_function(place: str, name: str) -> Callable[..., Awaitable[Any] | Any]:
    if place.endswith(".py"):
        module = import_file(Path(place), f"{place}:{name}")
    else:
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise AuthoringError(f"the verifier {place}:{name} needs the module {error.name!r}") from None
    function: Any = getattr(module, name, None)
    if not callable(function):
        raise AuthoringError(f"{place} has no function {name!r}{did_you_mean(name, vars(module))}")
    try:
        inspect.signature(function).bind({}, (), "", None)
    except TypeError as error:
        raise AuthoringError(f"the verifier {place}:{name} must take (task, calls, answer, read): {error}") from None
    return cast(Callable[..., Any], function)


def grading(verifier: Verifier) -> Callable[..., Awaitable[float | Reward]]:
    """Return a method `grade` for environments of MCP servers."""

    async def grade(self: Environment[Any], answer: str) -> float | Reward:
        """Return the verifier's reward."""
        environment: Any = self
        return await verifier(environment.line, environment.instance, answer)

    return grade
