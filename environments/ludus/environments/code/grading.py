"""The reward of a program: what it passes beyond any guess, and whether it passes everything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import dedent
from typing import Final

from ludus.environments.code.checks import GROUPS, Case, constant_passes
from ludus.environments.code.problem import Problem
from ludus.environments.code.running import CaseResult, run_cases
from ludus.protocol import Component, Reward
from ludus.sandbox import Sandbox
from ludus.server import ToolError

LONGEST: Final = 20_000
"""The most characters of a program."""
CASES_WEIGHT: Final = 0.5
"""The weight of the cases that a program passes; the rest is for passing all."""

_BLOCK: Final = re.compile(
    r"```[ \t]*(?:(?:python|py)[\d.]*(?![\w-])[^\n`]*)?\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL | re.I
)


def check_program(program: str, entry: str | None = None) -> str:
    """Return a program if it can be run at all.

    Raises:
        ToolError: it is empty or too long, has characters that no program has, or does not define `entry`.
    """
    if not program.strip():
        raise ToolError("The program is empty.")
    if len(program) > LONGEST:
        raise ToolError(f"The program has {len(program)} characters; at most {LONGEST} are allowed.")
    if "\0" in program or not program.isascii() and _has_surrogates(program):
        raise ToolError("The program has a NUL character or half of a surrogate pair, which Python does not accept.")
    if entry is not None and not defines(program, entry):
        raise ToolError(f"The program does not define {entry}. Give the whole program, with its first line.")
    return program


def defines(program: str, entry: str) -> bool:
    """Return whether a text seems to define a name; whether it does shows when it runs."""
    return re.search(rf"^(?:(?:async )?def|class)\s+{entry}\b|^{entry}\s*[:=]", program, re.MULTILINE) is not None


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def program_in(message: str, entry: str) -> str | None:
    """Return the program that a final message gives; None if it gives none.

    It is the last code block that defines the entry, or else the whole message if that does. A block in a list is
    indented as a whole.
    """
    message = message.replace("\r\n", "\n")
    blocks = [block for text in _BLOCK.findall(message) if defines(block := dedent(text), entry)]
    if blocks:
        return str(blocks[-1])
    return message if "```" not in message and defines(message, entry) else None


async def grade_program(box: Sandbox, problem: Problem, hidden: Sequence[Case], program: str | None) -> Reward:
    """Return the reward of a program.

    Args:
        box: a sandbox in which nothing of the policy has run.
        problem: the problem.
        hidden: its hidden cases.
        program: the program; None if there is none.

    Raises:
        SandboxFailed: the machine lost the sandbox, so there is no reward.
    """
    if program is None:
        return reward_of(hidden, [CaseResult(None)] * len(hidden))
    results = await run_cases(box, program, problem.entry, problem.kind, [case.calls for case in hidden])
    return reward_of(hidden, results)


def reward_of(hidden: Sequence[Case], results: Sequence[CaseResult]) -> Reward:
    """Return the reward of the results of all hidden cases.

    The component `cases` counts the passed cases that no guess solves, minus as many as a constant passes; in a
    repair, also minus the cases that the given program passes and this one fails.
    """
    passed = [result.matches(case.expected) for case, result in zip(hidden, results, strict=True)]
    scored = sum(not case.guessed for case in hidden)
    gained = sum(one and not case.guessed for case, one in zip(hidden, passed, strict=True))
    lost = sum(case.given and not one for case, one in zip(hidden, passed, strict=True))
    constant = constant_passes(hidden)
    solved = all(passed)
    share = float(solved) if scored <= constant else max(0.0, (gained - lost - constant) / (scored - constant))
    components = {
        "cases": Component(value=share, weight=CASES_WEIGHT),
        "solved": Component(value=float(solved), weight=1 - CASES_WEIGHT),
    }
    for group in GROUPS:
        members = [one for case, one in zip(hidden, passed, strict=True) if case.group == group]
        if members:
            components[group] = Component(value=sum(members) / len(members), weight=0.0)
    return Reward.of(CASES_WEIGHT * share + (1 - CASES_WEIGHT) * solved, components)
