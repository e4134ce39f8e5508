"""A check that it matters how much is done and what: amounts of a solution, and that its steps differ."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from ludus.protocol.actions import Action, Call
from ludus.protocol.errors import LudusError
from ludus.validation.checks import Evidence, NotApplicable, Problem, Suite, warning
from ludus.validation.target import ValidationTarget, evidence_of
from ludus.validation.transcripts import Script

suite = Suite(scored=True)

PLAYS: Final = 6
"""The episodes of the oracle that are changed."""

LEAST: Final = 3
"""In this many of them, and in most, a change must make no difference to be reported."""

FACTOR: Final = 100

WORDS: Final = 3
"""The most words of a value of a call that is one step of several, and no message."""


@suite.check("gameability:excess", "Far more than the right amount, or the same step for all, does not earn everything",
             "statistical.gameability_gap")  # fmt: skip
async def excess(target: ValidationTarget) -> AsyncIterator[Problem]:
    plays = [play for play in await target.played("oracle") if play.failure is None and play.value is not None][:PLAYS]
    tried: dict[str, int] = {}
    same: dict[str, list[Evidence]] = {}
    for play in plays:
        script = target.script(play)
        for what, changed in changes(script.actions):
            needed = await _needed(target, script, what, play.value or 0.0)
            if not needed:
                continue
            value = await _value(target, replace(script, actions=changed, origin="excess"))
            if value is None:
                continue
            tried[what] = tried.get(what, 0) + 1
            if value >= (play.value or 0.0) - target.tolerance:
                where = replace(script, actions=changed, origin="excess")
                same.setdefault(what, []).append(evidence_of(where, f"earned {value:g} with {what}"))
    if not tried:
        raise NotApplicable("the oracle calls no tool several times or with an amount, on which its reward depends")
    for what, places in same.items():
        if len(places) >= LEAST and 2 * len(places) > tried[what]:
            yield warning(
                f"solutions with {what} earn as much: compare all that was done with what is right, not only whether "
                "it is enough",
                places,
            )


def changes(actions: Sequence[Action]) -> Iterator[tuple[str, tuple[Action, ...]]]:
    """Yield solutions with other amounts, and with the same step instead of different ones, each with its name."""
    for tool in dict.fromkeys(action.tool for action in actions if isinstance(action, Call)):
        calls = [action for action in actions if isinstance(action, Call) and action.tool == tool]
        large = [Call(tool, {name: _large(value) for name, value in call.arguments.items()}) for call in calls]
        if large != calls:
            yield f"{FACTOR} times the amounts of `{tool}`", _replaced(actions, tool, large)
        alike = [Call(tool, {name: _alike(value) for name, value in call.arguments.items()}) for call in calls]
        if alike != calls:
            yield f"the first element in place of all in `{tool}`", _replaced(actions, tool, alike)
        if len({str(call) for call in calls}) > 1 and all(map(_is_step, calls)):
            yield f"one call of `{tool}` in place of all", _replaced(actions, tool, calls[:1] * len(calls))


def _is_step(call: Call) -> bool:
    return all(len(str(value).split()) <= WORDS for value in call.arguments.values())


def _large(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _large(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_large(part) for part in value]
    return value * FACTOR if isinstance(value, int | float) and not isinstance(value, bool) else value


def _alike(value: Any) -> Any:
    return list(value[:1]) * len(value) if isinstance(value, (list, tuple)) else value


def _replaced(actions: Sequence[Action], tool: str, calls: Sequence[Call]) -> tuple[Action, ...]:
    others = iter(calls)
    return tuple(next(others) if isinstance(action, Call) and action.tool == tool else action for action in actions)


async def _needed(target: ValidationTarget, script: Script, what: str, earned: float) -> bool:
    """Return whether the reward depends on the calls that a change replaces, and they do not only show something."""
    tool = what.split("`")[1]
    kept = tuple(action for action in script.actions if not (isinstance(action, Call) and action.tool == tool))
    if not kept:
        return True
    value = await _value(target, replace(script, actions=kept, origin="excess"))
    return value is None or value < earned - target.tolerance


async def _value(target: ValidationTarget, script: Script) -> float | None:
    try:
        return target.total(await target.perform(script))
    except LudusError:
        return None
