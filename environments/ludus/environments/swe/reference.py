"""Run hidden tests on packages of this library in this process, to learn what a right package returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.environments.swe.imports import IsolatedImports, compiled
from ludus.environments.swe.inside import run_check


@dataclass(frozen=True, slots=True)
class Check:
    """A hidden test with its inputs.

    Attributes:
        name: its name, for the trainer.
        text: the script.
        seed: what it draws its inputs from.
        fault: the fault that it is about, if it is about one of this task.
    """

    name: str
    text: str
    seed: int
    fault: str | None


def outcomes_of(sources: Mapping[str, str], checks: Sequence[Check]) -> list[list[Any]]:
    """Return what hidden tests note with a package of this library."""
    return [
        run_check(compiled(check.text, "hidden"), check.seed, IsolatedImports(sources).builtins) for check in checks
    ]
