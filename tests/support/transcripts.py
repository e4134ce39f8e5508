"""Reads the transcripts of the spec."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[2] / "spec" / "transcripts"
BLOCK = re.compile(r"^```\w+\n(?P<head>.+?)(?:\n\n(?P<body>.+?))?\n```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One message of a transcript."""

    first: str
    headers: dict[str, str]
    body: str

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The JSON objects in the body: one, those of a batch, or none."""
        if not self.body.startswith(("{", "[")):
            return []
        value = json.loads(self.body)
        return value if isinstance(value, list) else [value]


class Exchange(NamedTuple):
    """A method with its params, and with its result if it has one."""

    method: str
    params: dict[str, Any]
    result: dict[str, Any]


def blocks(name: str) -> list[Block]:
    """The messages of a transcript, in order."""
    found = []
    for match in BLOCK.finditer((FOLDER / name).read_text("utf-8")):
        first, *lines = match["head"].splitlines()
        found.append(Block(first, dict(line.split(": ", 1) for line in lines), match["body"] or ""))
    return found


def exchanges(name: str) -> list[Exchange]:
    """The JSON-RPC calls of a transcript, without `_meta` and `resultType`."""
    calls: dict[Any, tuple[str, dict[str, Any]]] = {}
    found = []
    for message in (message for block in blocks(name) for message in block.messages):
        if "method" in message:
            calls[message["id"]] = (message["method"], _own(message["params"]))
        else:
            found.append(Exchange(*calls.pop(message["id"]), _own(message["result"])))
    assert not calls
    return found


def _own(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in ("_meta", "resultType")}
