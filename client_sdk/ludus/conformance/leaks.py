"""Search replies for what their receiver must not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_TELLING: Final = frozenset(
    {"reward", "rewards", "score", "scores", "components", "metadata", "endReason", "end_reason", "finished", "task",
     "seed", "total", "grade"}
)  # fmt: skip
"""Keys that a reply of the agent endpoint must not contain."""
_SHOWN: Final = frozenset(
    {"content", "structuredContent", "tools", "prompts", "messages", "instructions", "capabilities"}
)
"""The parts of results of MCP that are for the agent. They may repeat what a task says."""


def find_leak(value: Any, path: str = "") -> str | None:
    """Return the path of a key that reveals more than an agent may know; None if a reply has no such key."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            location = f"{path}.{key}"
            if key in _TELLING or str(key).startswith("dev.ludus/"):
                return location
            if leak := find_leak(inner, location):
                return leak
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            if leak := find_leak(inner, f"{path}[{position}]"):
                return leak
    return None


def find_private(value: Any, hidden: Mapping[str, Any], path: str = "") -> str | None:
    """Return where a value holds something that an agent must not see, under whatever key; None if it does not.

    Args:
        value: a JSON value of a reply.
        hidden: by name, what is hidden: an object is found where all its members are, a text or a number as itself.
        path: where the value is.
    """
    for name, secret in hidden.items():
        matches = secret.items() <= value.items() if isinstance(secret, dict) and isinstance(value, dict) else False
        if matches or (not isinstance(secret, dict) and type(value) is type(secret) and value == secret):
            return f"{path}, which holds {name},"
    if isinstance(value, Mapping):
        inside = [(f"{path}.{key}", inner) for key, inner in value.items()]
    else:
        inside = [(f"{path}[{index}]", inner) for index, inner in enumerate(value if isinstance(value, list) else ())]
    for location, inner in inside:
        if leak := find_private(inner, hidden, location):
            return leak
    return None


def around(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result of MCP without the parts that show an agent its tools, its prompt and its observations."""
    return {key: value for key, value in result.items() if key not in _SHOWN}


def hidden_of(started: Mapping[str, Any]) -> dict[str, Any]:
    """Return what only a trainer may know of an episode's task."""
    row = started["task"]
    hidden = {"the task's id": row["id"], "the task's fields": row["fields"]}
    return {name: value for name, value in hidden.items() if value}


def numbers(value: Any) -> Iterator[float]:
    """Yield every number within a JSON value."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)
