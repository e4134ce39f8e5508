"""The keys of the configuration, looked up by path in the JSON schema of `TrainConfig`."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator
from typing import Any

from ludus.trainer.core.config import TrainConfig

Node = dict[str, Any]
"""The schema of a key or of a table."""
Path = tuple[str, ...]
"""The keys from the top down; entries of lists go by number."""


@functools.cache
def root() -> Node:
    """Return the schema of the whole configuration."""
    return TrainConfig.model_json_schema()


def alternatives(node: Node) -> list[Node]:
    """Return the alternatives of a key's type, with references resolved."""
    if "$ref" in node:
        node = root()["$defs"][node["$ref"].rpartition("/")[2]]
    return [kind for part in node["anyOf"] for kind in alternatives(part)] if "anyOf" in node else [node]


def field(path: Path) -> Node:
    """Return the schema of a key; {} if there is no such key."""
    for kind in kinds(path[:-1]) if path else ():
        child = kind.get("properties", {}).get(path[-1]) or kind.get("additionalProperties")
        if not child and path[-1].isdecimal():
            child = kind.get("items") or (kind.get("prefixItems") or [{}])[0]
        if child:
            return dict(child)
    return {} if path else root()


def kinds(path: Path) -> list[Node]:
    """Return the alternatives of the type of a key; [] if there is no such key."""
    return alternatives(node) if (node := field(path)) else []


def description(node: Node) -> str:
    """Return the first paragraph of what a key or a table means, in one line."""
    texts = [kind.get("description", "") for kind in (node, *alternatives(node))]
    return " ".join(next(filter(None, texts), "").split("\n\n")[0].split())


def describe_unknown(path: Path) -> str:
    """Return the message for a key that does not exist, with the key that was probably meant."""
    inside = "".join(f"{key}." for key in path[:-1])
    names = [name for kind in kinds(path[:-1]) for name in kind.get("properties", ())]
    if any("items" in kind for kind in kinds(path[:-1])):
        return f"unknown key {inside}{path[-1]}; entries of {inside[:-1]} go by number, such as {inside}0"
    near = [inside + name for name in difflib.get_close_matches(path[-1], names, n=1)]
    if not near:
        everywhere = {location[-1]: ".".join(location) for location in reversed(list(_paths(())))}
        near = [everywhere[name] for name in difflib.get_close_matches(path[-1], everywhere, n=1, cutoff=0.75)]
    choices = f"there are: {', '.join(names)}" if names else f"{inside[:-1]} is no table"
    return f"unknown key {inside}{path[-1]}; {f'did you mean {near[0]}?' if near else choices}"


def _paths(path: Path) -> Iterator[Path]:
    """Yield the path of every key, with `0` for list entries."""
    for kind in kinds(path):
        for name in ("0",) if "items" in kind else kind.get("properties", ()):
            yield (*path, name)
            yield from _paths((*path, name))
