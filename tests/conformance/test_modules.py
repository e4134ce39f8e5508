"""A check belongs to the core or to one module, and no module is presumed of a server."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from core_server import CoreOnly
from worlds import SECRET_ANSWER, Playground

from ludus.conformance import CHECKS, conform
from ludus.conformance.checks import WIRE_MODULES
from ludus.protocol.modules import RESERVED, Module
from ludus.server import ServerLimits
from ludus.server.web.app import LudusApp
from ludus.server.web.serve import LudusServer, build
from ludus.server.web.settings import ServerSettings

ROOT = Path(__file__).parents[2]
PAGES = {
    Module.INITIALIZE: "initialize", Module.START_TOOL: "start-tool", Module.PLAY: "play", Module.TOKENS: "tokens",
    Module.CHANNEL: "channel", Module.ORS: "ors", Module.LIMITS: "limits", Module.SAMPLING: "sampling",
    Module.FORK: "fork", Module.GROUP_SCORING: "group-scoring", Module.TURNS: "turns", Module.NOISE: "noise",
}  # fmt: skip
"""The page of the standard on each module."""


@pytest.fixture
async def core() -> AsyncIterator[LudusServer]:
    """A server of the core alone."""
    settings = ServerSettings(port=0, limits=ServerLimits(grace_seconds=0.3))
    app = build([Playground], settings, {})
    server = LudusServer(LudusApp(app.api, app.context, app.guard, CoreOnly(app)), settings)
    task = asyncio.create_task(server.serve())
    started = asyncio.create_task(server.running.wait())
    try:
        await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
        yield server
    finally:
        started.cancel()
        server.stop()
        await asyncio.wait([task])


async def test_a_server_of_the_core_alone_conforms(core: LudusServer) -> None:
    report = await conform(core.url, private=[SECRET_ANSWER])
    assert [(verdict.check, verdict.detail) for verdict in report.of("failed", "noted")] == []
    assert report.wires == ("mcp",)
    found = report.by_module()
    assert found["core"]["passed"] >= 50
    assert {name for name, entry in found.items() if entry["announced"]} == {"core"}
    for verdict in report.of("skipped"):
        if verdict.module != "core":
            assert verdict.detail == f"the server does not announce the module {verdict.module}"
    of_modules = [check for check in CHECKS["mcp"] if check.module is not None]
    assert len([verdict for verdict in report.of("skipped") if verdict.module != "core"]) == len(of_modules)
    (unannounced,) = (verdict for verdict in report.verdicts if verdict.check == "unannounced")
    assert unannounced.status == "passed"


async def test_a_wire_that_the_server_does_not_announce_is_skipped(core: LudusServer) -> None:
    report = await conform(core.url, wires=["channel"])
    assert {verdict.status for verdict in report.verdicts} == {"skipped"}
    assert {verdict.detail for verdict in report.verdicts} == {"the server does not announce the module channel"}


def test_a_check_names_requirements_of_the_core_and_of_its_own_module_only() -> None:
    manifest = tomllib.loads((ROOT / "spec" / "requirements.toml").read_text(encoding="utf-8"))
    assert PAGES.keys() == set(Module) - RESERVED
    wrong = []
    for wire, checks in CHECKS.items():
        for check in checks:
            modules = {module for module in (check.module, WIRE_MODULES.get(wire)) if module is not None}
            own = {f"modules/{PAGES[module]}.md" for module in modules}
            for name in check.requirements:
                chapter = manifest[name]["chapter"]
                if not chapter.startswith("core/") and chapter not in own:
                    wrong.append(f"{wire}/{check.name} names {name} of {chapter}")
    assert wrong == []


def test_a_check_of_a_module_names_a_requirement_of_it_or_needs_it_to_check_the_core() -> None:
    needed = {
        check.name
        for wire, checks in CHECKS.items()
        for check in checks
        if check.module is not None and check.module is WIRE_MODULES.get(wire)
    }
    assert needed == set(), "the module of the wire is not named again"
