"""The text of an action that hands in an answer: the final message, or the only text that varies in the last call."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.protocol.actions import Action, Answer, Call


def final_text(actions: Sequence[Action]) -> str | None:
    """Return the text with which actions end: the final message, or the only text or number of the last call."""
    if not actions:
        return None
    final = actions[-1]
    if isinstance(final, Answer):
        return final.text
    name = _answer_argument(final)
    return None if name is None else str(final.arguments[name])


def takes_text(action: Action) -> bool:
    """Return whether an action's answer is a text, and no number."""
    if isinstance(action, Answer):
        return True
    name = _answer_argument(action)
    return name is not None and isinstance(action.arguments[name], str)


def with_final_text(action: Action, text: str) -> Action:
    """Return an action with another text, as a number where the action has one."""
    if isinstance(action, Answer):
        return Answer(text)
    name = _answer_argument(action)
    if name is None:
        return action
    return Call(action.tool, {**action.arguments, name: _like(action.arguments[name], text)})


def _answer_argument(call: Call) -> str | None:
    """Return the argument that holds a call's answer; None if it has none, or several."""
    names = [
        name
        for name, value in call.arguments.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    ]
    return names[0] if len(names) == 1 else None


def _like(example: object, text: str) -> object:
    if isinstance(example, str):
        return text
    try:
        return float(text) if isinstance(example, float) else int(text)
    except ValueError:
        return text
