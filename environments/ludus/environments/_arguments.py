"""Readers of tools' arguments: texts that are dates, choices or words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from ludus.server import ToolError


def read_date(text: str, name: str = "the date") -> str:
    """Return a date in its usual form.

    Raises:
        ToolError: it is none.
    """
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text.strip(), re.ASCII):
        try:
            return date.fromisoformat(text.strip()).isoformat()
        except ValueError:
            pass
    raise ToolError(f"Give {name} as YYYY-MM-DD, such as 2026-03-09, not {text[:40]!r}.")


def one_of(text: str, choices: Sequence[str], name: str) -> str:
    """Return the choice that a text names.

    Raises:
        ToolError: it names none.
    """
    if text.strip().lower() in choices:
        return text.strip().lower()
    raise ToolError(f"{name} is one of {', '.join(choices)}, not {text[:40]!r}.")


def filled(text: str, name: str) -> str:
    """Return a text without spaces around it.

    Raises:
        ToolError: it is empty.
    """
    if not text.strip():
        raise ToolError(f"{name} must not be empty.")
    return text.strip()
