"""A check that it matters how much is done and what: amounts of a solution, and that its steps differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from ludus.protocol.actions import Action, Call
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, warning
from ludus.validation.core.target import ValidationTarget, evidence_of
from ludus.validation.core.transcripts import Script

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
    tried: Counter[str] = Counter()
    by_change: dict[str, list[Evidence]] = {}
    for play in plays:
        script = target.script(play)
        least = (play.value or 0.0) - target.tolerance
        for tool in dict.fromkeys(action.tool for action in script.actions if isinstance(action, Call)):
            if not await _is_needed(target, script, tool, least):
                continue
            for change, actions in changes(script.actions, tool):
                changed = replace(script, actions=actions, origin="excess")
                if (value := await target.reward(changed)) is None:
                    continue
                tried[change] += 1
                if value >= least:
                    by_change.setdefault(change, []).append(evidence_of(changed, f"earned {value:g} with {change}"))
    if not tried:
        raise NotApplicable("the oracle calls no tool several times or with an amount, on which its reward depends")
    for change, examples in by_change.items():
        if len(examples) >= LEAST and 2 * len(examples) > tried[change]:
            yield warning(
                f"solutions with {change} earn as much: compare all that was done with what is right, not only whether "
                "it is enough",
                examples,
            )


def changes(actions: Sequence[Action], tool: str) -> Iterator[tuple[str, tuple[Action, ...]]]:
    """Yield solutions in which a tool gets other amounts, or the same step in place of different ones, with names."""
    calls = [action for action in actions if isinstance(action, Call) and action.tool == tool]
    large = [Call(tool, {name: _large(value) for name, value in call.arguments.items()}) for call in calls]
    alike = [Call(tool, {name: _alike(value) for name, value in call.arguments.items()}) for call in calls]
    repeated = calls[:1] * len(calls) if all(map(_is_step, calls)) else calls
    for change, changed_calls in (
        (f"{FACTOR} times the amounts of `{tool}`", large),
        (f"the first element in place of all in `{tool}`", alike),
        (f"one call of `{tool}` in place of all", repeated),
    ):
        if changed_calls != calls:
            yield change, _replaced(actions, tool, changed_calls)


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
    replacements = iter(calls)
    return tuple(
        next(replacements) if isinstance(action, Call) and action.tool == tool else action for action in actions
    )


async def _is_needed(target: ValidationTarget, script: Script, tool: str, least: float) -> bool:
    """Return whether a solution earns less without the calls of a tool; if not, the tool may only show something."""
    remaining = tuple(action for action in script.actions if not (isinstance(action, Call) and action.tool == tool))
    value = await target.reward(replace(script, actions=remaining, origin="excess")) if remaining else None
    return value is None or value < least
