"""Blind searches: policies that do not read the task, and try values until something says that one is right."""

from __future__ import annotations

import ast
import asyncio
import doctest
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from ludus.protocol.actions import Action, Call
from ludus.protocol.content import text_of
from ludus.protocol.episodes import StepResult, ToolSpec
from ludus.protocol.errors import LudusError
from ludus.validation.core.target import ValidationTarget
from ludus.validation.shortcuts.memory import Memory, Remembered
from ludus.validation.shortcuts.submission import final_text, with_final_text

REPAIR_SECONDS: Final = 4.0
"""The longest search for a mutant of one program."""

CANDIDATES: Final = 150
"""The most values that are tried in one episode."""

WIDEST: Final = 1_000
"""Whole numbers are tried one after another if the answers of training tasks span at most this range."""

PROBED: Final = 6
"""The training tasks on which right and wrong values are tried, to learn what the environment says."""

_FENCE: Final = re.compile(r"^```(?:python|py)?[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Attempt(Protocol):
    """A search that is ready to be played."""

    def applies(self, task: Remembered) -> bool:
        """Return whether the search can be tried on a task."""
        ...

    async def __call__(self, task: Remembered) -> Sequence[Action] | None:
        """Return the actions with which the search ends."""
        ...


# ── repairing a program ──────────────────────────────────────────────────────────────────────────────────────────────


def program_and_examples(prompt: str) -> tuple[str, list[tuple[str, str]]] | None:
    """Return the first Python program of a prompt, and its examples in the form of doctest; None if one is missing."""
    program = next((match[1] for match in _FENCE.finditer(prompt) if _defines(match[1])), None)
    try:
        examples = doctest.DocTestParser().get_examples(prompt)
    except ValueError:
        return None
    if program is None or not examples:
        return None
    return program, [(example.source, example.want) for example in examples]


def _defines(text: str) -> bool:
    try:
        return any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in ast.parse(text).body)
    except SyntaxError:
        return False


@dataclass(frozen=True, slots=True)
class _BlindRepair:
    end: Action

    def applies(self, task: Remembered) -> bool:
        return program_and_examples(task.prompt) is not None

    async def __call__(self, task: Remembered) -> Sequence[Action] | None:
        task_parts = program_and_examples(task.prompt)
        assert task_parts is not None
        program, examples = task_parts
        repaired = await _search_mutants(program, examples)
        return [with_final_text(self.end, repaired if repaired is not None else program)]


async def repair_blindly(target: ValidationTarget, memory: Memory) -> Attempt | None:
    """Return the search for a mutant whose examples hold; None if no prompt has a program with examples."""
    if not any(program_and_examples(task.prompt) is not None for task in memory.tests):
        return None
    solutions = await memory.solutions()
    end = next((actions[-1] for _, actions in solutions if _defines(final_text(actions) or "")), None)
    return None if end is None else _BlindRepair(end)


async def _search_mutants(program: str, examples: Sequence[tuple[str, str]]) -> str | None:
    request = json.dumps({"program": program, "examples": examples, "seconds": REPAIR_SECONDS}).encode()
    path = Path(__file__).with_name("mutation_search.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", str(path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(3 * REPAIR_SECONDS):
            output, _ = await process.communicate(request)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    repaired = json.loads(output) if process.returncode == 0 and output else None  # the program may end the process
    return repaired if isinstance(repaired, str) else None


# ── trying values ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Teller:
    """A tool that says of a value whether it is right."""

    tool: str
    argument: str
    others: Mapping[str, Any]
    number: bool
    """Whether it takes a number."""
    right: frozenset[str]
    """What it says of right values, without the values themselves."""
    submits: bool
    """Whether a right value ends the episode."""

    def call(self, value: str) -> Call:
        return Call(self.tool, {**self.others, self.argument: _number(value) if self.number else value})


@dataclass(frozen=True, slots=True)
class _BlindSearch:
    target: ValidationTarget
    teller: _Teller
    candidates: Sequence[str]
    end: Action

    def applies(self, task: Remembered) -> bool:
        return True

    async def __call__(self, task: Remembered) -> Sequence[Action] | None:
        """Try values in an episode, and return the calls that were made with the value that was called right."""
        actions: list[Action] = []
        async with self.target.episode(task.row) as episode:
            for value in self.candidates:
                actions.append(self.teller.call(value))
                result = await episode.call(actions[-1])  # type: ignore[arg-type]
                if result.end_reason is not None:
                    return actions
                if reply(result, value) in self.teller.right:
                    return actions if self.teller.submits else [*actions, with_final_text(self.end, value)]
        return actions


async def blind_search(target: ValidationTarget, memory: Memory) -> Attempt | None:
    """Return the search that tries values with a tool that says what is right; None if no tool does."""
    answered = [(row, actions) for row, actions in await memory.solutions() if final_text(actions) is not None]
    texts = [final_text(actions) or "" for _, actions in answered]
    if len({*texts}) < 2 or any(_defines(text) for text in texts[:1]):
        return None
    candidates = _candidates(texts)
    for tool in target.info.tools:
        for argument, schema in tool.input_schema.get("properties", {}).items():
            teller = await _learned(target, tool, argument, schema, answered)
            if teller is not None:
                return _BlindSearch(target, teller, candidates, answered[0][1][-1])
    return None


def _candidates(texts: Sequence[str]) -> list[str]:
    """Return the values to try: those of training tasks, the most frequent first, and all numbers between them."""
    values = [text for text, _ in Counter(texts).most_common()]
    numbers = [int(text) for text in values if re.fullmatch(r"-?\d{1,9}", text)]
    if len(numbers) > len(values) / 2 and max(numbers) - min(numbers) <= WIDEST:
        values += map(str, range(min(numbers), max(numbers) + 1))
    return list(dict.fromkeys(values))[:CANDIDATES]


async def _learned(
    target: ValidationTarget,
    tool: ToolSpec,
    argument: str,
    schema: Any,
    answered: Sequence[tuple[Any, Sequence[Action]]],
) -> _Teller | None:
    """Return what a tool says of right values, if it says something else of wrong ones."""
    type_name = schema.get("type") if isinstance(schema, dict) else None
    number = type_name in ("integer", "number")
    if type_name not in ("string", "integer", "number"):
        return None
    arguments = _other_arguments(tool, argument, [actions for _, actions in answered])
    if arguments is None:
        return None
    texts = [final_text(actions) or "" for _, actions in answered]
    right: set[str] = set()
    wrong: set[str] = set()
    submits = False
    for index, (row, _) in enumerate(answered[:PROBED]):
        value = texts[index]
        if number and _number(value) is None:
            return None
        false = next(
            (text for text in texts[index:] + texts if text != value and (not number or _number(text) is not None)),
            None,
        )
        if false is None:
            return None
        probe = _Teller(tool.name, argument, arguments, number, frozenset(), False)
        try:
            outcomes = []
            for tried in (false, value):
                async with target.episode(row) as episode:
                    outcomes.append(await episode.call(probe.call(tried)))
        except LudusError:
            return None
        if outcomes[0].end_reason is not None or outcomes[0].error is not None:
            return None  # a wrong value ends the episode, or is refused
        wrong.add(reply(outcomes[0], false))
        right.add(reply(outcomes[1], value))
        submits = submits or outcomes[1].end_reason is not None
    if not right or right & wrong or len(right) > PROBED / 2:
        return None
    return _Teller(tool.name, argument, arguments, number, frozenset(right), submits)


def _other_arguments(tool: ToolSpec, argument: str, solutions: Sequence[Sequence[Action]]) -> dict[str, Any] | None:
    """Return values for a tool's other required arguments, as the oracle uses them; None if it never calls the tool."""
    required = [name for name in tool.input_schema.get("required", ()) if name != argument]
    if not required:
        return {}
    for actions in solutions:
        for action in actions:
            if (
                isinstance(action, Call)
                and action.tool == tool.name
                and all(name in action.arguments for name in required)
            ):
                return {name: action.arguments[name] for name in required}
    return None


def reply(result: StepResult, *values: Any) -> str:
    """Return the text of a result without the values of its call and without numbers, so that replies compare."""
    text = text_of(result.content) + (f" {result.error.code}" if result.error is not None else "")
    for value in values:
        text = text.replace(str(value), "")
    return re.sub(r"\d+", "#", text).strip().lower()


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
