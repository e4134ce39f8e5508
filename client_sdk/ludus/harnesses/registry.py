"""The agent programs by name."""

from __future__ import annotations

import importlib
from typing import Final

from ludus.harnesses.program import Program

NAMES: Final = ("claude-code", "codex", "opencode", "pi")


def find_program(name: str) -> Program:
    """Return the program of a name.

    Raises:
        KeyError: there is no such program.
    """
    if name not in NAMES:
        raise KeyError(name)
    module = importlib.import_module(f"ludus.harnesses.programs.{name.replace('-', '_')}")
    program: Program = module.PROGRAM
    return program
