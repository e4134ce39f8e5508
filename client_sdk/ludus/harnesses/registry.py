"""The agent programs by name."""

from __future__ import annotations

import importlib
from typing import Final

from ludus.harnesses.program import Program

_MODULES: Final = {
    "aider": "aider",
    "claude-code": "claude_code",
    "cline": "cline",
    "codex": "codex",
    "continue": "continue_cli",
    "copilot": "copilot",
    "gemini-cli": "gemini_cli",
    "hermes": "hermes",
    "mini-swe-agent": "mini_swe_agent",
    "opencode": "opencode",
    "openhands": "openhands",
    "pi": "pi",
    "qwen-code": "qwen_code",
}
NAMES: Final = tuple(_MODULES)


def find_program(name: str) -> Program:
    """Return the program of a name.

    Raises:
        KeyError: there is no such program.
    """
    module = importlib.import_module(f"ludus.harnesses.programs.{_MODULES[name]}")
    program: Program = module.PROGRAM
    return program
