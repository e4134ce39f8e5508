"""Checks what a class with seats declares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ludus.protocol.errors import AuthoringError
from ludus.server.authoring.environment import Environment
from ludus.server.authoring.seats import Match, SeatedEnvironment
from ludus.server.authoring.tools import Tool

_NAME_CHARS = 64


def check_seats(cls: type[Environment[Any]], where: str, tools: Iterable[Tool]) -> None:
    """Refuse a class that declares its seats wrong, or uses what episodes with seats do not have.

    Raises:
        AuthoringError: with what to change.
    """
    if not issubclass(cls, SeatedEnvironment):
        for tool in tools:
            if tool.move or tool.seats is not None:
                raise AuthoringError(
                    f"{where}: tool {tool.name!r} has `move` or `seats`, which are for subclasses of SeatedEnvironment"
                )
        return
    match = getattr(cls, "match_class", None)
    if not (isinstance(match, type) and issubclass(match, Match)):
        raise AuthoringError(f"{where} has no match; set `match_class` to a subclass of ludus.server.Match")
    _check_names(f"{match.__qualname__}.seats", match.seats, least=2)
    _check_names(f"{match.__qualname__}.opponents", match.opponents, least=0)
    if match.opponents and match.act is Match.act:
        raise AuthoringError(f"{match.__qualname__} has opponents and no act(self, seat, opponent), which plays them")
    if cls.observe is SeatedEnvironment.observe:
        raise AuthoringError(f"{where} has no observe(self); return what the seat sees")
    for tool in tools:
        if tool.concurrent:
            raise AuthoringError(f"{where}: tool {tool.name!r} is concurrent, but calls of a match never overlap")
        unknown = [seat for seat in tool.seats or () if seat not in match.seats]
        if unknown:
            raise AuthoringError(f"{where}: tool {tool.name!r} is for {unknown[0]!r}, which is not one of the seats")
    _check_features(cls, where)


def _check_names(what: str, names: Sequence[str], least: int) -> None:
    if isinstance(names, str) or len(names) < least or len(set(names)) != len(names):
        raise AuthoringError(f"{what} must be a list of at least {least} different names, not {names!r}")
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARS or not name.isprintable() or name == "all":
            raise AuthoringError(f"{what} holds {name!r}; use 1 to {_NAME_CHARS} printable characters, and not 'all'")


def _check_features(cls: type[SeatedEnvironment[Any, Any]], where: str) -> None:
    """Refuse what episodes with seats do not have."""
    refused = {
        "`grade`, a rubric or `@reward`": cls._binding is not None or cls.grade is not Environment.grade,
        "`group_rubric` or `score_group`": cls.score_group.__func__ is not Environment.score_group.__func__,  # type: ignore[attr-defined]
        "`forkable`": cls.forkable,
        '`durable = "snapshot"`': cls.durable == "snapshot",
        "`outside_effects`": cls.outside_effects,
    }
    for what, used in refused.items():
        if used:
            raise AuthoringError(f"{where} has seats and {what}, which do not go together; rewards come from the match")
