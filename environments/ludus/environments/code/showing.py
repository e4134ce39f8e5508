"""Calls and examples as text, as a person would type them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ludus.environments.code.checks import Case
from ludus.environments.code.problem import Problem
from ludus.environments.code.running import render


def call_text(problem: Problem, calls: Sequence[Any], place: int) -> str:
    """Return the call of a case that leads to its outcome at a place; at most 600 characters."""
    if problem.kind == "class":
        lines = [f"one = {problem.entry}({_arguments(calls[0])})"]
        lines += [f"one.{method}({_arguments(arguments)})" for method, *arguments in calls[1 : place + 2]]
        text = "; ".join(lines)
    elif problem.kind == "iterator":
        arguments, count = calls[place]
        text = f"list(itertools.islice({problem.entry}({_arguments(arguments)}), {count}))"
    else:
        text = f"{problem.entry}({_arguments(calls[place])})"
    return text if len(text) <= 600 else f"… {text[-600:]}"


def example_text(problem: Problem, case: Case) -> str:
    """Return an example: calls with their outcomes."""
    if problem.kind == "class":
        lines = [f">>> one = {problem.entry}({_arguments(case.calls[0])})"]
        for (method, *arguments), outcome in zip(case.calls[1:], case.expected, strict=True):
            lines += [f">>> one.{method}({_arguments(arguments)})", render(outcome)]
        return "\n".join(lines)
    return "\n".join(
        f">>> {call_text(problem, case.calls, index)}\n{render(outcome)}" for index, outcome in enumerate(case.expected)
    )


def _arguments(arguments: Sequence[Any]) -> str:
    return ", ".join(map(repr, arguments))
