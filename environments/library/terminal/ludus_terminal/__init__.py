"""Reach a goal with bash in a sandbox."""

from __future__ import annotations

from ludus_terminal.environment import Terminal, TerminalTask

__all__ = ["Terminal", "TerminalTask"]
