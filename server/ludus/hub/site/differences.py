"""What changed between the manifests of two versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from ludus.registry.types.packages import Manifest

MOST_CHANGES: Final = 120
"""The most changes that are shown."""

MOST_CHARACTERS: Final = 7_000
"""The most characters of all changes together."""

_SHOWN: Final = 160
"""The most characters of one value that are shown."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs.

    Attributes:
        kind: what happened to it.
        path: where it is in the manifest, such as `environments[0].splits[1].count`.
        before: its value before, as JSON; empty if it was not there.
        after: its value after, as JSON; empty if it is not there any more.
    """

    kind: Literal["added", "removed", "changed"]
    path: str
    before: str
    after: str


def changes(before: Manifest, after: Manifest) -> tuple[list[Change], int]:
    """Return the first changes from one manifest to another, and the number of all of them."""
    old, new = (dict(_leaves(one.model_dump(mode="json", by_alias=True))) for one in (before, after))
    found = []
    for path in dict.fromkeys([*new, *old]):
        if old.get(path) == new.get(path) and (path in old) == (path in new):
            continue
        kind: Literal["added", "removed", "changed"]
        kind = "added" if path not in old else "removed" if path not in new else "changed"
        found.append(Change(kind, path, old.get(path, ""), new.get(path, "")))
    return list(_first(found)), len(found)


def _first(found: list[Change]) -> Iterator[Change]:
    """Yield as many changes as a page has room for."""
    left = MOST_CHARACTERS
    for change in found[:MOST_CHANGES]:
        left -= len(change.path) + len(change.before) + len(change.after) + 40
        if left < 0:
            return
        yield change


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the paths and values of all fields that hold no further ones."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _leaves(part, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for label, part in _labeled(value):
            yield from _leaves(part, f"{path}[{label}]")
    else:
        text = json.dumps(value, ensure_ascii=False)
        yield path, text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _labeled(values: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a list with their names, or with their values or positions if they have no names."""
    for number, value in enumerate(values):
        name = value.get("name") if isinstance(value, dict) else value if isinstance(value, str) else None
        yield str(name) if name is not None else str(number), value
