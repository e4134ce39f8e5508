"""A check that an action earns its reward once, in whatever spelling, and not again after it was undone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from ludus.protocol.actions import Action, Call
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import LudusError
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error
from ludus.validation.core.target import ValidationTarget, evidence_of
from ludus.validation.core.transcripts import Script

suite = Suite(scored=True)

PLAYS: Final = 2
"""The episodes of the oracle whose actions are varied."""

PLACES: Final = 6
"""The most actions of one episode that are varied."""

CYCLES: Final = 4
"""How often an action is undone and done again."""

FARMED: Final = 2
"""From this number of further payments, varied actions earn a reward again and again."""


@suite.check("gameability:variation", "Another spelling of an action, or undoing it, earns nothing more",
             "statistical.gameability_gap")  # fmt: skip
async def variation(target: ValidationTarget) -> AsyncIterator[Problem]:
    if "gameability:repetition" in target.failed:
        raise NotApplicable("the same action earns its reward each time (see `gameability:repetition`)")
    plays = [play for play in await target.played("oracle") if play.failure is None][:PLAYS]
    farmed: list[Evidence] = []
    tried = False
    for play in plays:
        script = target.script(play)
        tools = await target.tools_of(
            next(row for row in target.tasks if (row.split, row.id) == (play.split, play.task.id))
        )
        for index in _varied_places(script.actions):
            action = script.actions[index]
            assert isinstance(action, Call)
            series: list[tuple[str, list[Action]]] = [("in other spellings", [*spellings(action)])]
            for description, variations in [*series, *_cycles(action, tools), *_detours(script.actions, action)]:
                if variations:
                    tried = True
                    if exploit := await _farmed(target, script, index, variations, description):
                        farmed.append(exploit)
                        break
    if farmed:
        yield error(
            "an action earns its reward again in another spelling, with another id, or after it was undone: compare "
            "what it means, and reward only what was not reached before",
            farmed,
        )
    elif not tried:
        raise NotApplicable("the oracle calls no tool with a text or a number before its last action")


def _varied_places(actions: Sequence[Action]) -> list[int]:
    """Return the places of the calls to vary, of each tool the first two."""
    indices: list[int] = []
    for index, action in enumerate(actions):
        if isinstance(action, Call) and action.arguments:
            similar = [
                position
                for position in indices
                if isinstance(call := actions[position], Call) and call.tool == action.tool
            ]
            if len(similar) < 2:
                indices.append(index)
    return indices[:PLACES]


def spellings(call: Call) -> Iterator[Call]:
    """Yield the same call with one text in other spellings, or with one number that is surely no other id."""
    for name, value in call.arguments.items():
        if isinstance(value, str) and 0 < len(value) <= 200:
            for fromkey in dict.fromkeys(_other_texts(value)):
                if fromkey != value:
                    yield Call(call.tool, {**call.arguments, name: fromkey})
        elif isinstance(value, int) and not isinstance(value, bool):
            for number in (value + 1_000_003, -value - 1, value + 2_000_003):
                yield Call(call.tool, {**call.arguments, name: number})


def _other_texts(text: str) -> Iterator[str]:
    words = text.split()
    yield from (text.upper(), text.lower(), text.title(), f" {text}", f"{text} ", f"{text}.", f"{text}!", f'"{text}"')
    yield from ("  ".join(words), "_".join(words), "-".join(words), "".join(words), " ".join(reversed(words)))
    if re.search(r"\d", text):
        yield from (re.sub(r"(\d+)", rf"{zeros}\g<1>", text) for zeros in ("0", "00", "000", "+"))
    yield from (f"./{text}", f"{text}/", f"the {text}", f"{text}\n", text.swapcase())


def _cycles(call: Call, tools: Sequence[ToolSpec]) -> Iterator[tuple[str, list[Action]]]:
    """Yield series in which an action is undone by another tool that takes the same arguments, and done again."""
    for tool in tools:
        properties = tool.input_schema.get("properties", {})
        required = tool.input_schema.get("required", ())
        if tool.name == call.tool or not {*required} <= {*call.arguments}:
            continue
        arguments: dict[str, Any] = {name: value for name, value in call.arguments.items() if name in properties}
        yield f"after `{tool.name}`, again and again", [Call(tool.name, arguments), call] * CYCLES


def _detours(actions: Sequence[Action], call: Call) -> Iterator[tuple[str, list[Action]]]:
    """Yield series in which an action is undone by the same tool with another value, and done again."""
    similar = [action for action in actions if isinstance(action, Call) and action.tool == call.tool]
    for name, value in call.arguments.items():
        elsewhere = next(
            (
                similar_call.arguments[name]
                for similar_call in similar
                if similar_call.arguments.get(name, value) != value
            ),
            None,
        )
        if elsewhere is not None and len(call.arguments) > 1:
            away = Call(call.tool, {**call.arguments, name: elsewhere})
            yield f"after another `{name}`, again and again", [away, call] * CYCLES


async def _farmed(
    target: ValidationTarget, script: Script, index: int, variations: Sequence[Action], description: str
) -> Evidence | None:
    """Return evidence if further actions earn at least `FARMED` times what the action itself earned."""

    def series(*actions: Action) -> Script:
        return Script(script.split, script.task, script.seed, (*script.actions[:index], *actions), "variation")

    action, end = script.actions[index], script.actions[-1]
    varied = series(action, *variations)
    once, again = await _steps_paid(target, series(action)), await _steps_paid(target, varied)
    if once and again and once[-1] > 0:
        paid = sum(value >= 0.5 * once[-1] for value in again[index + 1 :])
        if paid >= FARMED:
            tool = getattr(action, "tool", "")
            return evidence_of(varied, f"`{tool}` earned {once[-1]:g}, and {paid} more times {description}")
        return None
    if index == len(script.actions) - 1:
        return None
    # The grade at the end may count what was done.
    without, with_it = await target.reward(series(end)), await target.reward(series(action, end))
    if without is None or with_it is None or with_it <= without + target.tolerance:
        return None
    farmed = await target.reward(series(action, *variations, end))
    if farmed is None or farmed - with_it < FARMED * (with_it - without) - target.tolerance:
        return None
    tool = getattr(action, "tool", "")
    return evidence_of(
        series(action, *variations, end),
        f"`{tool}` is worth {with_it - without:g}, and {farmed - without:g} if repeated {description}",
    )


async def _steps_paid(target: ValidationTarget, script: Script) -> list[float] | None:
    """Return the reward of each step of a script; None if it could not be played."""
    try:
        transcript = await target.perform(script)
    except LudusError:
        return None
    rewards = dict(transcript.part("reward"))
    return [
        float((rewards.get(f"reward {number}") or {}).get("value") or 0.0)
        for number in range(1, len(script.actions) + 1)
    ]
