"""Converts what hosted packages return, such as NumPy values and bytes, to JSON values."""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
from typing import Any

DEEPEST = 64
_SAME = frozenset({str, int, bool, type(None)})


class UnusableValue(Exception):
    """A hosted package returned something that has no meaning as JSON; the message says what and where."""


def plain(value: Any, where: str = "the value", depth: int = 0) -> Any:
    """Return a value as JSON: NumPy arrays as lists, bytes as base64, sets as sorted lists, models as objects.

    A number that is not finite becomes the text "inf", "-inf" or "nan", as an observation shows it.

    Raises:
        UnusableValue: the value is nested too deeply, or of a type that has no JSON form.
    """
    kind = type(value)
    if kind in _SAME or (kind is float and math.isfinite(value)):  # the usual case, and most items of arrays
        return value
    if isinstance(value, str):
        return value if not isinstance(value, enum.Enum) else plain(value.value, where, depth)
    if isinstance(value, enum.Enum):
        return plain(value.value, where, depth)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth > DEEPEST:
        raise UnusableValue(f"{where} is nested more than {DEEPEST} levels deep")
    if isinstance(value, dict):
        return {_key(key): plain(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{position}]", depth + 1) for position, item in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        items = [plain(item, where, depth + 1) for item in value]
        return sorted(items, key=repr)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode("ascii")
    for convert in ("tolist", "model_dump", "to_dict", "isoformat"):  # NumPy and torch, pydantic, pandas, dates
        method = getattr(value, convert, None)
        if callable(method) and not isinstance(value, type):
            return plain(method(), where, depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name), where, depth + 1) for field in fields}
    raise UnusableValue(f"{where} is a {type(value).__name__}, which has no JSON form")


def number(value: Any, where: str) -> float:
    """Return a reward as a float.

    Raises:
        UnusableValue: it is no finite number.
    """
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise UnusableValue(f"{where} is {type(value).__name__}, not a number") from None
    if not math.isfinite(found):
        raise UnusableValue(f"{where} is {found}, and a reward must be finite")
    return found


def result(
    content: Any,
    *,
    reward: Any = None,
    components: dict[str, Any] | None = None,
    finished: bool = False,
    truncated: bool = False,
    metadata: dict[str, Any] | None = None,
    unscored: str | None = None,
) -> dict[str, Any]:
    """Return the outcome of a step.

    Args:
        content: text, or a list of text and blocks from `image`.
        reward: the reward of the step; None if the step earns nothing.
        components: parts of the reward by name: numbers, or objects `{"value", "weight"}`, where a part with the
            weight 0 is a metric that is only reported.
        finished: whether the task ends with this step.
        truncated: whether the hosted environment cut the episode short.
        metadata: facts for the trainer; values without a JSON form are shown with `repr`.
        unscored: why the step has no valid reward, if the hosted system says so; the episode is unscored.

    Raises:
        UnusableValue: a reward is no finite number.
    """
    return {
        "content": _content(content),
        "reward": None if reward is None else number(reward, "the reward"),
        "components": {str(name): _component(name, part) for name, part in (components or {}).items()},
        "finished": bool(finished),
        "truncated": bool(truncated),
        "metadata": _tolerant(metadata or {}),
        **({} if unscored is None else {"unscored": unscored}),
    }


def image(data: bytes, mime_type: str = "image/png") -> dict[str, Any]:
    """Return an image for the content of a step or a prompt."""
    return {"type": "image", "data": base64.b64encode(data).decode("ascii"), "mimeType": mime_type}


def _component(name: str, part: Any) -> Any:
    if not isinstance(part, dict):
        return number(part, f"the component {name!r}")
    return {key: number(part[key], f"the {key} of the component {name!r}") for key in ("value", "weight")}


def _content(content: Any) -> list[Any]:
    if isinstance(content, (str, dict)):
        content = [content]
    return [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]


def _tolerant(metadata: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in metadata.items():
        try:
            found[str(name)] = plain(value, str(name))
        except Exception:  # a fact for the trainer must not end the episode
            found[str(name)] = repr(value)[:1000]
    return found


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(plain(key, "a key"))
