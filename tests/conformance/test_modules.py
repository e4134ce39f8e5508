"""A check belongs to the core or to one module, and no module is presumed of a server."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from app_server import serving_app
from core_server import CoreOnly
from worlds import SECRET_ANSWER, Playground

from ludus.conformance import CHECKS, conform
from ludus.conformance.checks import WIRE_MODULES
from ludus.protocol.modules import Module
from ludus.server import EpisodeHost, ServerLimits
from ludus.server.serving.app import LudusApp, create_app
from ludus.server.serving.serve import build
from ludus.server.serving.settings import ServerSettings

ROOT = Path(__file__).parents[2]
SETTINGS = ServerSettings(port=0, limits=ServerLimits(grace_seconds=0.3))
PAGES = {
    Module.INITIALIZE: "initialize", Module.START_TOOL: "start-tool", Module.PLAY: "play", Module.TOKENS: "tokens",
    Module.SECRETS: "secrets",
    Module.CHANNEL: "channel", Module.ORS: "ors", Module.LIMITS: "limits", Module.SAMPLING: "sampling",
    Module.FORK: "fork", Module.GROUP_SCORING: "group-scoring", Module.TURNS: "turns", Module.NOISE: "noise",
    Module.SEATS: "seats", Module.WORLDS: "worlds",
}  # fmt: skip
"""The page of the standard on each module."""


@pytest.fixture
async def serve_app() -> AsyncIterator[Callable[[LudusApp], Awaitable[str]]]:
    """`url = await serve_app(app)`: a real server of an application."""
    async with AsyncExitStack() as stack:

        async def start(app: LudusApp) -> str:
            return await stack.enter_async_context(serving_app(app, SETTINGS))

        yield start


@pytest.fixture
async def core(serve_app: Callable[[LudusApp], Awaitable[str]]) -> str:
    """The address of a server of the core alone."""
    app = build([Playground], SETTINGS, {})
    return await serve_app(LudusApp(app.api, app.context, app.guard, CoreOnly(app)))


@pytest.mark.suite("planted-faults")
async def test_a_server_of_the_core_alone_conforms(core: str) -> None:
    report = await conform(core, private=[SECRET_ANSWER])
    assert [(verdict.check, verdict.detail) for verdict in report.of("failed", "noted")] == []
    assert report.wires == ("mcp",)
    found = report.by_module()
    assert found["core"]["passed"] >= 50
    assert {name for name, entry in found.items() if entry["announced"]} == {"core"}
    of_modules = [verdict for verdict in report.of("skipped") if verdict.module != "core"]
    assert len(of_modules) == len([check for check in CHECKS["mcp"] if check.module is not None])
    for verdict in of_modules:
        assert verdict.detail == f"the server does not announce the module {verdict.module}"
    (unannounced,) = (verdict for verdict in report.verdicts if verdict.check == "unannounced")
    assert unannounced.status == "passed"


async def test_a_server_without_channel_ors_and_agent_endpoints_conforms(
    serve_app: Callable[[LudusApp], Awaitable[str]],
) -> None:
    host = EpisodeHost([Playground], limits=SETTINGS.limits)
    report = await conform(await serve_app(create_app(host, SETTINGS, wires=frozenset())))
    assert [(verdict.check, verdict.detail) for verdict in report.of("failed", "noted")] == []
    assert report.wires == ("mcp",)
    found = report.by_module()
    absent = {name for name, entry in found.items() if not entry["announced"]}
    assert absent == {"play", "tokens", "channel", "ors"}
    assert found["startTool"]["passed"] == 3


async def test_a_wire_that_the_server_does_not_announce_is_skipped(core: str) -> None:
    report = await conform(core, wires=["channel"])
    assert {verdict.status for verdict in report.verdicts} == {"skipped"}
    assert {verdict.detail for verdict in report.verdicts} == {"the server does not announce the module channel"}


def test_a_check_names_requirements_of_the_core_and_of_its_own_module_only() -> None:
    manifest = tomllib.loads((ROOT / "spec" / "requirements.toml").read_text(encoding="utf-8"))
    assert PAGES.keys() == set(Module)
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


def test_no_check_names_the_module_of_its_wire_again() -> None:
    for wire, checks in CHECKS.items():
        for check in checks:
            assert check.module is None or check.module is not WIRE_MODULES.get(wire), check.name
