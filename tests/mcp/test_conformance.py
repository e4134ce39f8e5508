"""The official conformance suite against our MCP servers, in both revisions it has requirements for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

MODERN, LEGACY = "2026-07-28", "2025-11-25"
SHIPPED = {
    (MODERN, "play"): {
        "tools-list", "tools-call-simple-text", "tools-call-image", "tools-call-error", "prompts-list",
        "server-sse-multiple-streams", "sep-2164-resource-not-found", "dns-rebinding-protection",
        "input-required-result-unsupported-methods",
    },
    (MODERN, "control"): {"tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"},
    (LEGACY, "play"): {
        "server-initialize", "ping", "tools-list", "tools-call-simple-text", "tools-call-image", "tools-call-error",
        "prompts-list", "server-sse-multiple-streams", "dns-rebinding-protection", "server-session-lifecycle",
    },
    (LEGACY, "control"): {"server-initialize", "ping", "tools-list", "dns-rebinding-protection"},
}  # fmt: skip
"""What a server passes as it ships. The other scenarios call tools, prompts and resources that only a fixture has."""

UNTESTABLE_AS_SHIPPED = {
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
}
"""Checks of `server-stateless` that need diagnostic tools."""


def results(output: str) -> dict[str, bool]:
    """Scenario → passed, from the suite's summary."""
    summary = output.rpartition("=== SUMMARY ===")[2]
    return {name: mark == "✓" for mark, name in re.findall(r"^([✓✗]) ([\w-]+):", summary, re.MULTILINE)}


def required(listing: str) -> set[str]:
    """The scenarios that a server is scored by."""
    block = listing.partition("Server scenarios")[2].partition("Client scenarios")[0]
    return set(re.findall(r"^  - ([\w-]+)", block, re.MULTILINE))


def failures(directory: Path) -> set[str]:
    """The ids of the checks that failed, from what the suite wrote."""
    (file,) = directory.rglob("checks.json")
    return {check["id"] for check in json.loads(file.read_text()) if check["status"] == "FAILURE"}


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
@pytest.mark.parametrize("plane", ["control", "play"])
async def test_every_required_scenario_passes_on_both_planes(
    plane: str, revision: str, conformance: Any, node: Any, run: Any, tmp_path: Path
) -> None:
    binary, script = node("conformance/dist/index.js")
    urls = await conformance()
    _, listing = await run(binary, script, "list", "--requirements", revision)
    code, output = await run(
        binary, script, "server", "--url", urls[plane], "--requirements", revision, "-o", tmp_path, cwd=tmp_path
    )
    found = results(output)
    wanted = required(listing)
    assert len(wanted) >= 30, listing
    assert {name for name in wanted if not found.get(name)} == set(), output
    assert code == 0, output


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
@pytest.mark.parametrize("plane", ["control", "play"])
async def test_the_server_as_it_ships_passes_what_applies_to_it(
    plane: str, revision: str, conformance: Any, node: Any, run: Any, tmp_path: Path
) -> None:
    binary, script = node("conformance/dist/index.js")
    urls = await conformance("--plain")
    _, output = await run(
        binary, script, "server", "--url", urls[plane], "--requirements", revision, "-o", tmp_path, cwd=tmp_path
    )
    found = results(output)
    assert {name for name in SHIPPED[revision, plane] if not found.get(name)} == set(), output


@pytest.mark.parametrize("plane", ["control", "play"])
async def test_statelessness_fails_only_in_checks_that_need_diagnostic_tools(
    plane: str, conformance: Any, node: Any, run: Any, tmp_path: Path
) -> None:
    binary, script = node("conformance/dist/index.js")
    urls = await conformance("--plain")
    options = ["--scenario", "server-stateless", "--spec-version", MODERN, "-o", tmp_path]
    await run(binary, script, "server", "--url", urls[plane], *options, cwd=tmp_path)
    failed = failures(tmp_path)
    assert failed <= UNTESTABLE_AS_SHIPPED
