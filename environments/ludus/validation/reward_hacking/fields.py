"""Tricks with tools that set a named field to a value: fields that the task never asks for may decide the reward.

The names are the keys in the code of the class, such as `decision` in `record["decision"]`. A policy that may set such
a field makes a comparison come true: it gives both sides the same value, or one side a value that holds already.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ludus.checks.disclosure import private_leaves
from ludus.protocol.actions import Action, Call
from ludus.validation.core.target import ValidationTarget
from ludus.validation.reward_hacking.files import class_trees

NAMES: Final = 6
"""The most names that are tried."""

VALUES: Final = 6
"""The most values that each of them gets."""

SAME: Final = "the same"


def keys_in_code(target: ValidationTarget) -> list[str]:
    """Return the keys with which the code of the class reads or fills mappings."""
    assert target.local is not None
    keys: list[Any] = []
    for tree in class_trees(target.local.cls):
        for node in ast.walk(tree):
            match node:
                case ast.Subscript(slice=ast.Constant(value=key)):
                    keys.append(key)
                case ast.Dict():
                    keys += [key.value for key in node.keys if isinstance(key, ast.Constant)]
                case ast.Call(
                    func=ast.Attribute(attr="get" | "pop" | "setdefault"), args=[ast.Constant(value=key), *_]
                ):
                    keys.append(key)
                case _:
                    pass
    return [key for key in dict.fromkeys(keys) if isinstance(key, str)]


def _compared(target: ValidationTarget) -> list[str]:
    """Return the words with which the code of the class compares values."""
    assert target.local is not None
    sides = [
        side
        for tree in class_trees(target.local.cls)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
    ]
    return [side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)]


def forged(target: ValidationTarget, task: Any, solution: Sequence[Action]) -> Iterator[tuple[list[Action], str]]:
    """Yield tricks on a task, each with its name.

    Args:
        target: what is checked.
        task: the task.
        solution: the oracle's actions on it, whose last one ends the episode.
    """
    keys = keys_in_code(target)
    words = list(dict.fromkeys([
        *_compared(target), *keys, *(part for _, path, _ in private_leaves(task) for part in path.split(".")[1:]),
        *(value for _, _, value in private_leaves(task)),
    ]))  # fmt: skip
    for name, value, calls in _setters(solution, keys):
        used = list(dict.fromkeys(call.arguments[name] for call in calls))
        unused = [key for key in keys if key not in used][:NAMES]
        records = list({str(sorted(_others(call, name, value).items())): call for call in calls}.values())
        for key in unused:
            actions: list[Action] = [
                _with(call, {name: field, value: SAME}) for call in records for field in (*used, key)
            ]
            yield actions, f"{calls[0].tool}: {key} and what the task asks for set to the same"
        for key, word in itertools.product(unused, words[:VALUES]):
            if word != key:
                alone: list[Action] = [_with(call, {name: key, value: word}) for call in records]
                yield alone, f"{calls[0].tool}: {key} set to {word!r}"


def _setters(solution: Sequence[Action], keys: Sequence[str]) -> list[tuple[str, str, list[Call]]]:
    """Return the arguments for the name and the value of each tool that sets fields, with the calls of it.

    Args:
        solution: the actions that use the tools.
        keys: the keys in the code; arguments that hold one of them are names for certain.
    """
    by_tool: dict[str, list[Call]] = {}
    for action in solution[:-1]:
        if isinstance(action, Call):
            by_tool.setdefault(action.tool, []).append(action)
    setters: list[tuple[str, str, list[Call]]] = []
    for calls in by_tool.values():
        texts = [name for name, value in calls[0].arguments.items() if isinstance(value, str)]
        alike = [call for call in calls if call.arguments.keys() == calls[0].arguments.keys()]
        setters += [
            (name, value, alike)
            for name, value in itertools.permutations(texts, 2)
            if all(str(call.arguments[name]).isidentifier() for call in alike)
        ]
    certain = [setter for setter in setters if any(call.arguments[setter[0]] in keys for call in setter[2])]
    return certain or setters


def _others(call: Call, name: str, value: str) -> dict[str, Any]:
    return {key: content for key, content in call.arguments.items() if key not in (name, value)}


def _with(call: Call, arguments: dict[str, str]) -> Call:
    return Call(call.tool, {**call.arguments, **arguments})
